"""The capabilities of OpenVINO's CPU device, for converters to ONNX; and the table that the partitioner asks."""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import Node

from delegraph.aot.authoring import ConverterTable, operator_name, quantize_call, tensors_of
from delegraph_onnx.converters import TargetTable
from delegraph_onnx.converters.sampling import MODES, PADDINGS
from delegraph_onnx.dtypes import ONNX_TYPES
from delegraph_onnx.target import QuantizedAs, Target
from delegraph_openvino.aot.rounded_values import PRODUCTS
from delegraph_openvino.aot.wide_integers import MOVES, check_int64
from delegraph_openvino.blob import BACKEND_ID

__all__ = ["OPENVINO", "TABLE"]

_BYTES: Final = frozenset({torch.int8, torch.uint8})
_SMALLEST_STEP: Final = 2.0**-20
"""Of a grid of values. Between one of 2^-7 and one of 2^-24 OpenVINO is several steps off, and below 2^-33 all is NaN;
a value of such a range is what a sum leaves that is zero but for roundings."""
_PARAMETERS: Final = "quantized_decomposed::"
"""The prefix of calls with operands that are scales in float64, which stay within the calls."""


_DIVISIONS: Final = frozenset({"aten::floor_divide", "aten::remainder", "aten::fmod"})
_LOOPS: Final = frozenset(
    {torch.ops.higher_order.while_loop, torch.ops.higher_order.scan, torch.ops.higher_order.map_impl}
)


def _declined(node: Node) -> str | None:
    if node.target in _LOOPS:
        return "OpenVINO is not stopped within a loop"
    if "circular" in node.args and not all(isinstance(size, int) for size in node.args[1]):  # type: ignore[union-attr]
        return "OpenVINO has no circular padding, and it is known in the run alone"
    if operator_name(node).startswith("aten::grid_sampler"):
        return _declined_sampling(node)
    divides = operator_name(node).split(".")[0] in _DIVISIONS or node.kwargs.get("rounding_mode") is not None
    if divides and node.meta["val"].is_floating_point():
        return "OpenVINO's quotients of floats may be one digit off, and be cut to another number"
    if operator_name(node).startswith(_PARAMETERS):
        return _declined_quantization(node)
    for tensor in tensors_of(node):
        if tensor.dtype == torch.float64:
            return "OpenVINO computes float64 in 32 bits"
        if any(isinstance(size, int) and size == 0 for size in tensor.shape):
            return "a tensor is empty"
    if _computes_int16(node):
        return "OpenVINO computes int16 in 32 bits, where what is too large does not wrap"
    if operator_name(node).split(".")[0] in PRODUCTS and not node.meta["val"].is_floating_point():
        return "OpenVINO multiplies matrices of integers as float32"
    return check_int64(node)


def _computes_int16(node: Node) -> bool:
    """Whether a result is of int16, and not of elements of the operands. It wraps only where it leaves the delegate."""
    val = node.meta["val"]
    return isinstance(val, torch.Tensor) and val.dtype == torch.int16 and str(node.target) not in MOVES


def _declined_sampling(node: Node) -> str | None:
    if operator_name(node) == "aten::grid_sampler_3d":
        return "OpenVINO samples images of two dims"
    is_mirrored = MODES[node.args[2]] == "nearest" and PADDINGS[node.args[3]] == "reflection"  # type: ignore[index]
    return "of two pixels in a mirror image that are as near, OpenVINO takes the other" if is_mirrored else None


def _declined_quantization(node: Node) -> str | None:
    if operator_name(node).startswith("quantized_decomposed::choose_qparams"):
        return _leaves_its_scale(node)
    call = quantize_call(node)
    if call is not None and not call.quantizes and node.meta["val"].dtype == torch.float64:
        return "its result is float64"
    if call is not None and isinstance(call.scale, float) and 0 < call.scale < _SMALLEST_STEP:
        return f"its step is {call.scale:.3g}, so small that OpenVINO, which joins roundings, loses it or gives NaN"
    return None if call is None or call.dtype in _BYTES else f"its integers are {call.dtype}, not int8 or uint8"


def _leaves_its_scale(node: Node) -> str | None:
    for result in node.users:
        for user in result.users:
            call = quantize_call(user)
            if call is None or call.dtype not in _BYTES:
                return f"its scale is float64, and {user.name}, which reads it, is left"
    return None


OPENVINO: Final = Target(
    BACKEND_ID,
    producer="delegraph-openvino",
    dtypes=frozenset({*ONNX_TYPES, torch.complex64}),
    quantized_as=QuantizedAs.KERNELS,
    attention_from=1025,  # models take 1 to 3 % longer with it (OpenVINO 2026.4, rows up to 384)
    slow_subnormals=False,
    lacks={
        "Cast": frozenset({torch.bool}),  # a number that rounds to zero would be false
        "ReduceMax": frozenset({torch.float32}),  # if all elements are -inf it is the lowest number
    },
    exact_max_pool=True,  # see `exact`
    recurrent_nan=True,
    refuses_places=False,
    negative_places=frozenset({"Gather"}),
    partial_gather=False,
    pad_modes=frozenset({"constant", "reflect", "edge"}),
    loops=False,
    declines=_declined,
)

TABLE: Final[ConverterTable] = TargetTable(OPENVINO)
