"""A subject -> results: programs lowered where torch is, checks run where it is not, each in a process of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from delegraph.devtools import WorkerDied, WorkerProcess
from delegraph.plugins import PluginRegistry, default_registry
from delegraph_testkit.checks import Check, checks_of, refuse_strange_failures
from delegraph_testkit.outcomes import Level, Outcome, Result
from delegraph_testkit.report import ConformanceReport
from delegraph_testkit.subject import Kind, Subject

__all__ = ["Session", "environment_of"]

_WORKER: Final = "delegraph_testkit.worker"
_SEARCH: Final = 50
"""Trials that may take as long as a check, until a search for the smallest part is given up."""


class Worker(Protocol):
    """Where a plug-in is tried."""

    def ask(self, request: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """The answer to a request, see `worker.answer`. Raises `WorkerDied`."""

    def close(self) -> None:
        """End it."""


class Session:
    """Checks of one subject, in two workers and a folder that go with it. `limit` is seconds for each check; into
    `repros`, if there is such a folder, goes the smallest part of a model that shows a fault, as a script.

    The workers, one with torch and one without, are processes unless others are given.
    """

    def __init__(
        self,
        subject: Subject,
        limit: float = 120.0,
        workers: tuple[Worker, Worker] | None = None,
        repros: Path | None = None,
    ) -> None:
        refuse_strange_failures(subject)
        self.subject = subject
        self._limit = limit
        self._repros = repros
        self._folder = tempfile.TemporaryDirectory(prefix="delegraph-testkit-")
        additions = environment_of(subject)
        self._with_torch, self._without_torch = workers or (
            WorkerProcess(_WORKER, additions=additions),
            WorkerProcess(_WORKER, "without-torch", additions=additions),
        )
        self._lowered: dict[str, str] = {}
        self._results: list[Result] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the processes and remove the folder."""
        self._with_torch.close()
        self._without_torch.close()
        self._folder.cleanup()

    def results(self, checks: Iterable[Check]) -> Iterator[Result]:
        """The result of each check, as it comes."""
        return map(self.result, checks)

    def result(self, check: Check) -> Result:
        """Run one check, after lowering its programs."""
        for program in check.programs:
            if fault := self._lower(program):
                return self._judged(check, Outcome.CRASHED if fault.startswith("crashed") else Outcome.FAILED, fault)
        alone = check.torch_free and not self.subject.claims.needs_torch
        process = self._without_torch if alone else self._with_torch
        try:
            answer = process.ask(self._request(check=asdict(check)), self._limit)
        except WorkerDied as death:
            return self._judged(check, Outcome.CRASHED, str(death))
        return self._judged(check, Outcome(answer["outcome"]), answer["detail"], answer["seconds"])

    def _lower(self, program: str) -> str:
        """Why a program cannot be lowered, asked once; "" if it is there."""
        if program not in self._lowered:
            try:
                answer = self._with_torch.ask(self._request(lower=program), self._limit)
                self._lowered[program] = answer["error"]
            except WorkerDied as death:
                self._lowered[program] = f"crashed as {program} was lowered: {death}"
        return self._lowered[program]

    def _request(self, **what: Any) -> dict[str, Any]:
        return {"subject": self.subject.to_mapping(), "folder": str(Path(self._folder.name)), **what}

    def _judged(self, check: Check, outcome: Outcome, detail: str, seconds: float = 0.0) -> Result:
        """The result, with expected failures taken into account."""
        reason = self.subject.claims.expected_failures.get(check.id, "")
        if reason and not outcome.is_fault:
            outcome, detail = Outcome.FAILED, f"it is {outcome.value}, but expected to fail ({reason}): take that back"
            reason = ""
        result = Result(check.id, check.level, outcome, detail, seconds, reason)
        if result.is_fault and self._repros is not None:
            result = replace(result, detail=f"{detail}{self._repro(check, self._repros)}")
        self._results.append(result)
        return result

    def _repro(self, check: Check, folder: Path) -> str:
        """The smallest part that shows a fault, told behind it; "" for checks that are not about what is computed."""
        if check.level < Level.PARTITIONS or self.subject.kind not in (Kind.BACKEND, Kind.PARTITIONER):
            return ""
        request = self._request(check=asdict(check), repro=str(folder.absolute()), limit=self._limit)
        try:
            told = self._with_torch.ask(request, _SEARCH * self._limit)["told"]
        except WorkerDied as death:
            told = f"none could be cut out: {death}"
        return f"\n  the smallest part that shows it: {told}" if told else ""

    def report(self) -> ConformanceReport:
        """The report on the checks run so far."""
        subject = self.subject
        provider = default_registry().find(subject.group, subject.name).provider
        return ConformanceReport(subject, provider, checks_of(subject), tuple(self._results))


def environment_of(subject: Subject) -> dict[str, str]:
    """The environment in which no tool is on but the subject: others would be proven, too."""
    tools = PluginRegistry.discover().offers("plugins")  # those that a process finds
    others = [tool.id for tool in tools if subject.kind is not Kind.TOOL or tool.name != subject.name]
    disabled = [os.environ.get(_DISABLED, ""), *others]
    return {_DISABLED: ",".join(filter(None, disabled))} if others else {}


_DISABLED: Final = "DELEGRAPH_DISABLE_PLUGINS"
