"""The events of traced runs -> where the time went: by what was called, by node, module and line, through delegates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median, quantiles
from typing import Any, Final, TypeAlias

from delegraph.devtools.program_model.rows import NodeRow, ProgramModel
from delegraph.devtools.program_model.tables import short_operator
from delegraph.errors import InvalidArgument, PluginError
from delegraph.interfaces.backend import BackendInterface
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.debug_data import StepId
from delegraph.runtime.execution.tracing import ProfileEvent
from delegraph.tables import Table, milliseconds

__all__ = [
    "NodeTime",
    "ProfileRow",
    "TimeShare",
    "event_counters",
    "node_times",
    "profile_rows",
    "profile_tables",
    "profiling_options",
    "shares_by",
]


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """All calls of one name: how many, their time together in seconds, and that as a share of all instructions'."""

    name: str
    calls: int
    seconds: float
    share: float


def profile_rows(events: Iterable[ProfileEvent]) -> list[ProfileRow]:
    """The instructions among `events` by name, the slowest first."""
    spans: dict[str, list[int]] = {}
    for event in events:
        if event.instruction >= 0 and event.delegate_debug_id is None:
            spans.setdefault(event.name, []).append(event.duration)
    total = sum(map(sum, spans.values())) or 1
    rows = [ProfileRow(name, len(own), sum(own) / 1e9, sum(own) / total) for name, own in spans.items()]
    return sorted(rows, key=lambda row: -row.seconds)


# ---- by node ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeTime:
    """A step of a method, and its time in a run, in seconds of the host's clock: the median of the runs, the mean, and
    the time that nine tenths of them took at most. `share` is that of all steps, by medians.

    The call of a delegate is divided among its nodes as its backend reports them, whatever clock that has: a device's
    own, or a simulation's. `reported` is the mean of those times in seconds; None for what the host itself timed, which
    is a kernel or a delegate that reports nothing. `counters` are what it counts besides, the mean of the runs: numbers
    in the JSON object that an event has for metadata, such as cycles and energy. `node` is None where the file does not
    tell what was run.
    """

    name: str
    node: NodeRow | None
    median: float
    mean: float
    p90: float
    share: float
    reported: float | None = None
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """The module that it belongs to, "" if that is not known."""
        return "" if self.node is None else self.node.origin.module

    @property
    def line(self) -> str:
        """The line of the model's code that it comes from; of several the first."""
        return "" if self.node is None or not self.node.origin.lines else self.node.origin.lines[0]


@dataclass(frozen=True, slots=True)
class TimeShare:
    """The time of all steps of one module, or of one line, in a run: seconds, and their share of all."""

    name: str
    seconds: float
    share: float


Step: TypeAlias = "tuple[int, StepId | None]"
"""An instruction, and the delegate's own id of a step in it."""


def node_times(runs: Sequence[Iterable[ProfileEvent]], model: ProgramModel, method: str) -> list[NodeTime]:
    """The steps of `method` in these traced runs of it, the slowest first."""
    spent: dict[Step, list[_Spent]] = {}
    for events in runs:
        for step, of_run in _of_run(events).items():
            spent.setdefault(step, []).append(of_run)
    rows = [_node_time(model.node_of(method, *step), own) for step, own in spent.items()]
    total = sum(row.median for row in rows) or 1.0
    return sorted((replace(row, share=row.median / total) for row in rows), key=lambda row: -row.median)


def _node_time(node: NodeRow | None, spent: Sequence[_Spent]) -> NodeTime:
    seconds = [own.seconds for own in spent]
    tenths = quantiles(seconds, n=10, method="inclusive") if len(seconds) > 1 else seconds * 9
    reported = [own.reported for own in spent if own.reported is not None]
    inside = fmean(reported) if reported else None
    keys = dict.fromkeys(key for own in spent for key in own.counters)
    counters = {key: fmean(own.counters.get(key, 0.0) for own in spent) for key in keys}
    return NodeTime(spent[0].name, node, median(seconds), fmean(seconds), tenths[8], 0.0, inside, counters)


@dataclass(frozen=True, slots=True)
class _Spent:
    """The time of a step in one run: its own, and as its backend reports it."""

    name: str
    seconds: float
    reported: float | None = None
    counters: Mapping[str, float] = field(default_factory=dict)


def _of_run(events: Iterable[ProfileEvent]) -> dict[Step, _Spent]:
    """The time of each step of one run; the call of a delegate is divided among its steps."""
    calls: dict[int, _Spent] = {}
    inside: dict[int, dict[StepId, _Spent]] = {}
    for event in events:
        if event.instruction < 0:
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
    return {name: value for name, value in numbers if isinstance(value, int | float)}


def shares_by(rows: Iterable[NodeTime], key: Callable[[NodeTime], str]) -> list[TimeShare]:
    """The times of `rows` together by `key`, a module or a line, the slowest first."""
    seconds: dict[str, float] = {}
    for row in rows:
        seconds[key(row)] = seconds.get(key(row), 0.0) + row.median
    total = sum(seconds.values()) or 1.0
    shares = [TimeShare(name, own, own / total) for name, own in seconds.items()]
    return sorted(shares, key=lambda share: -share.seconds)


def profile_tables(rows: Sequence[NodeTime]) -> Iterator[Table]:
    """Where the time went by node, by module and by line: the slowest of each."""
    if not any(row.line for row in rows):
        return  # the file does not tell more than the instructions' own table
    numbers = frozenset(("time", "p90", "share"))
    nodes = [
        (
            _operator(row),
            row.module,
            row.line.partition(",")[0],
            milliseconds(row.median),
            milliseconds(row.p90),
            f"{row.share:.1%}",
        )
        for row in rows[:SHOWN]
    ]
    yield Table(
        f"by node, median of the runs{_of(nodes, rows)}",
        ("operator", "module", "line", "time", "p90", "share"),
        nodes,
        numbers,
    )
    for title, key in (("module", lambda row: row.module), ("line", lambda row: row.line)):
        shares = shares_by(rows, key)
        told = [(share.name, milliseconds(share.seconds), f"{share.share:.1%}") for share in shares[:SHOWN]]
        yield Table(f"by {title}{_of(told, shares)}", (title, "time", "share"), told, numbers)

    yield _counter_table([row for row in rows if row.counters][:SHOWN])


def _counter_table(rows: Sequence[NodeTime]) -> Table:
    """The counters of the slowest nodes that have some."""
    keys = list(dict.fromkeys(key for row in rows for key in row.counters))[:MOST_COUNTERS]
    told = [(_operator(row), row.module, *(f"{row.counters.get(key, 0):,.0f}" for key in keys)) for row in rows]
    return Table("counters of the device", ("operator", "module", *keys), told, frozenset(keys))


MOST_COUNTERS: Final = 4
"""Columns of the table, which fits a terminal; JSON has all counters."""

SHOWN: Final = 15
"""Rows of each table; JSON has all nodes."""


def _of(shown: Sequence[object], known: Sequence[object]) -> str:
    return "" if len(shown) == len(known) else f", the slowest {len(shown)} of {len(known)}"


def _operator(row: NodeTime) -> str:
    return short_operator(row.name if row.node is None else row.node.operator)


def profiling_options(backend_ids: Iterable[str], plugins: PluginRegistry) -> Mapping[str, Mapping[str, Any]]:
    """The load-time options with which these backends report the times of their nodes: `profiling`, where they have
    such an option."""
    options = {}
    for backend_id in dict.fromkeys(backend_ids):
        try:
            backend: BackendInterface = plugins.load("delegraph.backends", backend_id)
            backend.get_option([_PROFILING])
        except (InvalidArgument, PluginError):
            continue  # it reports always, or never; or loading it will say why it cannot
        options[backend_id] = {_PROFILING: True}
    return options


_PROFILING = "profiling"
