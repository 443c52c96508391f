"""`Judge`: a program and backends -> a verdict, from a process that may die or hang on the way."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import torch
from torch.export import ExportedProgram

from delegraph.debugging.prepared import Taken, prepared
from delegraph.debugging.subgraph import Case
from delegraph.debugging.tolerance import allowed_error
from delegraph.debugging.verdict import Kind, Verdict
from delegraph.devtools.worker import WorkerDied, WorkerHangs, WorkerProcess
from delegraph.errors import LoweringError, cause_of
from delegraph.plugins.plugin_spec import PluginSpec

__all__ = ["Judge", "named"]

_MODULE: Final = "delegraph.debugging.trial"


@dataclass
class Judge:
    """Tries programs. `timeout` is seconds for each; `tolerance` is a share of the largest value of a result.

    A context manager: the process and the folder of its files go with it. `trials` counts.
    """

    backend_options: Mapping[str, Mapping[str, bool | int | str]] | None = None
    tolerance: float | None = None
    timeout: float = 120.0
    trials: int = 0
    _process: WorkerProcess = field(default_factory=lambda: WorkerProcess(_MODULE))
    _folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="delegraph-debug-")
    )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.close()
        self._folder.cleanup()

    def prepared(
        self, exported: ExportedProgram, backends: Sequence[PluginSpec]
    ) -> tuple[ExportedProgram, list[Taken], str]:
        """As `prepared.prepared`, which the process does; where it dies of it, or raises, the form without backends, no
        partitions, and why. Raises `LoweringError` where the program is not functional either."""
        path = Path(self._folder.name, "program.pt2")
        _save(exported, path)
        try:
            answer = self._process.ask({"prepare": str(path), "backends": named(backends)}, self.timeout)
        except WorkerDied as death:
            answer = {"error": str(death)}
        if "error" in answer:
            return *prepared(exported, ()), answer["error"]
        taken = [Taken(partition["backend"], tuple(partition["calls"])) for partition in answer["taken"]]
        return torch.export.load(path), taken, ""

    def __call__(self, case: Case, backends: Sequence[PluginSpec]) -> Verdict:
        """The verdict on a program, lowered onto these backends."""
        self.trials += 1
        program, expected = (Path(self._folder.name, name) for name in ("case.pt2", "expected.pt"))
        _save(case.program, program)
        torch.save(list(case.expected), expected)
        files = {"try": str(program), "expected": str(expected)}
        settings = {"options": self.backend_options, "backends": named(backends), "allowed": self.allowed(case)}
        try:
            answer = self._process.ask({**files, **settings}, self.timeout)
        except WorkerHangs as death:
            return Verdict(Kind.HANGS, str(death))
        except WorkerDied as death:
            return Verdict(Kind.CRASHED, str(death))
        return Verdict(Kind(answer["kind"]), answer["said"])

    def allowed(self, case: Case) -> list[float]:
        """How far each of the results may be from torch's."""
        return [0.0 if value is None else allowed_error(value, self.tolerance) for value in case.expected]


def named(backends: Sequence[PluginSpec]) -> str:
    """Backends as the command line has them."""
    return ",".join(map(str, backends))


def _save(program: ExportedProgram, path: Path) -> None:
    try:
        torch.export.save(program, path)
    except Exception as error:
        raise LoweringError(
            f"the program cannot be tried in a process of its own: torch.export.save raised {cause_of(error)}"
        ) from error
