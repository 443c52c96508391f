"""An optimised graph's weights -> weights of fewer bytes, which are widened once, when a session is made.

A delegate computes in float32 where a program has float16 or bfloat16; the file need not hold its weights in float32.

    w float32 ── MatMul                         w.half bfloat16 ── Cast ── w ── MatMul
       └──────── Gather ── rows                        └────────── Gather ── Cast ── rows

Convolutions, LSTMs and GRUs of floats may have weights of 8 bits. onnxruntime dequantizes them in each run
and lays the kernel out for the processor again: a MobileNetV2 took 2.4 times as long as in float. Casts and
products of constants it folds at load, so the file alone stays small.

    w int8 ── DequantizeLinear ── Conv          w int8 ── Cast ── Mul ── Conv
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from delegraph_cpu.aot.compiled.beside import lay_beside, lies_beside
from delegraph_onnx.deferred import Deferred
from delegraph_onnx.dtypes import HALVES
from delegraph_onnx.graph_builder import initializer
from delegraph_onnx.ir_values import content_of, put_in_place

__all__ = ["has_halves", "store_halves", "widen_kernels"]


def has_halves(program: ExportedProgram) -> bool:
    """Whether a weight of `program` is a half."""
    tensors = (*program.state_dict.values(), *program.constants.values())
    return any(isinstance(tensor, torch.Tensor) and tensor.dtype in HALVES for tensor in tensors)


def store_halves(graph: ir.Graph) -> None:
    """Store weights beside `graph` in a half that holds them exactly. onnxruntime widens them once, at load."""
    casts = []
    for name, value in list(graph.initializers.items()):
        half = _as_half(value, f"{name}.half") if lies_beside(value) else None
        if half is not None:
            del graph.initializers[name]
            stored = graph.initializers[f"{name}.half"] = initializer(f"{name}.half", half)
            lay_beside(stored)
            for node in [use.node for use in value.uses() if use.node.op_type == "Gather" and use.idx == 0]:
                _widen_rows(node, stored)
            if not value.uses():
                continue
            cast = ir.node("Cast", [stored], {"to": ir.DataType.FLOAT}, name=f"{name}.widened")
            cast.outputs[0].name = name
            value.replace_all_uses_with(cast.outputs[0])
            casts.append(cast)
    if casts:
        graph.insert_before(graph[0], casts)


def _widen_rows(gather: ir.Node, table: ir.Value) -> None:
    """Gather rows of the narrow table, and widen these: the rest of it stays as it is stored."""
    rows = gather.outputs[0]
    narrow = ir.node("Gather", [table, gather.inputs[1]], gather.attributes, name=gather.name)
    cast = ir.node("Cast", [narrow.outputs[0]], {"to": ir.DataType.FLOAT}, name=f"{gather.name}.widened")
    narrow.outputs[0].name, cast.outputs[0].name = f"{rows.name}.half", rows.name
    put_in_place(gather, [narrow, cast])


def _as_half(value: ir.Value, name: str) -> Deferred | NDArray[Any] | None:
    """The content of an initialiser as bfloat16 or float16 if that loses nothing and it is float32, otherwise None."""
    tensor = value.const_value
    if value.dtype != ir.DataType.FLOAT or tensor is None:
        return None
    array = tensor.read() if isinstance(tensor, Deferred) else tensor.numpy()
    half = next((dtype for dtype in _HALVES if _holds(dtype, array)), None)
    if half is None:
        return None
    return tensor.narrowed(name, half) if isinstance(tensor, Deferred) else array.astype(half)


_HALVES: Final = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16))
_AT_ONCE: Final = 1 << 18
"""Elements that are looked at together: what is made to compare them stays small."""


def _holds(half: np.dtype[Any], array: NDArray[Any]) -> bool:
    """Whether every number of `array` is one of `half`."""
    if array.dtype == half:
        return True
    flat = array.reshape(-1) if array.flags.c_contiguous else array.T.reshape(-1)  # in either order
    return all(_all_hold(half, flat[start : start + _AT_ONCE]) for start in range(0, flat.size, _AT_ONCE))


def _all_hold(half: np.dtype[Any], numbers: NDArray[Any]) -> bool:
    wide = numbers.astype(np.float32, copy=False)
    if half == ml_dtypes.bfloat16:  # the upper half of float32
        return not (wide.view(np.uint32) & 0xFFFF).any()
    with np.errstate(over="ignore"):
        return np.array_equal(wide.astype(half), wide)


# ---- kernels of 8 bits --------------------------------------------------------------------------------------------

KERNELS: Final[Mapping[str, slice]] = {
    "Conv": slice(1, 2),
    "FusedConv": slice(1, 2),  # onnxruntime's convolution with its activation
    "ConvTranspose": slice(1, 2),
    "LSTM": slice(1, 3),
    "GRU": slice(1, 3),
}
"""Operator -> its inputs that are laid out for the processor."""
MOVES: Final = frozenset({"Concat", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
"""Operations that may lie between a constant and its operator: an LSTM's gates have another order in ONNX."""


def widen_kernels(graph: ir.Graph) -> None:
    """Replace dequantizing with a zero point of 0, where only these operators read it, by a cast and a product."""
    for node in list(graph):
        if node.op_type == "DequantizeLinear" and len(node.outputs[0].uses()) == 1 and _is_kernel(node.outputs[0]):
            _widen(graph, node)


def _is_kernel(value: ir.Value) -> bool:
    """Whether an operator of `KERNELS` reads `value` as its kernel, perhaps after moves."""
    return any(
        use.idx in range(3)[KERNELS[use.node.op_type]]
        if use.node.op_type in KERNELS
        else use.node.op_type in MOVES and any(map(_is_kernel, use.node.outputs))
        for use in value.uses()
    )


def _widen(graph: ir.Graph, node: ir.Node) -> None:
    constants = [value for value in node.inputs if value is not None and value.const_value is not None]
    if len(constants) < len(node.inputs):
        return
    values, scale, *zero_point = map(content_of, constants)
    if values.dtype != np.int8 or scale.dtype != np.float32 or any(zero.any() for zero in zero_point):
        return
    axis = (node.attributes["axis"].as_int() if "axis" in node.attributes else 1) % values.ndim
    shape = [scale.size if scale.ndim and dim == axis else 1 for dim in range(values.ndim)]
    name = str(node.outputs[0].name)
    factors = initializer(f"{name}.factors", np.ascontiguousarray(scale.reshape(shape)))
    graph.register_initializer(factors)
    cast = ir.node("Cast", [constants[0]], {"to": ir.DataType.FLOAT}, name=f"{name}.cast")
    cast.outputs[0].name = f"{name}.integers"
    product = ir.node("Mul", [cast.outputs[0], factors], name=node.name)
    put_in_place(node, [cast, product])
    for constant in constants[1:]:
        if not constant.uses():
            graph.initializers.pop(str(constant.name), None)
