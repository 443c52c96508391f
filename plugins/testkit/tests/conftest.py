"""Plug-ins that exist for one test: a sound backend, `calc`, and what becomes of it when a line is another."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from delegraph.plugins import PluginRegistry, use_registry
from delegraph_testkit.checks import Check, checks_of
from delegraph_testkit.claims import Claims
from delegraph_testkit.outcomes import Outcome, Result
from delegraph_testkit.session import Session
from delegraph_testkit.subject import Kind, Subject
from delegraph_testkit.worker import InThisProcess

HERE = Path(__file__).parent
PARTS = ("aot", "runtime", "kernels", "quantizer", "pass", "planner", "tool")
SOURCES = {part: (HERE / f"calc_{part}.py").read_text("utf-8") for part in PARTS}
SOURCES["entry_points"] = """[delegraph.partitioners]
calc = calc_aot:calc_partitioner
[delegraph.lowerings]
Calc = calc_aot:CalcLowering
[delegraph.backends]
Calc = calc_runtime:Calc
[delegraph.kernels]
calc = calc_kernels:library
[delegraph.quantizers]
calc = calc_quantizer:calc_quantizer
[delegraph.passes]
calc = calc_pass:calc_pass
[delegraph.memory_planners]
calc = calc_planner:calc_planner
"""
TOOL = ("[delegraph.passes]", "[delegraph.plugins]\ncalc = calc_tool:CalcTool\n[delegraph.passes]")
"""The change of the entry points by which calc's tool is on: beside it nothing runs as it does alone."""
SMALL = ("arithmetic", "several_results", "constants")
"""Programs of the contract that calc takes; the others show nothing more of it."""


@dataclass(frozen=True)
class Installed:
    """calc, as it is found now. `folder` has the programs `SMALL`, lowered by the sound one."""

    folder: Path

    def ran(self, name: str) -> tuple[Outcome, str]:
        """The outcome of a check of the half that runs, on programs that the sound calc has lowered."""
        subject = Subject(Kind.BACKEND, "calc")
        check = replace(_check(subject, name), programs=SMALL)
        request = {"subject": subject.to_mapping(), "folder": str(self.folder), "check": asdict(check)}
        answer = InThisProcess().ask(request, 60)
        return Outcome(answer["outcome"]), answer["detail"]

    def result(self, name: str, kind: Kind = Kind.BACKEND, programs: Any = None, **claims: Any) -> Result:
        """The outcome of a check that may lower programs first (only `programs`, if given), in this process."""
        with self.session(kind, (InThisProcess(), InThisProcess()), **claims) as session:
            check = _check(session.subject, name)
            return session.result(check if programs is None else replace(check, programs=programs))

    def isolated(self, name: str, limit: float = 60.0, kind: Kind = Kind.BACKEND) -> Result:
        """The outcome of a check in a process of its own."""
        with self.session(kind, None, limit) as session:
            return session.result(_check(session.subject, name))

    @staticmethod
    def session(kind: Kind, workers: Any, limit: float = 60.0, **claims: Any) -> Session:
        return Session(Subject(kind, "calc", Claims.from_mapping(claims)), limit, workers)


def _check(subject: Subject, name: str) -> Check:
    (check,) = [check for check in checks_of(subject) if check.id == name]
    return check


Install = Callable[..., Installed]


@contextmanager
def written(folder: Path, changes: dict[str, tuple[str, str]]) -> Iterator[None]:
    """calc in `folder`, on `sys.path` and in the registry, with `old` replaced by `new` in each part."""
    sources = dict(SOURCES)
    for part, (old, new) in changes.items():
        assert old in sources[part], f"calc's {part} has no {old!r}"
        sources[part] = sources[part].replace(old, new)
    metadata = folder / "calc-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: calc\nVersion: 1.0\n\nA calculator\n")
    (metadata / "entry_points.txt").write_text(sources.pop("entry_points"))
    for part, source in sources.items():
        (folder / f"calc_{part}.py").write_text(source)
    sys.path.insert(0, str(folder))
    try:
        with use_registry(PluginRegistry.discover()):
            yield
    finally:
        sys.path.remove(str(folder))
        for module in [name for name in sys.modules if name.startswith("calc_")]:
            del sys.modules[module]


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs `SMALL`, lowered by the sound calc."""
    folder = tmp_path_factory.mktemp("programs")
    subject = Subject(Kind.BACKEND, "calc")
    with written(tmp_path_factory.mktemp("calc"), {}):
        for program in SMALL:
            request = {"subject": subject.to_mapping(), "folder": str(folder), "lower": program}
            assert InThisProcess().ask(request, 60)["error"] == ""
    return folder


@pytest.fixture
def install(tmp_path: Path, lowered: Path) -> Iterator[Install]:
    """`install(aot=(old, new), runtime=…, kernels=…, entry_points=…)`: calc, with `old` replaced by `new`."""
    entered = []

    def enter(**changes: tuple[str, str]) -> Installed:
        entered.append(written(tmp_path, changes))
        entered[0].__enter__()
        return Installed(lowered)

    yield enter
    for context in entered:
        context.__exit__(None, None, None)
