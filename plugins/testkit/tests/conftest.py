"""Plug-ins that exist for one test: a sound backend, `calc`, and what becomes of it when a line is another."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from delegraph.plugins import PluginRegistry, use_registry
from delegraph_testkit.checks import checks_of
from delegraph_testkit.claims import Claims
from delegraph_testkit.outcomes import Result
from delegraph_testkit.session import Session
from delegraph_testkit.subject import Kind, Subject
from delegraph_testkit.worker import InThisProcess

AOT = Path(__file__).with_name("calc_aot.py").read_text("utf-8")
RUNTIME = Path(__file__).with_name("calc_runtime.py").read_text("utf-8")
KERNELS = Path(__file__).with_name("calc_kernels.py").read_text("utf-8")

ENTRY_POINTS = """[delegraph.partitioners]
calc = calc_aot:calc_partitioner
[delegraph.lowerings]
Calc = calc_aot:CalcLowering
[delegraph.backends]
Calc = calc_runtime:Calc
[delegraph.kernels]
calc = calc_kernels:library
"""


@dataclass(frozen=True)
class Installed:
    """A distribution in a folder that stands on `sys.path`."""

    folder: Path

    def result(self, check: str, claims: dict[str, Any] | None = None, kind: Kind = Kind.BACKEND) -> Result:
        """What comes of one check, in this process."""
        return self._result(check, claims, kind, (InThisProcess(), InThisProcess()))

    def isolated(self, check: str, claims: dict[str, Any] | None = None, limit: float = 60.0) -> Result:
        """What comes of one check, in processes of their own."""
        return self._result(check, claims, Kind.BACKEND, None, limit)

    def _result(self, name: str, claims: Any, kind: Kind, workers: Any, limit: float = 60.0) -> Result:
        subject = Subject(kind, "calc", Claims.from_mapping(claims or {}))
        (check,) = [check for check in checks_of(subject) if check.id == name]
        with Session(subject, limit, workers) as session:
            return session.result(check)


Install = Callable[..., Installed]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """`install(aot=(old, new), runtime=…, kernels=…, entry_points=…)`: `calc`, with `old` replaced by `new`."""
    before = set(sys.modules)
    registries: list[Any] = []

    def write(**changes: tuple[str, str]) -> Installed:
        sources = {"aot": AOT, "runtime": RUNTIME, "kernels": KERNELS, "entry_points": ENTRY_POINTS}
        for part, (old, new) in changes.items():
            assert old in sources[part], f"calc's {part} has no {old!r}"
            sources[part] = sources[part].replace(old, new)
        metadata = tmp_path / "calc-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: calc\nVersion: 1.0\n\nA calculator\n")
        (metadata / "entry_points.txt").write_text(sources.pop("entry_points"))
        for part, source in sources.items():
            (tmp_path / f"calc_{part}.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
        registries.append(use_registry(PluginRegistry.discover()))
        registries[0].__enter__()
        return Installed(tmp_path)

    yield write
    for registry in registries:
        registry.__exit__(None, None, None)
    for module in set(sys.modules) - before:
        if str(getattr(sys.modules[module], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[module]
