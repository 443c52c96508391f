"""Program and the bounds that a user states of sizes by line of code -> the program with those bounds.

For lines that nobody wants to change, a library's: `{"modeling_vits.py:1351": 4096}` says that no size that depends on
values is larger there. `torch._check` in the model says the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from delegraph.aot.graph.edit import with_ranges
from delegraph.aot.graph.source_location import user_frames
from delegraph.aot.torch_internals import ValueRanges
from delegraph.errors import LoweringError

__all__ = ["bounded", "check_bounds", "with_bounds"]


def bounded(programs: Mapping[str, ExportedProgram], bounds: Mapping[str, int] | None) -> dict[str, ExportedProgram]:
    """`programs` with the bounds. Raises as `check_bounds`."""
    check_bounds(programs, bounds or {})
    return {method: with_bounds(program, bounds or {}) for method, program in programs.items()}


def check_bounds(programs: Mapping[str, ExportedProgram], bounds: Mapping[str, int]) -> None:
    """Raise `LoweringError` for a bound that is no positive number, or is of a line that makes no such size."""
    for place, bound in bounds.items():
        if not isinstance(bound, int) or bound < 1:
            raise LoweringError(f"bounds has {bound!r} for {place!r}; a bound is a number of at least 1")
        if not any(_at(node, place) for program in programs.values() for node, _ in _sizes(program)):
            lines = {f"{file}:{line}" for p in programs.values() for n in _first(p) for file, line, *_ in _last(n)}
            raise LoweringError(
                f"bounds has {place!r}, and no size that depends on values is made there; such sizes are made at"
                f" {', '.join(sorted(lines)) or 'no line'}. Write file:line, the end of a path is enough"
            )


def with_bounds(program: ExportedProgram, bounds: Mapping[str, int]) -> ExportedProgram:
    """`program` in which the sizes of the values that a line of `bounds` makes are at most so large."""
    ranges: dict[sympy.Symbol, ValueRanges[Any]] = {}
    for node, symbol in _sizes(program):
        for place, bound in bounds.items():
            if _at(node, place):
                known = ranges.get(symbol) or program.range_constraints.get(symbol) or ValueRanges(0, bound)
                ranges[symbol] = known & ValueRanges(0, bound)
    return with_ranges(program, ranges) if ranges else program


def _sizes(program: ExportedProgram) -> Iterator[tuple[Node, sympy.Symbol]]:
    """The calls whose results have a size that is a symbol of its own and no input's, and that symbol."""
    for node in program.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")) if node.op == "call_function" else ():
            for size in value.shape if isinstance(value, torch.Tensor) else ():
                if isinstance(size, torch.SymInt) and size.node.expr in free_unbacked_symbols(size):
                    yield node, size.node.expr


def _first(program: ExportedProgram) -> list[Node]:
    """The call that makes each of these symbols."""
    makers: dict[sympy.Symbol, Node] = {}
    for node, symbol in _sizes(program):
        makers.setdefault(symbol, node)
    return list(makers.values())


def _at(node: Node, place: str) -> bool:
    lines = [f"{file}:{line}" for file, line, *_ in user_frames(node)]
    return any(line == place or line.endswith(("/" + place, "\\" + place)) for line in lines)


def _last(node: Node) -> tuple[tuple[str, int, str, str], ...]:
    return user_frames(node)[-1:]
