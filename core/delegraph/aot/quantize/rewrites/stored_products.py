"""Products of values with a matrix of the model's -> the linear layers that they are, which quantizers know.

    p = addmm(b, x, W)                  t = permute(W, [1, 0])      W (inputs, outputs), as GPT-2 has it
                                        p = linear(x, t, b)
    p = addmm(r, x, W)                  l = linear(x, t)            r is no bias, but a value for each row
                                        p = add(l, r)
    p = matmul(x, E.T)                  p = linear(x, E)            E (outputs, inputs), a tied table of tokens
    p = addmm(r, x, W, alpha=a)         p = add(mul(linear(x, t), a), r)
    p = einsum("bsi,oi->bso", x, E)     p = linear(x, E)
    p = einsum("bsi,ihk->bshk", x, H)   p = unflatten(linear(x, H as (h * k, i)), -1, [h, k])
    p = einsum("bsi,oi->bos", x, E)     p = permute(linear(x, E), [0, 2, 1])

The parameter stays as it is, since training changes it and files name it; the transposition is folded into the codes
that are stored of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import Argument, Target

from delegraph.aot.quantize.annotations import is_float_tensor, is_weight
from delegraph.aot.quantize.rewrites.calls import Caller, calls_before
from delegraph.aot.quantize.weights.layer_weights import transposed_source

__all__ = ["products_as_layers"]

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class _Product:
    """Values, a matrix, and what is added, each times a number. by_rows: the matrix is (outputs, inputs), and not
    (inputs, outputs)."""

    x: Node
    matrix: Node
    by_rows: bool = False
    bias: Node | None = None
    alpha: float = 1
    beta: float = 1


def products_as_layers(module: GraphModule, filter_fn: Callable[[Node], bool]) -> None:
    """Edit `module`: the calls that `filter_fn` accepts, which keep their names."""
    for node in list(module.graph.nodes):
        if node.target is aten.einsum.default and filter_fn(node):
            _sum_with_a_matrix(node)
        product = _product(node)
        if product is not None and filter_fn(node) and _is_layer(product):
            _become_layer(module.graph, node, product)
    module.recompile()


def _product(node: Node) -> _Product | None:
    match node.target, node.args:
        case aten.addmm.default, (Node() as bias, Node() as x, Node() as matrix):
            return _Product(x, matrix, bias=bias, **node.kwargs)  # type: ignore[arg-type]  # alpha and beta
        case aten.inner.default, (Node() as x, Node() as matrix):
            return _Product(x, matrix, by_rows=True)
        case aten.tensordot.default, (Node() as x, Node() as matrix, [int(dim)], [int(summed)]) if (dim + 1) % x.meta[
            "val"
        ].ndim == 0:
            return _Product(x, matrix, by_rows=summed % 2 == 1)
        case aten.matmul.default | aten.mm.default, (Node() as x, Node() as matrix):
            return _Product(x, matrix)
    return None


@dataclass(frozen=True, slots=True)
class _Sum:
    """Letters of an einsum of values and a weight: all of each operand (`values`, `weight`) and of the `result`; the
    `summed` ones, in the order of the values; and the others of the values (`rows`) and of the weight (`free`), in the
    order of the result."""

    values: str
    weight: str
    result: str
    rows: str
    summed: str
    free: str


def _sum_of(equation: str, dims: int) -> _Sum | None:
    """The letters of `…i,oi->…o`, `…i,ihk->…hk`, `…hk,hko->…o`, `bsi,ihk->bhsk`, for values of `dims` dims; None of
    an equation that multiplies element by element, or sums a letter that one operand alone has."""
    operands, arrow, result = equation.replace(" ", "").replace("...", ".").partition("->")
    values, comma, weight = operands.partition(",")
    # Greek letters stand for the dims of the ellipsis: an equation has Latin ones
    named = [chr(0x3B1 + place) for place in range(dims - len(values.replace(".", "")))]
    values, result = (letters.replace(".", "".join(named)) for letters in (values, result))
    summed = "".join(letter for letter in values if letter in weight)
    rows = "".join(letter for letter in result if letter in values)
    free = "".join(letter for letter in result if letter in weight)
    fits = arrow and comma and summed and free and len(values) == dims and "." not in weight
    # a letter twice in an operand stands for its diagonal
    apart = all(len({*letters}) == len(letters) for letters in (values, weight, result))
    parts = ((values, rows + summed), (weight, free + summed), (result, rows + free))
    whole = all(sorted(letters) == sorted(expected) for letters, expected in parts)
    return _Sum(values, weight, result, rows, summed, free) if fits and apart and whole else None


def _sum_with_a_matrix(node: Node) -> None:
    """Let an einsum with a weight be a linear layer, whose values and results are seen in other shapes."""
    equation, operands, *_ = node.args
    x, weight = operands if len(operands) == 2 else (None, None)  # type: ignore[misc, arg-type]  # a list of values
    if not (is_float_tensor(x) and is_float_tensor(weight) and is_weight(weight)) or is_weight(x):
        return
    dims = _sum_of(str(equation), x.meta["val"].ndim)
    if dims is None or not dims.rows:
        return
    sizes = [weight.meta["val"].shape[place] for place in _places(dims.weight, dims.free + dims.summed)]
    outputs, inputs = (prod(group) for group in (sizes[: len(dims.free)], sizes[len(dims.free) :]))
    if inputs == 1 or inputs != prod(x.meta["val"].shape[place] for place in _places(dims.values, dims.summed)):
        return  # angles of positions, or values that are broadcast
    call = calls_before(node)
    turned = _in_order(call, weight, dims.weight, dims.free + dims.summed)
    matrix = turned if len(sizes) == 2 else call(aten.reshape.default, turned, [outputs, inputs])
    x = _in_order(call, x, dims.values, dims.rows + dims.summed)
    values = call(aten.flatten.using_ints, x, -len(dims.summed), -1) if len(dims.summed) > 1 else x
    # the last step becomes `node` itself, which keeps its name
    steps: list[tuple[Target, tuple[Argument, ...]]] = [(aten.linear.default, (matrix,))]
    if len(dims.free) > 1:
        steps.append((aten.unflatten.int, (-1, sizes[: len(dims.free)])))
    if dims.rows + dims.free != dims.result:
        steps.append((aten.permute.default, (_places(dims.rows + dims.free, dims.result),)))
    for target, args in steps[:-1]:
        values = call(target, values, *args)
    node.target, args = steps[-1]
    node.args, node.kwargs = (values, *args), {}


def _in_order(call: Caller, value: Node, letters: str, order: str) -> Node:
    if letters == order:
        return value
    source = transposed_source(value) if len(letters) == 2 and is_weight(value) else None
    return source or call(aten.permute.default, value, _places(letters, order))


def _places(letters: str, order: str) -> list[int]:
    return [letters.index(letter) for letter in order]


def _is_layer(product: _Product) -> bool:
    """Whether the matrix is the model's, and what is multiplied is not. One of one row makes no sums, but angles of
    positions."""
    x, weight = product.x, product.matrix
    if not (is_float_tensor(x) and is_float_tensor(weight) and is_weight(weight)) or is_weight(x):
        return False
    matrix = weight.meta["val"]
    return bool(x.meta["val"].ndim > 1 and matrix.ndim == 2 and matrix.shape[product.by_rows] != 1)


def _become_layer(graph: Graph, node: Node, product: _Product) -> None:
    call = calls_before(node)
    with graph.inserting_before(node):
        rows = product.matrix if product.by_rows else _transposed(graph, product.matrix)
    # with a beta of 0 torch leaves the bias out, even what of it is not finite
    bias, beta, alpha = product.bias if product.beta else None, product.beta, product.alpha
    if bias is not None and beta != 1:
        bias = call(aten.mul.Tensor, bias, beta)
    node.kwargs = {}
    # a bias is one for each output; what else is added has rows, and is no part of a layer
    if alpha == 1 and (bias is None or bias.meta["val"].shape == rows.meta["val"].shape[:1]):
        node.target, node.args = aten.linear.default, (product.x, rows, bias)
        return
    layer = call(aten.linear.default, product.x, rows)
    if bias is None:
        node.target, node.args = aten.mul.Tensor, (layer, alpha)
        return
    scaled = layer if alpha == 1 else call(aten.mul.Tensor, layer, alpha)
    node.target, node.args = aten.add.Tensor, (scaled, bias)


def _transposed(graph: Graph, matrix: Node) -> Node:
    """A matrix transposed, or what it is transposed of."""
    source = transposed_source(matrix)
    if source is not None:
        return source
    rows = graph.call_function(aten.permute.default, (matrix, [1, 0]))
    rows.meta = {**matrix.meta, "val": matrix.meta["val"].mT}
    return rows
