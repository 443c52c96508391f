"""An optimised graph's convolutions, LSTMs and GRUs of floats with weights of 8 bits -> the same, widened once when a
session is made.

    w int8 ── DequantizeLinear ── Conv          w int8 ── Cast ── Mul ── Conv

onnxruntime dequantizes in each run what it is told to, and lays the kernel out for the processor again: a MobileNetV2
took 2.4 times as long as in float. Casts and products of constants it folds at load, so the file alone stays small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from delegraph_onnx.bodies import graphs_within

__all__ = ["read_by_nodes", "widen_kernels"]

KERNELS: Final[Mapping[str, slice]] = {
    "Conv": slice(1, 2),
    "FusedConv": slice(1, 2),  # with the activation behind it, as onnxruntime has made it
    "ConvTranspose": slice(1, 2),
    "LSTM": slice(1, 3),
    "GRU": slice(1, 3),
}
"""Operator -> which of its inputs are laid out for the processor."""
MOVES: Final = frozenset({"Concat", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
"""What a kernel may have gone through: an LSTM's gates have another order in ONNX."""


def widen_kernels(model: onnx.ModelProto, weights: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Edit the graph of `model`; `weights` are the constants that lie beside it. Returns those that still do."""
    graph = model.graph
    inline = {tensor.name: tensor for tensor in graph.initializer if not tensor.external_data}
    uses = Counter(name for node in graph.node for name in node.input)
    kernels = _kernels(graph)

    def content(name: str) -> NDArray[Any] | None:
        return weights[name] if name in weights else numpy_helper.to_array(inline[name]) if name in inline else None

    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        widened = None
        if node.op_type == "DequantizeLinear" and node.output[0] in kernels and uses[node.output[0]] == 1:
            widened = _widened(graph, node, *(content(name) for name in node.input))
        nodes.extend([node] if widened is None else widened)
    if len(nodes) == len(graph.node):
        return dict(weights)
    given = {name for node in graph.node if node.op_type == "DequantizeLinear" for name in node.input[1:]}
    del graph.node[:]
    graph.node.extend(nodes)
    unused = given - set(read_by_nodes(graph))
    kept = [tensor for tensor in graph.initializer if tensor.name not in unused]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return {name: array for name, array in weights.items() if name not in unused}


def _kernels(graph: onnx.GraphProto) -> set[str]:
    """The values that operators of `KERNELS` read, and those that they are moved from."""
    kernels: set[str] = set()
    for node in reversed(graph.node):
        if node.op_type in KERNELS:
            kernels.update(node.input[KERNELS[node.op_type]])
        elif node.op_type in MOVES and kernels.intersection(node.output):
            kernels.update(node.input)
    return kernels


def read_by_nodes(graph: onnx.GraphProto) -> Iterator[str]:
    """What nodes read, those of bodies included."""
    for each in graphs_within(graph):
        for node in each.node:
            yield from node.input


def _widened(
    graph: onnx.GraphProto,
    node: onnx.NodeProto,
    values: NDArray[Any] | None,
    scale: NDArray[Any] | None,
    zero_point: NDArray[Any] | None = None,
) -> list[onnx.NodeProto] | None:
    """What computes the same of constants; None if they are not, or if zero is not 0."""
    if values is None or scale is None or values.dtype != np.int8 or scale.dtype != np.float32:
        return None
    if len(node.input) > 2 and (zero_point is None or zero_point.any()):
        return None
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1) % values.ndim
    shape = [1] * values.ndim
    if scale.ndim:
        shape[axis] = scale.size
    (name,) = node.output
    factors = numpy_helper.from_array(np.ascontiguousarray(scale.reshape(shape)), f"{name}.factors")
    graph.initializer.append(factors)
    cast = helper.make_node("Cast", [node.input[0]], [f"{name}.integers"], f"{name}.cast", to=onnx.TensorProto.FLOAT)
    product = helper.make_node("Mul", [f"{name}.integers", factors.name], [name], node.name)
    return [cast, product]
