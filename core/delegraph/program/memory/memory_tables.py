"""MemoryMaps -> tables: how full each memory is, and which tensor lies where from when to when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from delegraph.program.memory.memory_maps import MemoryMap
from delegraph.tables import Table, count

__all__ = ["memory_tables"]

_NUMBERS = frozenset({"memory", "planned bytes", "alive at most", "offset", "bytes", "value"})


def memory_tables(maps: Sequence[MemoryMap]) -> Iterator[Table]:
    """A table of all memories, and for each method a table of its tensors."""
    memories = [
        (
            method_map.method,
            str(memory.memory_id),
            memory.device,
            count(memory.planned_nbytes),
            count(memory.lower_bound),
            _at(memory.peak, method_map),
        )
        for method_map in maps
        for memory in method_map.memories
        if memory.planned_nbytes
    ]
    columns = ("method", "memory", "device", "planned bytes", "alive at most", "at step")
    yield Table("planned memory", columns, memories, _NUMBERS)
    for method_map in maps:
        yield _tensors(method_map)


def _tensors(method_map: MemoryMap) -> Table:
    rows = [
        (
            str(tensor.value),
            tensor.name or tensor.source,
            tensor.op,
            str(tensor.memory_id),
            count(tensor.offset),
            count(tensor.nbytes),
            f"{_at(tensor.first, method_map)} .. {_at(tensor.last, method_map)}",
            "peak" if tensor.at_peak else "",
        )
        for tensor in method_map.tensors
    ]
    columns = ("value", "name", "written by", "memory", "offset", "bytes", "steps", "alive at the")
    return Table(f"{method_map.method}: tensors by memory and birth", columns, rows, _NUMBERS)


def _at(step: int, method_map: MemoryMap) -> str:
    return "start" if step < 0 else "end" if step >= method_map.instructions else str(step)
