"""Queries and keys that are rotated by their positions -> what was rotated, and the tables by which.

    rotated = x * cos + cat([-x[…, half:], x[…, :half]]) * sin         Su et al., RoFormer, as transformers writes it
    partly  = cat([rotated x[…, :n], x[…, n:]])                        GPT-NeoX's and Phi's

cos and sin are functions of the position, computed in the graph for those of each run. What computes them is run here
for all positions that a cache has: tables of shape (positions, half), which onnxruntime's operators look up.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot import schema_arguments
from delegraph_cpu.aot.converters.table import aten
from delegraph_cpu.aot.copies import COPIES
from delegraph_cpu.aot.graph_patterns import is_last, products, slice_of, sums
from delegraph_cpu.aot.node_facts import rank_of, shape_of
from delegraph_cpu.aot.positions import Constants, Positions, positions_of

__all__ = ["Rotation", "rotation_of", "turns_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """`source` is rotated, or the first part of each head; row p of the tables, shape (positions, half of what is
    rotated), is for position p."""

    source: Node
    cos: NDArray[np.float32]
    sin: NDArray[np.float32]

    def same_tables(self, other: Rotation) -> bool:
        """Whether both rotate by the same angles."""
        return np.array_equal(self.cos, other.cos) and np.array_equal(self.sin, other.sin)


def rotation_of(node: Node, positions: Positions, count: int, constants: Constants) -> Rotation | None:
    """What `node`, of shape (batch, heads, length, size), rotates, row i by the place `positions` + i, of which there
    are `count`; None if it is not a rotation, or by other places."""
    source, rotated = _parts(node)
    for x, cos, sin in turns_of(rotated):
        if source is not None and x is not source and slice_of(x, source) != (0, int(shape_of(x)[-1])):
            continue
        tables = [_half_table(angle, positions, count, constants) for angle in (cos, sin)]
        if tables[0] is not None and tables[1] is not None:
            return Rotation(source or x, tables[0], tables[1])
    return None


def _parts(node: Node) -> tuple[Node | None, Node]:
    """Where `node` is cat([y, source[…, n:]], -1), y having n columns: (source, y); else (None, node)."""
    parts, dim, *_ = schema_arguments(node) if node.target == aten("cat") else ([], 0)
    if len(parts) != 2 or not is_last(dim, node) or not parts[1].args:
        return None, node
    source, (columns, size) = parts[1].args[0], (shape_of(each)[-1] for each in (parts[0], node))
    return (source, parts[0]) if slice_of(parts[1], source) == (columns, size) else (None, node)


def turns_of(node: Node) -> Iterator[tuple[Node, Node, Node]]:
    """The readings of `node` as x * cos + turned x * sin: (x, cos, sin)."""
    for straight, crossed in sums(node):
        for (x, cos), (halves, sin) in ((a, b) for a in products(straight) for b in products(crossed)):
            if _is_quarter_turn(halves, x):
                yield x, cos, sin


def _is_quarter_turn(node: Node, x: Node) -> bool:
    """Whether `node` is cat([-x[…, half:], x[…, :half]], -1)."""
    if node.target != aten("cat") or rank_of(x) == 0 or not isinstance(shape_of(x)[-1], int):
        return False
    parts, dim, *_ = schema_arguments(node)
    half = int(shape_of(x)[-1]) // 2
    if not is_last(dim, x) or len(parts) != 2 or parts[0].target != aten("neg"):
        return False
    upper, lower = slice_of(parts[0].args[0], x), slice_of(parts[1], x)
    return upper is not None and lower is not None and upper == (half, 2 * half) and lower == (0, half)


# ---- tables -------------------------------------------------------------------------------------------------------


def _half_table(angle: Node, positions: Positions, count: int, constants: Constants) -> NDArray[np.float32] | None:
    """What `angle`, of shape (1, 1, length, size), is at each place, its two halves being equal."""
    values = _Table(positions, count, constants).of(angle)
    if values is None or values.dtype != torch.float32 or tuple(values.shape[:-2]) not in ((1, 1), (1,), ()):
        return None
    if values.ndim < 2 or values.shape[-2] != count:  # a table of the run's rows, or one row for all
        return None
    table = values.reshape(count, values.shape[-1]).numpy()
    half = table.shape[-1] // 2
    return np.ascontiguousarray(table[:, :half]) if np.array_equal(table[:, :half], table[:, half:]) else None


class _Table:
    """Computes nodes that depend on nothing but constants and the places, at all `count` places instead of a run's."""

    def __init__(self, positions: Positions, count: int, constants: Constants) -> None:
        self.positions, self.count, self.constants = positions, count, constants

    def of(self, node: Any) -> torch.Tensor | None:
        """The tensor, with all places along the dim in which the run's were; None: it depends on something else."""
        if isinstance(node, int | float):
            return torch.tensor(node)
        if node in self.constants:
            return self.constants[node]
        known = positions_of(node, self.constants)
        if known is not None and known.dim is not None:
            shape = [1] * rank_of(node)
            shape[known.dim] = self.count
            return torch.arange(self.count).reshape(shape) if known.begins_like(self.positions) else None
        rule = _RULES.get(node.target) if node.op == "call_function" else None
        if rule is None:
            return None
        sources = [self.of(read) for read in node.all_input_nodes]
        if any(source is None for source in sources):
            return None
        try:
            return rule(node, dict(zip(node.all_input_nodes, sources, strict=True)))
        except RuntimeError:  # a constant has as many rows as the run, and not as there are places
            return None


def _elementwise(function: Callable[..., torch.Tensor]) -> Callable[[Node, Any], torch.Tensor]:
    return lambda node, values: function(*(values.get(read, read) for read in node.args))


_RULES: Final[dict[object, Callable[[Node, Any], torch.Tensor]]] = {
    aten("mul.Tensor"): _elementwise(operator.mul),
    aten("cos"): _elementwise(torch.cos),
    aten("sin"): _elementwise(torch.sin),
    aten("unsqueeze_copy"): lambda node, values: values[node.args[0]].unsqueeze(node.args[1]),
    aten("cat"): lambda node, values: torch.cat([values[part] for part in node.args[0]], *node.args[1:]),  # type: ignore[union-attr, arg-type]
    **dict.fromkeys(COPIES, lambda node, values: values[node.args[0]].to(node.meta["val"].dtype)),
}
"""How each is computed that keeps the places apart: none of these mixes what lies along one of the other dims."""
