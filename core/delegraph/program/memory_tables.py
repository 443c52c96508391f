"""MemoryMaps -> tables: how full each memory is, and which tensor lies where from when to when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from delegraph.program.memory_maps import MemoryMap
from delegraph.tables import Table, count

__all__ = ["memory_tables"]

_NUMBERS = frozenset({"memory", "planned bytes", "alive at most", "offset", "bytes", "value"})


def memory_tables(maps: Sequence[MemoryMap]) -> Iterator[Table]:
    """One of all memories, and for each method one of its tensors."""
    memories = [
        (
            one.method,
            str(memory.memory_id),
            memory.device,
            count(memory.planned_nbytes),
            count(memory.lower_bound),
            _at(memory.peak, one),
        )
        for one in maps
        for memory in one.memories
        if memory.planned_nbytes
    ]
    columns = ("method", "memory", "device", "planned bytes", "alive at most", "at step")
    yield Table("planned memory", columns, memories, _NUMBERS)
    for one in maps:
        yield _tensors(one)


def _tensors(one: MemoryMap) -> Table:
    rows = [
        (
            str(tensor.value),
            tensor.name,
            tensor.op,
            str(tensor.memory_id),
            count(tensor.offset),
            count(tensor.nbytes),
            f"{_at(tensor.first, one)} .. {_at(tensor.last, one)}",
            "peak" if tensor.at_peak else "",
        )
        for tensor in one.tensors
    ]
    columns = ("value", "name", "written by", "memory", "offset", "bytes", "steps", "alive at the")
    return Table(f"{one.method}: tensors by memory and birth", columns, rows, _NUMBERS)


def _at(step: int, one: MemoryMap) -> str:
    return "start" if step < 0 else "end" if step >= one.instructions else str(step)
