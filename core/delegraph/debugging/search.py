"""The program of a method, backends and a judge -> its faults, each in the smallest part that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torch.export import ExportedProgram

from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.graph.source_location import user_location
from delegraph.debugging.judge import Judge, named
from delegraph.debugging.result import Fault, FaultyCall
from delegraph.debugging.smallest import smallest
from delegraph.debugging.subgraph import Case, Reference
from delegraph.debugging.verdict import Verdict
from delegraph.plugins.plugin_spec import PluginSpec

__all__ = ["Search"]


class Search:
    """The search for the faults of one method. `partitions` are the backend, in a list, and the calls of each."""

    def __init__(
        self,
        method: str,
        program: ExportedProgram,
        backends: Sequence[PluginSpec],
        judge: Judge,
        started: Callable[[str], object],
    ) -> None:
        self._method, self._backends, self._judge, self._started = method, list(backends), judge, started
        started(f"{method}: partitioning")
        functional, taken, self._note = judge.prepared(program, backends)
        self._reference = Reference(functional)
        calls = self._reference.calls
        self.partitions = [
            ([self._backends[own.backend]], [name for name in calls if name in own.calls]) for own in taken
        ]

    def faults(self) -> Iterator[tuple[Fault, Case, list[PluginSpec]]]:
        """Each fault, with the smallest program that shows it and the backends that it is lowered onto."""
        right = True
        for number, (backends, calls) in enumerate(self.partitions, 1):
            of = f"partition {number} of {len(self.partitions)}, {named(backends)}, {len(calls)} calls"
            self._started(f"{self._method}: trying {of}")
            case = self._reference.part(calls)
            verdict = case and self._judge(case, backends)
            if case and verdict:
                right = False
                yield self._cut(calls, case, verdict, backends, of)
        if right:
            self._started(f"{self._method}: trying the whole")
            case = self._reference.whole()
            verdict = self._judge(case, self._backends)
            if verdict:
                yield self._cut(self._reference.calls, case, verdict, self._backends, "the whole")

    def _cut(
        self, calls: list[str], whole: Case, verdict: Verdict, backends: list[PluginSpec], of: str
    ) -> tuple[Fault, Case, list[PluginSpec]]:
        """The fault of `whole`, which `calls` are, in the smallest part of it that has the same."""
        verdicts = {(tuple(calls), whole.outputs): verdict}

        def fails(names: Sequence[str], outputs: Sequence[str] = ()) -> bool:
            case = self._reference.part(names, outputs)
            if case is None:
                return False
            key = (tuple(names), case.outputs)
            if key not in verdicts:
                self._started(f"{self._method}: cutting {of}, trial {len(verdicts) + 1}: {len(names)} calls")
                verdicts[key] = self._judge(case, backends)
            return verdicts[key].is_like(verdict)

        if not fails(calls):  # state that is kept, say
            return self._fault(verdict, (), len(calls), backends), whole, backends
        least = smallest(calls, fails)
        case = self._reference.part(least)
        assert case is not None
        outputs = smallest(case.outputs, lambda names: fails(least, names))
        case = self._reference.part(least, outputs)
        assert case is not None
        final = verdicts[tuple(least), case.outputs]
        return self._fault(final, least, len(calls), backends), case, backends

    def _fault(self, verdict: Verdict, calls: Sequence[str], total: int, backends: Sequence[PluginSpec]) -> Fault:
        nodes = [self._reference.node(name) for name in calls]
        told = tuple(FaultyCall(node.name, operator_name(node), user_location(node) or "") for node in nodes)
        note = f"The backends could not be asked what they take: {self._note}" if self._note else ""
        return Fault(self._method, named(backends), verdict, told, total, note=note)
