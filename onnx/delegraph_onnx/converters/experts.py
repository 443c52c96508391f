"""Products of groups of rows, each with a matrix of its own, for mixtures of experts.

rows sorted by expert ──┬── Slice [0, end_0) ── MatMul W_0 ──┐
                        ├── Slice [end_0, end_1) ── MatMul W_1 ── Concat
                        └── Slice [end_1, …) ── zeros ───────┘

For matrices that are stored in 8 bits or 4, an engine may have products of codes in the place of MatMul.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph.aot.authoring import ANY, captured, either, matches, op
from delegraph_onnx.converters.table import aten, convert_named
from delegraph_onnx.dtypes import INDICES, REALS
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.node_facts import dtype_of, rank_of, shape_of


def _rows_by_known_groups(node: Node, self: Node, mat2: Node, offs: Node | None = None, *rest: object) -> str | None:
    if offs is None or rank_of(self) != 2 or rank_of(mat2) != 3:
        return "groups that are not of rows"
    if any(value is not None for value in rest):
        return "a bias or a dtype of the result"
    return None if isinstance(shape_of(mat2)[0], int) else "the number of groups is dynamic"


@convert_named(
    "aten::_grouped_mm", "transformers::grouped_mm_fallback", dtypes=REALS | INDICES, check=_rows_by_known_groups
)
def grouped_mm(g: GraphBuilder, node: Node, self: Node, mat2: Node, offs: Node, *_: object) -> ir.Value:
    rows, dtype = g.value(self), dtype_of(node)
    ends = [
        g.op("Slice", g.tensor(offs, torch.int64), g.ints([i]), g.ints([i + 1])) for i in range(int(shape_of(mat2)[0]))
    ]
    starts = [g.ints([0]), *ends[:-1]]
    product = _product(g, mat2)
    parts = [
        product(g.op("Slice", rows, start, end, g.ints([0])), expert)
        for expert, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    left = g.op("Sub", g.op("Shape", rows, start=0, end=1), ends[-1])
    width = g.op("Shape", g.value(mat2), start=2, end=3)
    parts.append(g.op("Expand", g.tensor(0.0, dtype), g.op("Concat", left, width, axis=0)))
    return g.op("Concat", *parts, axis=0)


def _product(g: GraphBuilder, mat2: Node) -> Callable[[ir.Value, int], ir.Value]:
    """A function (rows, expert) -> the product of rows with the matrix of an expert."""
    stored = _stored_rows(mat2)
    own = None if stored is None else g.products_of_experts(mat2, stored)
    return own or (lambda rows, expert: g.op("MatMul", rows, _matrix(g, mat2, expert)))


_ROWS: Final = op(aten("view_copy"), *captured("rows"), ANY)
_MATRICES: Final = op(aten("permute_copy"), _ROWS, either([0, 2, 1], [0, -1, -2], [0, -1, 1], [0, 2, -2]))


def _stored_rows(mat2: Node) -> Node | None:
    """The rows of all matrices, (experts * outputs, inner), as weight-only recipes have them: `permute(view(rows,
    (experts, outputs, inner)), (0, 2, 1))`."""
    experts, inner, outputs = shape_of(mat2)
    rows = (match["rows"] for match in matches(_MATRICES, mat2))
    return next((each for each in rows if shape_of(each) == (experts * outputs, inner)), None)


def _matrix(g: GraphBuilder, mat2: Node, index: int) -> ir.Value:
    array = g.parameter(mat2)
    if array is not None:
        return g.weight(f"{mat2.name}.{index}", array[index])
    return g.op("Gather", g.value(mat2), g.tensor(index, torch.int64), axis=0)
