"""Type checkers see module paths that are no files: the wheel has a stub for each row of the table."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

from delegraph_executorch.finding import PATHS

DISTRIBUTION = Path(__file__).parents[1]

USER = """
from delegraph_executorch.exir import EdgeProgramManager, to_edge
from delegraph_executorch.exir.backend.compile_spec_schema import CompileSpec
from delegraph_executorch.exir.scalar_type import ScalarType
from delegraph_executorch.exir.tensor import TensorSpec
from delegraph_executorch.extension.pybindings.portable_lib import _load_for_executorch

reveal_type(CompileSpec("k", b"v").key)
reveal_type(ScalarType.FLOAT)
manager: EdgeProgramManager = to_edge(1)
"""


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", DISTRIBUTION / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_row_has_a_stub(hook: ModuleType) -> None:
    made = dict(hook.stubs(DISTRIBUTION / "delegraph_executorch"))
    for path in PATHS:
        place = Path(*path.split("."))
        assert made.keys() & {place / "__init__.pyi", place.with_suffix(".pyi")}, path
    assert made[Path("extension/pybindings/data_loader.pyi")] == (
        "from delegraph.runtime import DataLoader as PyDataLoader\n"
    )


@pytest.mark.long
def test_a_type_checker_sees_the_names_of_an_installed_wheel(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*build, str(DISTRIBUTION)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "user.py").write_text(USER, "utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "user.py"]
    environment = {"MYPYPATH": "site", "PATH": "", "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert 'user.py:8: note: Revealed type is "str"' in done.stdout, done.stdout + done.stderr
    assert 'error: Argument 1 to "to_edge" has incompatible type "int"' in done.stdout
    assert "attr-defined" not in done.stdout and "import-not-found" not in done.stdout
