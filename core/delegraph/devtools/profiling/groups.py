"""The times of nodes -> those of modules, lines and delegates: run by run, so that these have percentiles too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from delegraph.devtools.profiling.times import DelegateTime, GroupTime, NodeTime, RunTimes
from delegraph.devtools.program_model.rows import DelegateRow

__all__ = ["delegate_times", "line_times", "module_times", "modules_around", "together"]


def together(rows: Sequence[NodeTime]) -> RunTimes:
    """The times of several nodes as those of one step."""
    keys = dict.fromkeys(key for row in rows for key in row.counters)
    return RunTimes(
        seconds=tuple(map(sum, zip(*(row.seconds for row in rows), strict=True))),
        share=sum(row.share for row in rows),
        counters={key: sum(row.counters.get(key, 0.0) for row in rows) for key in keys},
    )


def line_times(rows: Iterable[NodeTime]) -> list[GroupTime]:
    """The times of the lines of the model's code, the slowest first."""
    by_line: dict[str, list[NodeTime]] = {}
    for row in rows:
        by_line.setdefault(row.line, []).append(row)
    lines = [_group(name, own, own) for name, own in by_line.items()]
    return sorted(lines, key=lambda line: -line.share)


def _group(name: str, rows: Sequence[NodeTime], own: Sequence[NodeTime]) -> GroupTime:
    whole = together(rows)
    own_median = together(own).median if own else 0.0
    return GroupTime(name=name, seconds=whole.seconds, share=whole.share, counters=whole.counters, own=own_median)


# ---- modules ---------------------------------------------------------------------------------------


def modules_around(module: str) -> list[str]:
    """`["", "blocks", "blocks.0"]` for `blocks.0`: the model, and the modules down to it."""
    parts = module.split(".") if module else []
    return [".".join(parts[:depth]) for depth in range(len(parts) + 1)]


@dataclass(slots=True)
class _Module:
    """A module: the steps that are its own and in no module in it, all steps, and the modules in it by path."""

    name: str
    own: list[NodeTime] = field(default_factory=list)
    rows: list[NodeTime] = field(default_factory=list)
    inside: dict[str, _Module] = field(default_factory=dict)


def module_times(rows: Iterable[NodeTime]) -> list[GroupTime]:
    """The times of the modules, each before those in it, of which the slowest is the first."""
    model = _Module("")
    for row in rows:
        module = model
        module.rows.append(row)
        for path in modules_around(row.module)[1:]:
            module = module.inside.setdefault(path, _Module(path))
            module.rows.append(row)
        module.own.append(row)
    return list(_flat(model)) if model.rows else []


def _flat(module: _Module) -> Iterator[GroupTime]:
    yield _group(module.name, module.rows, module.own)
    for inner in sorted(module.inside.values(), key=lambda inner: -sum(row.share for row in inner.rows)):
        yield from _flat(inner)


# ---- delegates -------------------------------------------------------------------------------------


def delegate_times(
    rows: Iterable[NodeTime], delegates: Iterable[DelegateRow], called: Mapping[int, int]
) -> list[DelegateTime]:
    """The times of those of `delegates` that ran; `called` has the delegate of an instruction that calls one."""
    by_index: dict[int, list[NodeTime]] = {}
    for row in rows:
        if row.instruction in called:
            by_index.setdefault(called[row.instruction], []).append(row)
    return [_delegate(row, by_index[row.index]) for row in delegates if row.index in by_index]


def _delegate(row: DelegateRow, nodes: Sequence[NodeTime]) -> DelegateTime:
    whole, reported = together(nodes), [node.reported for node in nodes if node.reported is not None]
    return DelegateTime(
        seconds=whole.seconds,
        share=whole.share,
        counters=whole.counters,
        index=row.index,
        backend=row.backend,
        device=row.described.device if row.described else "",
        nodes=len(reported),
        reported=sum(reported) if reported else None,
    )
