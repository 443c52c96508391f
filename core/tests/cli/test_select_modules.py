"""How `delegraph select` reads import statements, and what it follows."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegraph.devtools.selective_build.distributions import Distributions
from delegraph.devtools.selective_build.imports import When, imports_of
from delegraph.devtools.selective_build.modules import ModuleGraph, find_module
from delegraph.errors import PluginLoadError


def read(source: str, module: str = "a.b.c", is_package: bool = False) -> set[tuple[str, str | None, When]]:
    imports = imports_of(ast.parse(source), module, is_package)
    return {(entry.module, entry.name, entry.when) for entry in imports}


@pytest.mark.parametrize(
    ("source", "module", "name", "when"),
    [
        ("import x.y as z", "x.y", None, When.ALWAYS),
        ("from . import d", "a.b", "d", When.ALWAYS),
        ("from .d import e", "a.b.d", "e", When.ALWAYS),
        ("from ..d import e", "a.d", "e", When.ALWAYS),
        ("class A:\n  import x", "x", None, When.ALWAYS),
        ("if sys.version_info > (3, 12):\n  import x", "x", None, When.ALWAYS),
        ("def f():\n  import x", "x", None, When.PERHAPS),
        ("f = lambda: import_module('x.y')", "x.y", None, When.PERHAPS),
        ("importlib.import_module('x.y')", "x.y", None, When.ALWAYS),
        ("try:\n  import x\nexcept ImportError:\n  pass", "x", None, When.PERHAPS),
        ("try:\n  import x\nexcept (KeyError, ModuleNotFoundError):\n  pass", "x", None, When.PERHAPS),
        ("try:\n  import x\nexcept KeyError:\n  pass", "x", None, When.ALWAYS),
        ("try:\n  import x\nfinally:\n  pass", "x", None, When.ALWAYS),
        ("with suppress(ImportError):\n  import x", "x", None, When.PERHAPS),
        ("if TYPE_CHECKING:\n  import x", "x", None, When.NEVER),
        ("if typing.TYPE_CHECKING:\n  pass\nelse:\n  import x", "x", None, When.ALWAYS),
    ],
)
def test_an_import(source: str, module: str, name: str | None, when: When) -> None:
    assert read(source) == {(module, name, when)}


def test_a_package_is_relative_to_itself() -> None:
    assert read("from .d import e", "a.b", is_package=True) == {("a.b.d", "e", When.ALWAYS)}


FILES = {
    "kit/__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kit.lazy import promised\n",
    "kit/lazy.py": "promised = 1\n",
    "kit/uses.py": "from kit import promised\nfrom kit import plain\nimport json, numpy\n",
    "kit/plain.py": "def later():\n    import kit.heavy, kit.light\n",
    "kit/heavy.py": "import undeclared\n",
    "kit/light.py": "",
    "kit/broken.py": "import kit.nowhere\n",
}


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleGraph]:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    info = tmp_path / "kit-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kit\nVersion: 1.0\nRequires-Dist: delegraph\n")
    (info / "top_level.txt").write_text("kit\n")
    (info / "RECORD").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    find_module.cache_clear()
    yield ModuleGraph(Distributions(), lambda package, distribution: package == "numpy")
    find_module.cache_clear()


def test_what_is_followed(graph: ModuleGraph) -> None:
    """Promises of a lazy package, submodules, and functions' imports, unless these lead to what is not allowed."""
    closure = graph.closure(["kit.uses"])
    assert closure.modules.keys() == {"kit", "kit.lazy", "kit.uses", "kit.plain", "kit.light"}
    assert closure.foreign == {("numpy", "kit")}
    assert closure.taken == {"kit"}
    assert "kit.uses" not in sys.modules


def test_a_package_in_editable_mode_is_its_distributions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builders such as hatchling and flit say what it is called nowhere but in the folder to which a line leads."""
    for folder in ("checkout/kit", "checkout/docs", "site/kit_of_tools-1.0.dist-info"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "checkout/kit/__init__.py").touch()
    (tmp_path / "site/kit_of_tools.pth").write_text(f"import os\n{tmp_path / 'checkout'}\n")
    info = tmp_path / "site/kit_of_tools-1.0.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kit-of-tools\nVersion: 1.0\n")
    (info / "direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "file:///checkout"}')
    (info / "RECORD").write_text("kit_of_tools.pth,,\nkit_of_tools-1.0.dist-info/METADATA,,\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    owner = Distributions().of("kit.part")
    assert owner is not None
    assert owner.name == "kit-of-tools"
    assert Distributions().of("docs") is None


def test_what_is_not_there(graph: ModuleGraph) -> None:
    with pytest.raises(PluginLoadError, match=r"the module 'kit\.nowhere' is imported, but it is not installed"):
        graph.closure(["kit.broken"])
