"""`delegraph inspect m.pte --memory`: tensors in planned memory, as tables, as JSON, and drawn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delegraph.devtools.memory_map import MemoryMap
    from delegraph.program.schema import Program
    from delegraph.tables import Table

__all__ = ["show_memory"]


def show_memory(program: Program, as_json: bool, output: str | None) -> None:
    """Print where the tensors of all methods lie; draw it into the file `output`, if one is named."""
    from delegraph.devtools.memory_drawing import draw_memory
    from delegraph.devtools.memory_map import memory_map
    from delegraph.program.contract import contracts_of
    from delegraph.tables import print_table

    contracts = contracts_of(program)
    maps = [memory_map(plan, contracts.get(plan.name)) for plan in program.execution_plan]
    if output is not None:
        with open(output, "w", encoding="utf-8") as file:
            file.write(draw_memory(maps))
    if as_json:
        print(json.dumps({"methods": [one.to_json() for one in maps]}, indent=2))
        return
    for table in _tables(maps):
        print_table(table)
    if output is not None:
        print(f"drawn: {output}")


def _tables(maps: list[MemoryMap]) -> Iterator[Table]:
    from delegraph.tables import Table, count

    numbers = frozenset({"memory", "planned bytes", "alive at most", "offset", "bytes", "value"})
    rows = [
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
    yield Table("planned memory", columns, rows, numbers)
    for one in maps:
        tensors = [
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
        about = ("value", "name", "written by", "memory", "offset", "bytes", "steps", "alive at the")
        yield Table(f"{one.method}: tensors by memory and birth", about, tensors, numbers)


def _at(step: int, one: MemoryMap) -> str:
    return "start" if step < 0 else "end" if step >= one.instructions else str(step)
