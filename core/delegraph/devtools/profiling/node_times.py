"""Events of traced runs, and the program's model -> the times of each step, through delegates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from statistics import fmean
from typing import TypeAlias

from delegraph.devtools.profiling.times import NodeTime
from delegraph.devtools.program_model.rows import NodeRow, Origin, ProgramModel
from delegraph.program.debug_data import StepId
from delegraph.runtime.execution.tracing import WAIT, ProfileEvent

__all__ = ["event_counters", "node_times"]

Step: TypeAlias = "tuple[int, StepId | None]"
"""An instruction, and the delegate's own id of a step in it."""


def node_times(runs: Sequence[Iterable[ProfileEvent]], model: ProgramModel, method: str) -> list[NodeTime]:
    """The steps of `method` in these traced runs of it, the slowest first."""
    spent = [_of_run(events) for events in runs]
    named = {step: own.name for run in spent for step, own in run.items()}
    rows = [
        _node_time(step, _row(model, method, step, name), [run.get(step) for run in spent])
        for step, name in named.items()
    ]
    total = sum(row.median for row in rows) or 1.0
    return sorted((replace(row, share=row.median / total) for row in rows), key=lambda row: -row.median)


def _row(model: ProgramModel, method: str, step: Step, name: str) -> NodeRow | None:
    """The row of a step; of one that its engine added, and whose origin nobody knows, a row of its delegate's."""
    known, (instruction, debug_id) = model.node_of(method, *step), step
    call = model.node_of(method, instruction) if known is None else None
    if call is None or call.delegate is None:
        return known
    return replace(call, name=str(debug_id), operator=name, debug_id=debug_id, handles=(), origin=Origin())


def _node_time(step: Step, node: NodeRow | None, runs: Sequence[_Spent | None]) -> NodeTime:
    ran = [run for run in runs if run is not None]
    reported = [run.reported for run in ran if run.reported is not None]
    keys = dict.fromkeys(key for run in ran for key in run.counters)
    return NodeTime(
        seconds=tuple(0.0 if run is None else run.seconds for run in runs),
        counters={key: fmean(run.counters.get(key, 0.0) for run in ran) for key in keys},
        name=ran[0].name,
        node=node,
        instruction=step[0],
        reported=fmean(reported) if reported else None,
    )


@dataclass(frozen=True, slots=True)
class _Spent:
    """The time of a step in one run: its own, and as its backend reports it."""

    name: str
    seconds: float
    reported: float | None = None
    counters: Mapping[str, float] = field(default_factory=dict)


def _of_run(events: Iterable[ProfileEvent]) -> dict[Step, _Spent]:
    """The time of each step of one run; the call of a delegate is divided among its steps. That the host waits for a
    delegate is no step of it."""
    calls: dict[int, _Spent] = {}
    inside: dict[int, dict[StepId, _Spent]] = {}
    for event in events:
        if event.instruction < 0 or event.delegate_debug_id == WAIT:
            continue
        if event.delegate_debug_id is None:
            calls[event.instruction] = _with(calls.get(event.instruction), event)
        else:
            own = inside.setdefault(event.instruction, {})
            own[event.delegate_debug_id] = _with(own.get(event.delegate_debug_id), event)
    steps: dict[Step, _Spent] = {}
    for instruction, call in calls.items():
        parts = inside.get(instruction, {})
        whole = sum(part.seconds for part in parts.values())
        if not whole:
            steps[instruction, None] = call
        for step, part in parts.items() if whole else ():
            own_share = call.seconds * part.seconds / whole
            steps[instruction, step] = _Spent(part.name, own_share, part.seconds, part.counters)
    return steps


def _with(known: _Spent | None, event: ProfileEvent) -> _Spent:
    counters = event_counters(event.metadata)
    if known is None:
        return _Spent(event.name, event.duration / 1e9, counters=counters)
    keys = dict.fromkeys((*known.counters, *counters))
    summed = {key: known.counters.get(key, 0.0) + counters.get(key, 0.0) for key in keys}
    return _Spent(event.name, known.seconds + event.duration / 1e9, counters=summed)


def event_counters(metadata: str | bytes | None) -> dict[str, float]:
    """The numbers by name in the JSON object that an event has for metadata; none in whatever else backends add."""
    try:
        told: object = json.loads(metadata or b"{}")
    except (ValueError, RecursionError):
        return {}
    numbers = told.items() if isinstance(told, dict) else ()
    return {name: value for name, value in numbers if isinstance(value, int | float) and isfinite(value)}
