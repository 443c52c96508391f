"""A `Profile` -> tables and remarks for people, in terminals of 80 columns and in notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from delegraph.devtools.profiling.groups import together
from delegraph.devtools.profiling.measuring import PRECISION, precision
from delegraph.devtools.profiling.percentiles import percentile
from delegraph.devtools.profiling.times import DelegateTime, GroupTime, NodeTime, RunTimes
from delegraph.devtools.program_model.tables import short_operator
from delegraph.tables import Table, milliseconds

if TYPE_CHECKING:
    from delegraph.devtools.profiling.profile import Profile

__all__ = ["profile_tables", "remarks", "shown_counters"]

SHOWN: Final = 15
"""Rows of each table; JSON has all of them."""

MOST_COUNTERS: Final = 4
"""Columns of counters, which a terminal has room for; JSON has all of them."""

WEIGHS: Final = 0.2
"""The share of what nodes take beyond a run without tracing, from which on people are told of it."""

_TIMES: Final = ("p50 ms", "p90", "p99", "share")
_RIGHT: Final = frozenset(_TIMES)


def remarks(profile: Profile) -> list[str]:
    """The time of a run, how well it is known, what tracing costs, and what nobody told."""
    seconds, untraced = percentile(profile.seconds, 50), percentile(profile.untraced, 50)
    told = f"{profile.method}: {milliseconds(seconds)} in the median of {len(profile.seconds)} traced runs"
    noise = profile.precision + precision(profile.untraced)
    costs = f"it costs {profile.cost:.1%}" if profile.cost > noise else "it costs less than what runs differ by"
    lines = [f"{told}, to within {profile.precision:.1%}", f"without tracing {milliseconds(untraced)}: {costs}"]
    steps = percentile(together(profile.nodes).seconds, 50)
    if steps > untraced * (1 + max(noise, WEIGHS)):
        lines.append(f"nodes add up to {milliseconds(steps)}: with tracing, small ones look larger than they are")
    if profile.precision > PRECISION:
        lines.append("not stable: run it longer, or on a machine that does nothing else")
    for backend in dict.fromkeys(row.backend for row in profile.delegates if not row.nodes):
        lines.append(f"{backend} does not give times by node: each delegate of it is one step here")
    if not any(row.line for row in profile.nodes):
        lines.append("the file does not tell modules and lines: it was lowered without debug data, or elsewhere")
    return lines


def profile_tables(profile: Profile) -> Iterator[Table]:
    """By module, by line, by node, and delegates: the slowest of each; and what devices count."""
    yield _module_table(profile.modules)
    yield _line_table(profile.lines)
    yield _node_table(profile.nodes)
    yield _delegate_table(profile.delegates)
    yield _counter_table([row for row in profile.nodes if row.counters][:SHOWN])


def shown_counters(rows: Sequence[RunTimes]) -> list[str]:
    """The names of the counters of `rows`, cycles and energy before the others."""
    names = dict.fromkeys(key for row in rows for key in row.counters)
    return sorted(names, key=lambda name: (name != "cycles", not name.startswith("energy")))


def _cells(row: RunTimes, counters: Sequence[str] = ()) -> tuple[str, ...]:
    times = (f"{seconds * 1e3:,.3f}" for seconds in (row.median, row.p90, row.p99))
    return (*times, f"{row.share:.1%}", *_counted(row, counters))


def _counted(row: RunTimes, counters: Sequence[str]) -> Iterator[str]:
    return (_short(row.counters[name]) if name in row.counters else "" for name in counters)


def _short(number: float) -> str:
    """`3.10M` for 3,103,600: three digits."""
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= unit:
            value = number / unit
            return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f}{letter}"
    return f"{number:,.0f}"


def _cycles_and_energy(rows: Sequence[RunTimes]) -> list[str]:
    return [name for name in shown_counters(rows) if name == "cycles" or name.startswith("energy")]


def _module_table(modules: Sequence[GroupTime]) -> Table:
    """The modules with the most time, in the order of the tree: a module has no less than one in it."""
    largest = sorted(modules, key=lambda row: -row.share)[:SHOWN]
    counters = _cycles_and_energy(modules)
    rows = [(_branch(row.name), *_cells(row, counters)) for row in modules if row in largest]
    if len(modules) < 2:
        rows = []  # the model alone
    columns = ("module", *_TIMES, *counters)
    return Table(f"by module{_of(rows, modules)}", columns, rows, _RIGHT | set(counters))


def _branch(path: str) -> str:
    depth, _, last = path.count(".") + 1 if path else 0, *path.rpartition(".")[1:]
    return "  " * depth + (last or "the model")


def _line_table(lines: Sequence[GroupTime]) -> Table:
    counters = _cycles_and_energy(lines)
    rows = [(_place(row.name) or "not known", *_cells(row, counters)) for row in lines[:SHOWN]]
    if not any(row.name for row in lines):
        rows = []
    return Table(f"by line{_of(rows, lines)}", ("line", *_TIMES, *counters), rows, _RIGHT | set(counters))


def _node_table(nodes: Sequence[NodeTime]) -> Table:
    places = ("module", "line") if any(row.line for row in nodes) else ()
    rows = [
        (
            short_operator(row.operator),
            *((row.module, _place(row.line).rpartition("/")[2]) if places else ()),
            "" if row.delegate is None else f"d{row.delegate}",
            *_cells(row),
        )
        for row in nodes[:SHOWN]
    ]
    return Table(f"by node{_of(rows, nodes)}", ("operator", *places, "in", *_TIMES), rows, _RIGHT)


def _delegate_table(delegates: Sequence[DelegateTime]) -> Table:
    rows = [
        (f"d{row.index}", f"{row.backend} {row.device}".rstrip(), *_cells(row), _told(row)) for row in delegates[:SHOWN]
    ]
    columns = ("", "delegate", *_TIMES, "inside")
    return Table(f"delegates{_of(rows, delegates)}", columns, rows, _RIGHT)


def _told(row: DelegateTime) -> str:
    if row.reported is None:
        return "one node: it reports none"
    return f"{row.nodes} nodes, {milliseconds(row.reported)} by its clock"


def _counter_table(rows: Sequence[NodeTime]) -> Table:
    """The counters of the slowest nodes that have some."""
    keys = shown_counters(rows)[:MOST_COUNTERS]
    told = [(short_operator(row.operator), row.module, *_counted(row, keys)) for row in rows]
    return Table("counters of the device", ("operator", "module", *keys), told, frozenset(keys))


def _of(shown: Sequence[object], known: Sequence[object]) -> str:
    return "" if len(shown) == len(known) else f", the slowest {len(shown)} of {len(known)}"


def _place(line: str) -> str:
    """`net.py:12` of `net.py:12, in forward`."""
    return line.partition(",")[0]
