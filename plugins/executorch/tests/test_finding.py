"""Module paths that are no files: rows of the table, and the wheel's own where there is one."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile

import pytest

import delegraph_executorch
from delegraph.errors import PluginUnavailable
from delegraph_executorch.finding import PATHS, NeedsWheel
from delegraph_executorch.path_table import homes_in

without = pytest.mark.skipif(importlib.util.find_spec("executorch") is not None, reason="the wheel is installed")
ROOT = Path(delegraph_executorch.__file__).parent


def module_of(path: str) -> str:
    return f"delegraph_executorch.{path}"


@pytest.mark.parametrize("path", PATHS)
def test_a_row_has_its_names(path: str) -> None:
    module = import_module(module_of(path))
    assert sys.modules[module_of(path)] is module
    for home, names in homes_in(PATHS[path]):
        if not names:
            assert module is import_module(home)
        for there, here in names:
            assert here in dir(module)
            with suppress(NeedsWheel):
                assert getattr(module, here) is getattr(import_module(home), there)


def test_the_code_here_needs_no_row() -> None:
    """So that type checkers see it: they know files."""
    imported = {
        node.module
        for file in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module is not None
    }
    rows = {module_of(path) for path in PATHS if not (ROOT.joinpath(*path.split(".")) / "__init__.py").exists()}
    assert imported & rows == set()


def test_a_name_that_a_row_has_not() -> None:
    with pytest.raises(ImportError, match=r"cannot import name 'map_impl' from 'delegraph_executorch\.exir"):
        from delegraph_executorch.exir.control_flow import map_impl  # noqa: F401
    with pytest.raises(AttributeError, match=r"module 'delegraph_executorch\.exir' has no attribute 'to_edges'"):
        _ = import_module("delegraph_executorch.exir").to_edges


def test_a_name_hides_a_module_that_is_called_the_same() -> None:
    import_module("delegraph_executorch.exir.capture")
    assert callable(import_module("delegraph_executorch.exir").capture)


def test_everything_of_a_row_can_be_imported() -> None:
    names: dict[str, object] = {}
    exec("from delegraph_executorch.exir.control_flow import *", names)
    assert {"cond", "map", "scan", "while_loop"} <= names.keys()


def test_the_table_is_read_from_an_archive_too(tmp_path: Path) -> None:
    """As `delegraph select` packs a program."""
    archive = tmp_path / "app.zip"
    with ZipFile(archive, "w") as packed:
        for file in ROOT.rglob("*"):
            if file.suffix in (".py", ".txt"):
                packed.write(file, f"delegraph_executorch/{file.relative_to(ROOT).as_posix()}")
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import delegraph_executorch.exir.dynamic_shape as module;"
    )
    code += "import delegraph_executorch.runtime as runtime; print(module.__name__, runtime.__file__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == [
        "delegraph_executorch.exir.passes.specs",
        str(archive / "delegraph_executorch" / "runtime" / "__init__.py"),
    ], done.stderr


@without
@pytest.mark.parametrize("path", ["version", "exir.passes.quantize_io_pass", "devtools.visualization"])
def test_what_is_the_wheels_own_says_what_to_install(path: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"ExecuTorch is not installed; what to do: pip install") as raised:
        import_module(module_of(path))
    assert isinstance(raised.value, PluginUnavailable)
    with pytest.raises(PluginUnavailable, match="ExecuTorch is not installed"):
        _ = import_module(module_of("exir.passes")).ToDevicePass
