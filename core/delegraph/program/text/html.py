"""Program -> the HTML that notebooks show: its methods' inputs, outputs and calls, and its memory, drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from delegraph.notebook import folded, paragraph, table
from delegraph.program.alternatives import methods_of
from delegraph.program.contract import Dims, MethodContract, contracts_of
from delegraph.program.dtypes import dtype_info, nbytes
from delegraph.program.memory.memory_drawing import draw_memory
from delegraph.program.memory.memory_maps import MemoryMap, called, memory_map
from delegraph.program.memory.memory_tables import memory_tables
from delegraph.program.schema import DelegateCall, ExecutionPlan, Program, Tensor, TensorShapeDynamism, Value
from delegraph.program.walk import instructions
from delegraph.tables import Table, count

__all__ = ["memory_html", "method_html", "program_html"]

DRAWN: Final = 2000
"""Tensors in a drawing, at most: some 400 kB of a page. `delegraph inspect --memory -o plan.svg` draws any number."""


def program_html(program: Program) -> str:
    """All of a program's methods."""
    contracts = contracts_of(program)
    methods = (method_html(plan, contracts.get(plan.name)) for plan in methods_of(program))
    return paragraph(repr(program)) + "".join(methods)


def method_html(plan: ExecutionPlan, contract: MethodContract | None = None) -> str:
    """A method: its inputs and outputs, its calls, and the places of its tensors."""
    known = contract or MethodContract()
    values = [*_values("input", plan, known), *_values("output", plan, known)]
    columns = ("", "name", "dtype", "shape", "bytes")
    return (
        table(Table(f"method {plan.name}", columns, values, frozenset({"bytes"})))
        + table(_calls(plan))
        + folded("planned memory", memory_html([memory_map(plan, known.parameters)]))
    )


def memory_html(maps: Sequence[MemoryMap]) -> str:
    """Planned memories: drawn unless there are too many tensors, and as tables behind the drawing."""
    if not any(method_map.tensors for method_map in maps):
        return ""
    tensors = sum(len(method_map.tensors) for method_map in maps)
    drawing = draw_memory(maps) if tensors <= DRAWN else paragraph(f"{tensors:,} tensors are too many to be drawn here")
    memories, *rest = memory_tables(maps)
    return table(memories) + drawing + folded("tensors", *map(table, rest if tensors <= DRAWN else ()))


def _values(role: str, plan: ExecutionPlan, contract: MethodContract) -> Iterator[tuple[str, ...]]:
    """A row for each input or output. Names are known of inputs that are not nested."""
    indices, dims = (plan.inputs, contract.inputs) if role == "input" else (plan.outputs, contract.outputs)
    names = contract.parameters if role == "input" and len(contract.parameters) == len(indices) else ()
    for position, (index, name, allowed) in enumerate(zip_longest(indices, names, dims[: len(indices)])):
        yield (f"{role} {position}", name or "", *_value(plan.values[index], allowed))


def _value(value: Value, dims: Dims | None) -> tuple[str, str, str]:
    """A tensor's dtype, shape and bytes; of another value, its type."""
    if not isinstance(value, Tensor):
        return type(value).__name__.lower(), "", ""
    most = "up to " if dims is None and value.shape_dynamism is not TensorShapeDynamism.STATIC else ""
    shape = ", ".join(map(str, dims or value.sizes))
    return dtype_info(value.scalar_type).name, f"{most}[{shape}]", count(nbytes(value.scalar_type, value.sizes))


def _calls(plan: ExecutionPlan) -> Table:
    """Kernels and delegates, each with the number of its calls."""
    calls = Counter(
        (isinstance(instruction, DelegateCall), what)
        for _, instruction in instructions(plan)
        if (what := called(plan, instruction))
    )
    rows = [("delegate" if delegate else "kernel", what, count(n)) for (delegate, what), n in calls.items()]
    return Table("", ("by", "what", "calls"), rows, frozenset({"calls"}))
