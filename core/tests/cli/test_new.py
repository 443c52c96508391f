"""`delegraph new`: what is written, and what is refused; `tests/packaging/test_scaffold.py` installs and tests it."""

from __future__ import annotations

import ast
import io
import tokenize
import tomllib
from pathlib import Path

import pytest

from delegraph.cli import main
from delegraph.cli.new import KINDS
from delegraph.interfaces import KernelLibrary
from delegraph.plugins import PluginRegistry, use_registry

LIMIT = 200
"""Lines of code of a plug-in to begin with, imports among them; comments and docstrings are not counted."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_distribution(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", kind, "my-npu", "--into", str(tmp_path)]) == 0
    folder = tmp_path / "my-npu"
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    own = {"tests/test_conformance.py", "tests/test_my_npu.py", "my_npu/__init__.py", "my_npu/py.typed"}
    assert files >= own | {"pyproject.toml", "README.md", "LICENSE", ".gitignore", ".github/workflows/test.yml"}

    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert (project["name"], project["version"]) == ("my-npu", "0.1.0")
    for entries in project["entry-points"].values():
        for value in entries.values():
            module, _, attribute = value.partition(":")
            place = folder / module.replace(".", "/")
            source = (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_text("utf-8")
            assert attribute in source
    texts = [path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()]
    assert not any("sample" + end in text.lower() for text in texts for end in ("_name", "-name", "name"))
    assert f'pip install -e "{folder}[test]"' in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_short(kind: str, tmp_path: Path) -> None:
    main(["new", kind, "my-npu", "--into", str(tmp_path)])
    assert 0 < sum(lines_of_code(path) for path in (tmp_path / "my-npu" / "my_npu").rglob("*.py")) < LIMIT


def lines_of_code(path: Path) -> int:
    source = path.read_text("utf-8")
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            left_out |= set(range(node.lineno, node.end_lineno + 1))
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type not in blank]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    return len(lines - left_out)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("9lives", "cannot be a package"),
        ("my npu", "cannot be a package"),
        ("../npu", "cannot be a package"),
        ("class", "cannot be a package"),
        ("delegraph-npu", "the project's own"),
        ("numpy", "'numpy' is a package that is installed here, which it would hide"),
        ("json", "'json' is a module of Python's own"),
    ],
)
def test_names_that_cannot_be(name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["new", "backend", name, "--into", str(tmp_path)])
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_name_that_a_plug_in_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    registry = PluginRegistry()
    registry.register("kernels", "fast", KernelLibrary("fast"))
    with use_registry(registry), pytest.raises(SystemExit, match="2"):
        main(["new", "kernels", "fast", "--into", str(tmp_path)])
    assert "'fast' is an installed plug-in, which it would hide: choose another name" in capsys.readouterr().err


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my-npu").mkdir()
    with pytest.raises(SystemExit, match="2"):
        main(["new", "backend", "my-npu", "--into", str(tmp_path)])
    assert "is there already, and nothing is overwritten" in capsys.readouterr().err
    assert not list((tmp_path / "my-npu").iterdir())
