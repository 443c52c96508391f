"""Constants of bytes that a graph widens -> inputs while it is optimised, and constants again afterwards.

    w uint8 ── Cast ── Mul(scales) ── MatMul        onnxruntime would fold that, and the file hold four bytes a weight

It does fold it when a session is made, so that a run costs the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from delegraph_cpu.aot.stored_kernels import read_by_nodes
from delegraph_onnx.ir_values import readers_of

__all__ = ["constants_again", "held_back", "refer_to_weights"]

_NARROW: Final = frozenset({ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.BOOL})
_WIDENING: Final = frozenset({"Cast", "BitwiseAnd", "BitShift", "Where"})
"""Operators that give more bytes than they take, or what such operators take; integer kernels are none of them."""
_MOVES: Final = frozenset({"Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten"})


def held_back(model: ir.Model, least_bytes: int) -> dict[str, NDArray[Any]]:
    """Turn constants of `model` that are larger than `least_bytes` and widened, or moved and looked up as well, into
    inputs. Returns what they hold."""
    graph, held = model.graph, {}
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        assert tensor is not None
        if tensor.dtype in _NARROW and tensor.nbytes > least_bytes and (_is_widened(value) or _is_looked_up(value)):
            held[name] = array = tensor.numpy()
            graph.initializers.pop(name)
            value.const_value, value.type, value.shape = None, ir.TensorType(tensor.dtype), ir.Shape(array.shape)
            graph.inputs.append(value)
    return held


def _is_widened(value: ir.Value) -> bool:
    return any(
        use.node.op_type in _WIDENING or (use.node.op_type in _MOVES and _is_widened(use.node.outputs[0]))
        for use in value.uses()
    )


def _is_looked_up(value: ir.Value) -> bool:
    """Whether it would be there twice, in another layout, if the move were folded."""
    readers = {node.op_type for node in readers_of(value)}
    return "Gather" in readers and not readers.isdisjoint(_MOVES)


def constants_again(model: onnx.ModelProto, nbytes: Mapping[str, int]) -> frozenset[str]:
    """Turn the optimised graph's inputs of these names, which hold so many bytes, into initialisers that are elsewhere:
    nothing that depends on them was computed, and everything that does can be when a session is made. Returns those
    that nodes read."""
    if not nbytes:
        return frozenset()
    inputs = {value.name: value for value in model.graph.input}
    kept = frozenset(nbytes) & frozenset(read_by_nodes(model.graph))
    for name, size in nbytes.items():
        value = inputs[name]
        model.graph.input.remove(value)
        if name not in kept:
            continue
        tensor = model.graph.initializer.add(name=name, data_type=value.type.tensor_type.elem_type)
        tensor.dims.extend(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        refer_to_weights(tensor, size)
    return kept


def refer_to_weights(tensor: onnx.TensorProto, nbytes: int) -> None:
    """Let an initialiser be one of those whose content is given beside the graph."""
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, text in (("location", "weights"), ("offset", "0"), ("length", str(nbytes))):
        tensor.external_data.add(key=key, value=text)
