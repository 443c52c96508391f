"""Root mean square norms of sums in a graph under construction -> one operator each.

    s = Add(a, b); y = SimplifiedLayerNormalization(s, w)        y, s = SkipSimplifiedLayerNormalization(a, b, w)

onnxruntime does that to layer norms by itself. `s` is what a transformer adds to next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from delegraph_cpu.aot.graph import CONTRIB

__all__ = ["norms_of_sums"]

_RANKS = (2, 3)
"""Of what the operator takes."""


def norms_of_sums(
    nodes: Sequence[ir.Node], outputs: Sequence[ir.Value], shape_of: Callable[[ir.Value], Sequence[int | str] | None]
) -> list[ir.Node]:
    """`nodes`, which stand in the order in which they run and give the graph's `outputs`, with each such pair replaced
    where the sum is; what computes the weights, as Gemma's 1 + w, comes before all."""
    norms = {node.inputs[0]: node for node in nodes if _is_norm(node)}
    pairs = {
        node: norm
        for node in nodes
        if (norm := norms.get(node.outputs[0])) is not None
        and _is_sum_of_equals(node, shape_of)
        and not {*node.outputs, *norm.outputs} & {*outputs}
    }
    gone = {*pairs.values()}
    weights = {addition: None for norm in pairs.values() if (addition := _producer(norm.inputs[1])) is not None}
    rest = [node for node in nodes if node not in gone and node not in weights]
    return [*weights, *(_joined(node, pairs[node]) if node in pairs else node for node in rest)]


def _is_norm(node: ir.Node) -> bool:
    """Whether it is one whose weight is there before any node runs, or a sum of what is."""
    if node.op_type != "SimplifiedLayerNormalization":
        return False
    addition = _producer(node.inputs[1])
    return addition is None or (addition.op_type == "Add" and not any(map(_producer, addition.inputs)))


def _producer(value: ir.Value | None) -> ir.Node | None:
    return None if value is None else value.producer()


def _is_sum_of_equals(node: ir.Node, shape_of: Callable[[ir.Value], Sequence[int | str] | None]) -> bool:
    if node.op_type != "Add":
        return False
    left, right = (None if value is None else shape_of(value) for value in node.inputs)
    return left is not None and left == right and len(left) in _RANKS


def _joined(addition: ir.Node, norm: ir.Node) -> ir.Node:
    """Both in one; its values have the names of theirs, which debug handles go by, and their readers."""
    inputs = [*addition.inputs, norm.inputs[1]]
    joined = ir.Node(CONTRIB, "SkipSimplifiedLayerNormalization", inputs, [norm.attributes["epsilon"]], num_outputs=4)
    normalized, mean, deviation, total = joined.outputs
    for value, old in ((normalized, norm.outputs[0]), (total, addition.outputs[0])):
        value.name = old.name
        ir.convenience.replace_all_uses_with(old, value)
    mean.name = deviation.name = ""  # neither is computed
    return joined
