"""What users may import, pinned by `docs/api.md`; and that plug-ins, examples and documents import nothing else."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from tests.lazy_packages import renewed
from tests.test_docs import PAGES, READMES
from tools.site.api_page import PACKAGES, PAGE, PUBLIC, names_of, page, summary

ROOT = Path(__file__).parents[1]
STRANGERS = [
    ROOT / name
    for name in ("partitioners", "machines", "onnx", "backends", "plugins", "tests/plugins", "examples", "benchmarks")
]
"""Where only public names are used: plug-ins with their tests, examples; and the documents, `PAGES` and `READMES`."""


# ---- what is public --------------------------------------------------------------------------------


def test_the_page_lists_what_is_public(request: pytest.FixtureRequest) -> None:
    """A name that comes, goes or says something else shows in `docs/api.md`: run with --renew."""
    if request.config.getoption("--renew"):
        PAGE.write_text(page(), "utf-8")
    assert page() == PAGE.read_text("utf-8")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_its_names_once(package: str, request: pytest.FixtureRequest) -> None:
    """Its imports for type checkers; `__all__` and where each name is follow from these: run with --renew."""
    file = Path(str(import_module(package).__file__))
    text = renewed(file.read_text("utf-8"))
    if request.config.getoption("--renew"):
        file.write_text(text, "utf-8")
    assert file.read_text("utf-8") == text


@pytest.mark.parametrize("module", PUBLIC)
def test_every_name_is_there_and_says_what_it_is(module: str) -> None:
    assert len(set(names_of(module))) == len(names_of(module))
    for name in names_of(module):
        assert getattr(import_module(module), name) is not None
        assert summary(module, name), f"{module}.{name} has no docstring"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_not_there(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'lowre'"):
        _ = import_module(package).lowre


def test_importing_the_packages_imports_nothing_heavy() -> None:
    heavy = ["torch", "numpy", "pluggy", "flatbuffers", "dataclasses"]
    script = f"import sys, {', '.join(PACKAGES)}\nprint(*{{*{heavy}}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_interfaces_are_there_without_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import delegraph.interfaces as i\n"
        "print(all(getattr(i, name) is not None for name in i.__all__))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "True\n"


def test_executorch_names_for_operators() -> None:
    """A delegate written for ExecuTorch changes this import and no code."""
    import torch

    from delegraph.aot import EdgeOpOverload, exir_ops

    assert exir_ops.edge.aten.add.Tensor == torch.ops.aten.add.Tensor
    assert isinstance(exir_ops.edge.dim_order_ops._to_dim_order_copy.default, EdgeOpOverload)


# ---- who uses nothing else -------------------------------------------------------------------------


def not_public(source: str) -> list[str]:
    """The names of `delegraph` that `source` imports, or takes from the package, and that are not public."""
    return [name for name in _names_used(ast.parse(source)) if not _is_public(name)]


def _names_used(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.Attribute(value=ast.Name(id="delegraph")):
                yield f"delegraph.{node.attr}"


def _is_public(name: str) -> bool:
    module, _, last = name.rpartition(".")
    is_package_of_public_ones = any(public.startswith(f"{name}.") for public in PUBLIC)
    return (
        name.partition(".")[0] != "delegraph"
        or name in PUBLIC
        or is_package_of_public_ones
        or (module in PUBLIC and last in names_of(module))
    )


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from delegraph.aot.edge.dialects import verify", "delegraph.aot.edge.dialects.verify"),
        ("from delegraph.aot import pipeline", "delegraph.aot.pipeline"),
        ("def f():\n    import delegraph.runtime.resolution.kernels", "delegraph.runtime.resolution.kernels"),
        ("from delegraph.program import dtypes as d", "delegraph.program.dtypes"),
        ("import delegraph\ndelegraph.lazy.lazy_names", "delegraph.lazy"),
    ],
)
def test_a_name_that_is_not_public_is_seen(line: str, found: str) -> None:
    assert not_public(line) == [found]


@pytest.mark.parametrize("folder", STRANGERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_plug_ins_and_examples_use_public_names(folder: Path) -> None:
    files = [path for path in sorted(folder.rglob("*.py")) if not {"build", "dist"} & set(path.parts)]
    assert files
    found = {str(path.relative_to(ROOT)): not_public(path.read_text("utf-8")) for path in files}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("document", [*PAGES, *READMES], ids=lambda document: str(document.relative_to(ROOT)))
def test_documents_use_public_names(document: Path) -> None:
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```", document.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert [name for block in blocks for name in not_public(block)] == []
