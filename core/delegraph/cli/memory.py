"""`delegraph inspect m.pte --memory`: tensors in planned memory, as tables, as JSON, and drawn."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delegraph.program.memory.memory_maps import MemoryMap
    from delegraph.program.schema import Program

__all__ = ["show_memory"]


def show_memory(program: Program, as_json: bool, output: str | None) -> None:
    """Print where the tensors of all methods lie; draw it into the file `output`, if one is named."""
    from delegraph.program.memory.memory_drawing import draw_memory
    from delegraph.program.memory.memory_tables import memory_tables
    from delegraph.tables import print_table

    maps = _maps(program)
    if output is not None:
        with open(output, "w", encoding="utf-8") as file:
            file.write(draw_memory(maps))
    if as_json:
        print(json.dumps({"methods": [method_map.to_json() for method_map in maps]}, indent=2))
        return
    for table in memory_tables(maps):
        print_table(table)
    if output is not None:
        print(f"drawn: {output}")


def _maps(program: Program) -> list[MemoryMap]:
    from delegraph.program.alternatives import methods_of
    from delegraph.program.contract import MethodContract, contracts_of
    from delegraph.program.debug_data import debug_data_of
    from delegraph.program.memory.memory_maps import memory_map
    from delegraph.runtime.calls.arguments import Arguments

    contracts, debug_data = contracts_of(program), debug_data_of(program)
    maps = []
    for plan in methods_of(program):
        parameters = contracts.get(plan.name, MethodContract()).parameters
        inputs = Arguments(plan.container_meta_type.encoded_inp_str, len(plan.inputs), parameters).names
        maps.append(memory_map(plan, inputs, debug_data.get(plan.name)))
    return maps
