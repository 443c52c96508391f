"""Cells of recurrent layers, and bilinear ones, with weights of the model's -> the linear layers that they are made of.

    h', c' = lstm_cell(x, [h, c], w, u, b, d)      gates = linear(x, w, b) + linear(h, u, d)
                                                   i, f, g, o: a quarter of the gates each
                                                   c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
                                                   h' = sigmoid(o) * tanh(c')
    y = bilinear(x1, x2, w, b)                     y = linear(x2, w as a matrix) as (…, outputs, in1) @ x1 + b

So quantizers know them, and their weights are stored as those of linear layers are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.node import Target

from delegraph.aot.graph.schema_binding import schema_arguments
from delegraph.aot.quantize.annotations import is_float_tensor, is_weight
from delegraph.aot.quantize.rewrites.calls import Caller, calls_before

__all__ = ["cells_as_layers"]

aten = torch.ops.aten


def cells_as_layers(module: GraphModule, filter_fn: Callable[[Node], bool]) -> None:
    """Edit `module`: the calls that `filter_fn` accepts."""
    for node in list(module.graph.nodes):
        parts = _PARTS.get(node.target)
        if parts is not None and filter_fn(node) and _has_weights(node):
            _replace(node, parts(calls_before(node), *schema_arguments(node)))
    module.graph.eliminate_dead_code()
    module.recompile()


def _has_weights(node: Node) -> bool:
    """Whether what it multiplies by is the model's, and what is multiplied is not."""
    x, _, *rest = schema_arguments(node)
    weights = [argument for argument in rest if isinstance(argument, Node)]
    return is_float_tensor(x) and not is_weight(x) and all(map(is_weight, weights))


def _replace(node: Node, results: Sequence[Node]) -> None:
    """Let `results` stand for the results of `node`, under their names: measuring goes by names."""
    replaced = {user.args[1]: user for user in node.users} if len(results) > 1 else {0: node}
    for index, old in replaced.items():
        old.replace_all_uses_with(results[index])  # type: ignore[index]  # a number
        node.graph.erase_node(old)
        results[index].name = old.name  # type: ignore[index]
    if len(results) > 1:
        node.graph.erase_node(node)


# ---- what each is made of: the arguments are the operator's ------------------------------------------------


def _lstm(
    call: Caller, x: Node, state: Sequence[Node], w: Node, u: Node, b: Node | None = None, d: Node | None = None
) -> list[Node]:
    h, c = state
    gates = call(aten.add.Tensor, call(aten.linear.default, x, w, b), call(aten.linear.default, h, u, d))
    let_in, forget, new, out = _parts(call, gates, 4)
    kept = call(aten.mul.Tensor, call(aten.sigmoid.default, forget), c)
    added = call(aten.mul.Tensor, call(aten.sigmoid.default, let_in), call(aten.tanh.default, new))
    cell = call(aten.add.Tensor, kept, added)
    return [call(aten.mul.Tensor, call(aten.sigmoid.default, out), call(aten.tanh.default, cell)), cell]


def _gru(call: Caller, x: Node, h: Node, w: Node, u: Node, b: Node | None = None, d: Node | None = None) -> list[Node]:
    of_x = _parts(call, call(aten.linear.default, x, w, b), 3)
    of_h = _parts(call, call(aten.linear.default, h, u, d), 3)
    reset, keep = (
        call(aten.sigmoid.default, call(aten.add.Tensor, from_x, from_h))
        for from_x, from_h in zip(of_x[:2], of_h[:2], strict=True)
    )
    new = call(aten.tanh.default, call(aten.add.Tensor, of_x[2], call(aten.mul.Tensor, reset, of_h[2])))
    return [call(aten.add.Tensor, new, call(aten.mul.Tensor, keep, call(aten.sub.Tensor, h, new)))]


def _rnn(activation: OpOverload) -> Callable[..., list[Node]]:
    def parts(
        call: Caller, x: Node, h: Node, w: Node, u: Node, b: Node | None = None, d: Node | None = None
    ) -> list[Node]:
        total = call(aten.add.Tensor, call(aten.linear.default, x, w, b), call(aten.linear.default, h, u, d))
        return [call(activation, total)]

    return parts


def _bilinear(call: Caller, x1: Node, x2: Node, weight: Node, bias: Node | None = None) -> list[Node]:
    outputs, first, second = weight.meta["val"].shape
    matrix = call(aten.view.default, weight, [outputs * first, second])
    product = call(aten.unflatten.int, call(aten.linear.default, x2, matrix), -1, [outputs, first])
    summed = call(aten.matmul.default, product, call(aten.unsqueeze.default, x1, -1))
    result = call(aten.squeeze.dim, summed, -1)
    return [result if bias is None else call(aten.add.Tensor, result, bias)]


def _parts(call: Caller, gates: Node, count: int) -> list[Node]:
    last, width = gates.meta["val"].ndim - 1, gates.meta["val"].shape[-1] // count
    return [call(aten.slice.Tensor, gates, last, start * width, (start + 1) * width) for start in range(count)]


_PARTS: Final[Mapping[Target, Callable[..., list[Node]]]] = {
    aten.lstm_cell.default: _lstm,
    aten.gru_cell.default: _gru,
    aten.rnn_tanh_cell.default: _rnn(aten.tanh.default),
    aten.rnn_relu_cell.default: _rnn(aten.relu.default),
    aten.bilinear.default: _bilinear,
}
