"""Constants that an optimiser is not to see -> inputs while a graph is optimised, and constants again afterwards.

Bytes that the graph widens:

    w uint8 ── Cast ── Mul(scales) ── MatMul        onnxruntime would fold that, and the file hold four bytes a weight

It does fold it when a session is made, so that a run costs the same. And large matrices of products, of which it reads
the shape alone: it would copy each of them twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import onnx_ir as ir

from delegraph_onnx.ir_values import made_input, readers_of

__all__ = ["constants_again", "held_back"]

_NARROW: Final = frozenset({ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.BOOL})
_WIDENING: Final = frozenset({"Cast", "BitwiseAnd", "BitShift", "Where"})
"""Operators with larger results than inputs, or that prepare these inputs; integer kernels are none of them."""
_MOVES: Final = frozenset({"Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten"})


def held_back(model: ir.Model, least_bytes: int, is_kept_beside: bool = False) -> dict[str, ir.TensorProtocol]:
    """Turn constants of `model` into inputs: those larger than `least_bytes` that are widened, or both moved and looked
    up, and those from `OPAQUE_BYTES` on that no optimisation looks at; and the weights of convolutions in front of a
    batch norm where the file has them as they are anyway, for what `is_kept_beside` the blob. Returns their contents.
    """
    graph, contents = model.graph, {}
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        assert tensor is not None
        narrow = tensor.dtype in _NARROW and (_is_widened(value) or _is_looked_up(value))
        stored = is_kept_beside and _is_normalized(value)
        if tensor.nbytes > least_bytes and (narrow or stored or _is_opaque(value, tensor)):
            contents[name] = tensor
            made_input(graph, value)
    return contents


_CONVOLUTIONS: Final = frozenset({"Conv", "ConvTranspose"})

OPAQUE_BYTES: Final = 4096
"""From this size on a constant that no optimisation looks at is left out."""

_OPAQUE: Final = frozenset({("MatMul", 1), ("FusedMatMul", 1), ("Gemm", 1), ("Gather", 0), ("MatMulNBits", 1)})
"""Operators and their inputs whose values no optimisation reads, only their shapes."""


def _is_opaque(value: ir.Value, tensor: ir.TensorProtocol) -> bool:
    """Whether the optimised graph is the same without the content: then no optimiser need hold it. A product of
    constants is folded."""
    return tensor.nbytes >= OPAQUE_BYTES and all(
        (use.node.op_type, use.idx) in _OPAQUE and not _is_known(use.node.inputs[1 - use.idx]) for use in value.uses()
    )


def _is_known(value: ir.Value | None) -> bool:
    """Whether `value` is computed from constants alone."""
    if value is None or value.const_value is not None:
        return True
    producer = value.producer()
    return producer is not None and all(map(_is_known, producer.inputs))


def _is_widened(value: ir.Value) -> bool:
    return any(
        use.node.op_type in _WIDENING or (use.node.op_type in _MOVES and _is_widened(use.node.outputs[0]))
        for use in value.uses()
    )


def _is_looked_up(value: ir.Value) -> bool:
    """Whether folding the move would put the constant into the file twice, in two layouts."""
    readers = {node.op_type for node in readers_of(value)}
    return "Gather" in readers and not readers.isdisjoint(_MOVES)


def _is_normalized(value: ir.Value) -> bool:
    """Whether a batch norm would be folded into `value`, a weight."""
    return any(
        use.node.op_type in _CONVOLUTIONS and "BatchNormalization" in {node.op_type for node in readers_of(output)}
        for use in value.uses()
        for output in use.node.outputs
    )


def constants_again(graph: ir.Graph, contents: Mapping[str, ir.TensorProtocol]) -> frozenset[str]:
    """Turn the optimised graph's inputs of these names into initialisers with these contents: nothing that depends on
    them was computed, and onnxruntime folds it when a session is made. Returns the names of those that nodes read."""
    inputs = [value for value in graph.inputs if value.name in contents]
    for value in inputs:
        graph.inputs.remove(value)
        if value.uses():
            value.const_value = contents[str(value.name)]
            graph.register_initializer(value)
    return frozenset(str(value.name) for value in inputs if value.uses())
