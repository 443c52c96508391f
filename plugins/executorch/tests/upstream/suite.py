"""ExecuTorch's installed wheel -> a folder with its own tests, ported: imports changed, nothing else.

    python -m tests.upstream.suite                         # from plugins/executorch: into build/upstream, then run all
    python -m tests.upstream.suite PYTEST_ARGUMENTS…       # one session of pytest

Nothing of ExecuTorch's is kept in this repository: its tests are read from the wheel beside `PYTHON`, rewritten
as `python -m delegraph_executorch.port` rewrites a user's files, and run by a Python without ExecuTorch.
What tests share (`exir/tests/models.py`, `exir/backend/test/demo_backend.py` …) lies beside them and is ported too; it
is found under `delegraph_executorch` since the ported folders are appended to its packages' paths. Its backends and
example models are there where the wheel is (`tests/bridge`), torchvision need not be: elsewhere a test file may import
them, and a test that uses one fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from delegraph_executorch.port import ported

from .results import Reason, read_reasons

__all__ = ["APART", "FOLDERS", "port_suite", "reasons_of_tests", "run_sessions", "run_suite", "wheel_version"]

REPOSITORY = Path(__file__).parents[4]
PYTHON = os.environ.get("DELEGRAPH_EXECUTORCH_PYTHON", str(REPOSITORY / ".venv-executorch" / "bin" / "python"))

# Folders of its wheel that hold tests, and what those share.
FOLDERS = (
    "exir/tests",
    "exir/backend/test",
    "exir/dialects/backend/test",
    "exir/dialects/edge/op/test",
    "exir/dialects/edge/test",
    "exir/dialects/test",
    "exir/emit/test",
    "exir/operator/test",
    "exir/program/test",
    "exir/verification/test",
    "exir/_serialize/test",
    "runtime/test",
    "extension/pybindings/test",
    "extension/training/pybindings/test",
    "devtools/bundled_program/serialize/test",
    "devtools/bundled_program/test",
    "devtools/bundled_program/util",
    "devtools/backend_debug/tests",
    "devtools/etdump/tests",
    "devtools/etrecord/tests",
    "devtools/inspector/tests",
    "devtools/intermediate_output_tap/tests",
    "export/tests",
)

# Files that define the library DO_NOT_USE_TEST_ONLY, as exir/dialects/backend/test/test_backend_ops.py does: a process
# defines a library once, so each runs in a session of its own.
APART = ("exir/tests/test_passes.py", "exir/operator/test/test_operator.py")

CONFTEST = """
import importlib, importlib.abc, importlib.machinery, importlib.util, pathlib, sys, types

NEEDED = {
    "delegraph_executorch.backends": "executorch", "delegraph_executorch.examples": "executorch",
    "delegraph_executorch.export": "executorch", "torchvision": "torchvision",
}
absent = tuple(f"{package}." for package, needs in NEEDED.items() if importlib.util.find_spec(needs) is None)


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):  # for what is not here: a test that uses it fails
    def find_spec(self, name, path, target=None):
        if f"{name}.".startswith(absent):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        module.__path__ = []


class Absent(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        def refuse(*args, **kwargs):
            raise NotImplementedError(f"{self.__name__}.{name} is ExecuTorch's own backend's, or torchvision's")
        return refuse


class OfTheWheel(StandIns):  # asked right before the finder that says that the wheel is not installed
    def find_spec(self, name, path, target=None):
        if name.startswith("delegraph_executorch.") and importlib.util.find_spec("executorch") is None:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)


sys.meta_path.insert(0, StandIns())
sys.meta_path.insert(-1, OfTheWheel())
if importlib.util.find_spec("executorch") is None:
    from delegraph_executorch import finding
    finding._beside = lambda name: Absent(f"delegraph_executorch.{name}")  # names of a row that the wheel's module has
root = pathlib.Path(__file__).parent
for folder in sorted(p for p in (root / "delegraph_executorch").rglob("*") if p.is_dir() and p.name != "__pycache__"):
    package = importlib.import_module(".".join(folder.relative_to(root).parts[:-1]))
    if str(folder.parent) not in package.__path__:
        package.__path__.append(str(folder.parent))

# Names of the table of dtypes (edge.yaml), which is not here: a file that imports them tests more than that table.
from delegraph_executorch.exir.dialects.edge import _ops as edge_ops
edge_ops._edge_dialect_info, edge_ops.AllowedDtypeSet, edge_ops.FunctionDtypeConstraint = {}, object, object

from tests.upstream import demo_operators, demo_runtimes
demo_operators.register()
demo_runtimes.register()
"""


LISTS = Path(__file__).with_name("cannot_pass")
NOT_TESTS = frozenset({"names.toml", "documentation.toml"})
"""Lists beside the tests': public names, and pieces of documentation."""

SINCE_1_5 = "since_1_5.toml"
"""The list of tests that ExecuTorch 1.4 has not, or that pass there."""


def reasons_of_tests() -> dict[str, Reason]:
    """The listed tests that cannot pass without the wheel, of its version, and why."""
    other = frozenset() if wheel_version() >= (1, 5) else frozenset({SINCE_1_5})
    return read_reasons(path for path in sorted(LISTS.glob("*.toml")) if path.name not in NOT_TESTS | other)


def wheel_version() -> tuple[int, int]:
    """The version of ExecuTorch beside the interpreter `PYTHON`; (0, 0) where it is not."""
    (record,) = [*Path(PYTHON).parents[1].glob("lib/python3.*/site-packages/executorch-*.dist-info")] or [
        Path("x-0.0.0")
    ]
    major, minor, *_ = record.name.split("-")[1].split(".")
    return int(major), int(minor)


def executorch_package() -> Path:
    """The package `executorch` beside the interpreter `PYTHON`. Raises `ValueError` where it is not."""
    (package,) = Path(PYTHON).parents[1].glob("lib/python3.*/site-packages/executorch")
    return package


def port_suite(scratch: Path) -> Path:
    """Its tests, ported into `scratch/delegraph_executorch/…`; that folder."""
    shutil.rmtree(scratch, ignore_errors=True)
    package, target = executorch_package(), scratch / "delegraph_executorch"
    for folder in FOLDERS:
        for path in (package / folder).rglob("*.py"):
            if path.name == "__init__.py":  # pytest would take `test` for a package at the top, and two of them for one
                continue
            new = target / path.relative_to(package)
            new.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(ported(path.read_text(encoding="utf-8")), encoding="utf-8")
    (scratch / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (scratch / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n", encoding="utf-8")
    return target


def run_suite(scratch: Path, *arguments: str) -> int:
    """pytest on the ported tests; its exit code."""
    # The package before the scratch folder: alone on the path, the folder of the same name would hide it.
    path = os.pathsep.join([str(REPOSITORY / "plugins" / "executorch"), str(scratch), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path.removesuffix(os.pathsep)}
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(scratch), *arguments]
    return subprocess.run(command, cwd=scratch, env=environment, check=False).returncode


def run_sessions(scratch: Path, *arguments: str, tests: Sequence[str] = ()) -> list[Path]:
    """All ported tests, or these, the files `APART` in sessions of their own; the JUnit file of each session."""
    apart = [f"delegraph_executorch/{file}" for file in APART]
    chosen = [f"delegraph_executorch/{test}" for test in tests]
    together = [test for test in chosen if not test.startswith(tuple(apart))]
    sessions = [[*together, *(f"--ignore={file}" for file in apart)]] if together or not tests else []
    for file in apart:
        mine = [test for test in chosen if test.startswith(file)] if tests else [file]
        sessions += [mine] if mine else []
    reports = [scratch / f"report_{number}.xml" for number in range(len(sessions))]
    for session, report in zip(sessions, reports, strict=True):
        run_suite(scratch, *session, *arguments, f"--junitxml={report}")
    return reports


if __name__ == "__main__":
    folder = REPOSITORY / "build" / "upstream"
    port_suite(folder)
    if sys.argv[1:]:
        raise SystemExit(run_suite(folder, *sys.argv[1:]))
    run_sessions(folder)
