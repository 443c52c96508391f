"""A weight in 8 or 4 bits -> constants of a module, named after it, and the calls that read them.

    codes, scales, zero points of "head.weight"      w  = dequantized_weight(head.weight_int8, head.weight_int8_scales)
    e = embedding(w, i), w dequantized               e  = gathered_rows(i, w_int8, w_int8_scales as (rows, groups))

The graph calls `packing.py`'s functions, which the export that comes next turns into operators.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import Target

from delegraph.aot.graph.bodies import referenced
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.graph.schema_binding import schema_arguments
from delegraph.aot.quantize.weights.names import add_constant
from delegraph.aot.quantize.weights.packing import bags_of_rows, dequantized_weight, gathered_rows

__all__ = ["TABLES", "StoredParameter", "gather_rows"]

TABLES: Final[Mapping[str, Callable[..., object]]] = {
    "aten::embedding": gathered_rows,
    "aten::embedding_bag.padding_idx": bags_of_rows,
}
"""Layers that read some rows of their weight, and what does that with stored ones: no values meet them in a product."""


@dataclass(frozen=True, slots=True)
class StoredParameter:
    """The names of a weight's codes, scales and zero points (None: all codes are about zero) in a module; the shape and
    the dtype that it has in float."""

    names: tuple[str | None, ...]
    shape: torch.Size
    dtype: torch.dtype

    @classmethod
    def add(
        cls,
        module: GraphModule,
        name: str,
        constants: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None],
        shape: torch.Size,
        dtype: torch.dtype,
    ) -> StoredParameter:
        """Put codes (int8, or uint8 with two in each), scales and zero points of the weight `name` into `module`."""
        kind = "packed" if constants[0].dtype == torch.uint8 else "int8"
        parts = zip(("", "_scales", "_zero_points"), constants, strict=True)
        names = (None if part is None else add_constant(module, f"{name}_{kind}{end}", part) for end, part in parts)
        return cls(tuple(names), shape, dtype)

    def read(self, graph: Graph) -> Node:
        """A call that gives the weight in float."""
        constants = [None if name is None else graph.get_attr(name) for name in self.names]
        return graph.call_function(dequantized_weight, (*constants, list(self.shape), self.dtype))


def gather_rows(module: GraphModule, preserved: Collection[Target] = ()) -> None:
    """Edit `module`: layers that read some rows of a stored table take them out before they are dequantized; calls of
    the operators in `preserved` stay as they are."""
    graph = module.graph
    for node in graph.nodes:
        is_table = operator_name(node) in TABLES and node.target not in preserved
        table = node.args[0] if is_table else None
        if not isinstance(table, Node) or table.target is not dequantized_weight:
            continue
        codes, scales, zero_points, shape, dtype = table.args
        assert isinstance(scales, Node) and isinstance(shape, list)
        # by row, but where torchao has found one scale for the whole of a table that is a layer's weight, too
        groups = max(1, referenced(module, scales).numel() // shape[0])
        rows = shape[0] if referenced(module, scales).numel() > 1 else 1
        with graph.inserting_before(node):
            by_row = [part and graph.call_method("view", (part, rows, groups)) for part in (scales, zero_points)]
        _, indices, *rest = schema_arguments(node)
        node.target = TABLES[operator_name(node)]  # the same call by name, which what is measured goes by
        settings = rest if node.target is bags_of_rows else ()
        node.args, node.kwargs = (indices, codes, *by_row, dtype, *settings), {}
