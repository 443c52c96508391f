"""Events of a method -> Chrome's trace events, which ui.perfetto.dev and chrome://tracing open.

    host          load ── execute ── instructions            by the host's clock
    delegate 0    its nodes, from the start of its call on   by the clock that its backend reports
    counters      cycles, energy, …: what the delegate's nodes have counted so far in the run

The format is "Trace Event Format", Chrome's JSON: spans are "X", counters "C", names of tracks "M"; times are in
microseconds from the first event on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delegraph.devtools.profiling.node_times import event_counters
from delegraph.devtools.program_model.rows import MethodModel, NodeRow, ProgramModel
from delegraph.devtools.program_model.tables import short_operator
from delegraph.runtime.execution.tracing import WAIT, EventBlock, ProfileEvent

__all__ = ["trace_events"]

_PROCESS: Final = {"pid": 1}
_HOST: Final = "host"


def trace_events(blocks: Sequence[EventBlock], model: MethodModel) -> dict[str, Any]:
    """`{"traceEvents": […]}` of loads and runs of the method `model`. Spans of one engine that overlap without lying in
    each other, as where it loads ahead, are on several tracks of its name."""
    events = [event for block in blocks for event in block.profile_events]
    telling = _Telling(ProgramModel((model,)), model, min((event.start for event in events), default=0))
    tracks: dict[str, list[ProfileEvent]] = {_HOST: []}
    for event in events:
        tracks.setdefault(telling.track(event), []).append(event)
    lanes = [(name, lane) for name, own in tracks.items() for lane in _lanes(own)]
    told = [_name("process_name", 0, f"delegraph, method {model.name}")]
    for number, (name, lane) in enumerate(lanes, 1):
        told += [_name("thread_name", number, name), _sorted_as(number)]
        told += [telling.span(event, number) for event in lane]
    return {
        "displayTimeUnit": "ms",
        "traceEvents": [*told, *(row for block in blocks for row in telling.counted(block))],
    }


def _lanes(events: Iterable[ProfileEvent]) -> list[list[ProfileEvent]]:
    """The events such that those of a lane lie in each other or behind each other, as viewers want them."""
    lanes: list[tuple[list[ProfileEvent], list[int]]] = []
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        lane = next((lane for lane in lanes if _fits(lane[1], event)), ([], []))
        if not lane[0]:
            lanes.append(lane)
        lane[0].append(event)
        lane[1].append(event.end)
    return [lane for lane, _ in lanes]


def _fits(ends: list[int], event: ProfileEvent) -> bool:
    """Whether it lies behind or in the spans that begin before it; `ends` are the ends of those that are still open."""
    while ends and ends[-1] <= event.start:
        ends.pop()
    return not ends or event.end <= ends[-1]


def _name(kind: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, **_PROCESS, "tid": track, "args": {"name": name}}


def _sorted_as(track: int) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_sort_index", **_PROCESS, "tid": track, "args": {"sort_index": track}}


@dataclass(frozen=True, slots=True)
class _Telling:
    """Tells events of the method `model`, the only one of `program`, with times from `start` on."""

    program: ProgramModel
    model: MethodModel
    start: int

    def track(self, event: ProfileEvent) -> str:
        """The host, or the engine of the delegate that the event is inside of."""
        if event.delegate_debug_id in (None, WAIT):
            return _HOST
        call = self.program.node_of(self.model.name, event.instruction)
        return f"instruction {event.instruction}" if call is None else f"delegate {call.delegate} {call.operator}"

    def span(self, event: ProfileEvent, track: int) -> dict[str, Any]:
        """A span, named after the operator and its module."""
        node = None
        if event.instruction >= 0 and event.delegate_debug_id != WAIT:
            node = self.program.node_of(self.model.name, event.instruction, event.delegate_debug_id)
        name = event.name
        if node is not None and (node.delegate is None or event.delegate_debug_id is not None):
            name = f"{short_operator(node.operator)} {node.origin.module}".rstrip()
        times = {"ts": self._microseconds(event.start), "dur": event.duration / 1e3}
        return {"ph": "X", "name": name, **_PROCESS, "tid": track, **times, "args": _arguments(event, node)}

    def counted(self, block: EventBlock) -> Iterator[dict[str, Any]]:
        """The sums of the counters of a run, by delegate: 0 where it begins, and then at the end of each node."""
        sums: dict[str, float] = {}
        for event in sorted(block.profile_events, key=lambda event: event.end):
            for name, number in event_counters(event.metadata).items() if event.delegate_debug_id is not None else ():
                counter = f"{self.track(event)} {name}"
                if counter not in sums:
                    sums[counter] = 0.0
                    yield self._counter(counter, event.start, 0.0)
                sums[counter] += number
                yield self._counter(counter, event.end, sums[counter])

    def _counter(self, name: str, at: int, value: float) -> dict[str, Any]:
        return {"ph": "C", "name": name, **_PROCESS, "ts": self._microseconds(at), "args": {"value": value}}

    def _microseconds(self, nanoseconds: int) -> float:
        return (nanoseconds - self.start) / 1e3


def _arguments(event: ProfileEvent, node: NodeRow | None) -> dict[str, Any]:
    """The details of a span, which a viewer shows when it is selected."""
    told: dict[str, Any] = {"instruction": event.instruction} if event.instruction >= 0 else {}
    if node is not None:
        origin = node.origin
        texts = {"module": origin.module, "lines": ", ".join(origin.lines), "operators": ", ".join(origin.computing)}
        told |= {**texts, "weights": ", ".join(dict.fromkeys(node.reads)), "node": node.name}
    return {name: value for name, value in told.items() if value != ""} | event_counters(event.metadata)
