"""Products of values with a matrix of the model's -> the linear layers that they are, which quantizers know.

    p = addmm(b, x, W)                  t = permute(W, [1, 0])      W (inputs, outputs), as GPT-2 has it
                                        p = linear(x, t, b)
    p = addmm(r, x, W)                  l = linear(x, t)            r is no bias, but a value for each row
                                        p = add(l, r)
    p = matmul(x, E.T)                  p = linear(x, E)            E (outputs, inputs), a tied table of tokens
    p = einsum("bsi,oi->bso", x, E)     p = linear(x, E)

The parameter stays what it is, which training changes and files name; that it is transposed is folded into what is
stored of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from delegraph.aot.quantize.annotations import is_float_tensor, is_weight
from delegraph.aot.quantize.layer_weights import transposed_source

__all__ = ["products_as_layers"]

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class _Product:
    """Values, a matrix, and what is added. by_rows: the matrix is (outputs, inputs), and not (inputs, outputs)."""

    x: Any
    matrix: Any
    by_rows: bool = False
    bias: Any = None


def products_as_layers(module: GraphModule, wanted: Callable[[Node], bool]) -> None:
    """Edit `module`: the calls that are `wanted` keep their names."""
    for node in list(module.graph.nodes):
        product = _product(node)
        if product is not None and wanted(node) and _is_layer(product):
            _become_layer(module.graph, node, product)
    module.recompile()


def _product(node: Node) -> _Product | None:
    if node.kwargs:
        return None
    match node.target, node.args:
        case aten.addmm.default, (bias, x, matrix):
            return _Product(x, matrix, bias=bias)
        case aten.matmul.default | aten.mm.default, (x, matrix):
            return _Product(x, matrix)
        case aten.einsum.default, (str(equation), [x, matrix]):
            by_rows = _sums_rows(equation.replace(" ", "").replace("...", "."))
            return None if by_rows is None else _Product(x, matrix, by_rows)
    return None


def _sums_rows(equation: str) -> bool | None:
    """Whether the last dim of the first operand is summed with the second one's rows, `…i,oi->…o`, or, False, with its
    columns, `…i,io->…o`; None where neither is so."""
    first, _, rest = equation.partition(",")
    second, _, result = rest.partition("->")
    if len(second) != 2 or len({*first, *second}) != len(first) + 1 or first[-1:] not in second:
        return None
    others, summed = first[:-1], first[-1:]
    return second[1] == summed if result == others + second.replace(summed, "") else None


def _is_layer(product: _Product) -> bool:
    """Whether the matrix is the model's, and what is multiplied is not. One of one row makes no sums, but angles of
    positions."""
    x, weight = product.x, product.matrix
    if not (is_float_tensor(x) and is_float_tensor(weight) and is_weight(weight)) or is_weight(x):
        return False
    matrix = weight.meta["val"]
    return bool(x.meta["val"].ndim > 1 and matrix.ndim == 2 and matrix.shape[product.by_rows] != 1)


def _become_layer(graph: Graph, node: Node, product: _Product) -> None:
    with graph.inserting_before(node):
        rows = product.matrix if product.by_rows else _transposed(graph, product.matrix)
        bias = product.bias
        if bias is None or bias.meta["val"].shape == rows.meta["val"].shape[:1]:
            node.target, node.args = aten.linear.default, (product.x, rows, bias)
            return
        layer = graph.call_function(aten.linear.default, (product.x, rows))
        layer.meta = dict(node.meta)
    node.target, node.args = aten.add.Tensor, (layer, bias)


def _transposed(graph: Graph, matrix: Node) -> Node:
    """A matrix transposed, or what it is transposed of."""
    source = transposed_source(matrix)
    if source is not None:
        return source
    rows = graph.call_function(aten.permute.default, (matrix, [1, 0]))
    rows.meta = {**matrix.meta, "val": matrix.meta["val"].mT}
    return rows
