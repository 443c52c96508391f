"""Operators that compute each element by itself -> OpenVINO."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from openvino import Output
from torch.fx import Node

from delegraph_openvino.aot.graph_builder import GraphBuilder, dtype_of
from delegraph_openvino.aot.rounded_values import with_reals
from delegraph_openvino.aot.table import ALL, FLOATS, NUMBERS, converts

_BOOL: Final = frozenset({torch.bool})

# ---- one operand --------------------------------------------------------------------------------------------------

_FLOAT_FUNCTIONS: Final = """
    acos acosh asin asinh atan atanh cos cosh erf exp log sigmoid sin sinh sqrt tan tanh relu:relu ceil:ceiling
    floor:floor mish:mish hardswish:hswish
"""
_KEPT: Final = {"mish", "hardswish"}


def _register_functions() -> None:
    for name in _FLOAT_FUNCTIONS.split():
        ours, _, theirs = name.partition(":")

        def function(g: GraphBuilder, node: Node, x: Node, *, op: str = theirs or ours) -> Output:
            return g.op(op, x)

        converts(f"{ours}.default", keep=ours in _KEPT)(function)


_register_functions()


@converts("silu.default", keep=True)
def silu(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("swish", x, 1.0, dtype=dtype_of(node))  # without it OpenVINO adds one in float32, and refuses the two


@converts("selu.default", keep=True)
def selu(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("selu", x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, dtype=dtype_of(node))


@converts("neg.default", dtypes=NUMBERS)
def neg(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("negative", x)


@converts("abs.default", dtypes=NUMBERS)
def absolute(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("abs", x)


@converts("sign.default")
def sign(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("sign", x)


@converts("rsqrt.default")
def rsqrt(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("divide", g.operand(1.0, dtype_of(node)), g.op("sqrt", x))


@converts("reciprocal.default")
def reciprocal(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("divide", g.operand(1.0, dtype_of(node)), x)


@converts("round.default")
def round_half_even(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("round", x, mode="half_to_even")


@converts("trunc.default")
def trunc(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("multiply", g.op("sign", x), g.op("floor", g.op("abs", x)))


@converts("expm1.default")
def expm1(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("subtract", g.op("exp", x), 1.0, dtype=dtype_of(node))


@converts("log1p.default")
def log1p(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("log", g.op("add", x, 1.0, dtype=dtype_of(node)))


@converts("log2.default", "log10.default")
def log_of_base(g: GraphBuilder, node: Node, x: Node) -> Output:
    base = 2 if "log2" in str(node.target) else 10
    return g.op("multiply", g.op("log", x), 1 / math.log(base), dtype=dtype_of(node))


@converts("gelu.default", keep=True)
def gelu(g: GraphBuilder, node: Node, x: Node, approximate: str) -> Output:
    return g.op("gelu", x, approximation_mode="erf" if approximate == "none" else "tanh")


@converts("leaky_relu.default", keep=True)
def leaky_relu(g: GraphBuilder, node: Node, x: Node, slope: float) -> Output:
    return g.op("prelu", x, slope, dtype=dtype_of(node))


@converts("_prelu_kernel.default", "prelu.default")
def prelu(g: GraphBuilder, node: Node, x: Node, slope: Node) -> Output:
    negative = g.op("multiply", g.op("minimum", x, 0.0, dtype=dtype_of(node)), slope)
    return g.op("add", g.op("relu", x), negative)


def _plain_elu(node: Node, x: Node, alpha: float, scale: float, input_scale: float) -> str | None:
    return None if scale == 1 and input_scale == 1 else "its scales are not 1"


@converts("elu.default", check=_plain_elu, keep=True)
def elu(g: GraphBuilder, node: Node, x: Node, alpha: float, *_: float) -> Output:
    return g.op("elu", x, alpha=float(alpha))


@converts("hardsigmoid.default", keep=True)
def hardsigmoid(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("hard_sigmoid", x, 1 / 6, 0.5, dtype=dtype_of(node))


def _default_softplus(node: Node, x: Node, beta: float, threshold: float) -> str | None:
    return None if beta == 1 and threshold >= 20 else "its beta is not 1, or its threshold below 20"


@converts("softplus.default", check=_default_softplus, keep=True)
def softplus(g: GraphBuilder, node: Node, x: Node, *_: float) -> Output:
    return g.op("softplus", x)


@converts("hardtanh.default", "clamp.default", dtypes=NUMBERS)
def clamp(g: GraphBuilder, node: Node, x: Node, low: Any, high: Any) -> Output:
    value = with_reals(g, x, node)
    if dtype_of(node).is_floating_point and None not in (low, high) and low <= high:
        return g.op("clamp", value, min_value=float(low), max_value=float(high))
    for op, bound in (("maximum", low), ("minimum", high)):
        value = value if bound is None else g.op(op, value, bound, dtype=dtype_of(node))
    return value


@converts("clamp.Tensor", dtypes=NUMBERS)
def clamp_tensor(g: GraphBuilder, node: Node, x: Node, low: Node | None, high: Node | None) -> Output:
    value = with_reals(g, x, node)
    for op, bound in (("maximum", low), ("minimum", high)):
        value = value if bound is None else g.op(op, value, g.cast(bound, dtype_of(node)))
    return value


@converts("logical_not.default", dtypes=ALL)
@converts("bitwise_not.default", dtypes=_BOOL)
def logical_not(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("logical_not", g.cast(x, torch.bool))


@converts("isnan.default", dtypes=ALL)
def isnan(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("is_nan", g.cast(x, torch.float32))


@converts("isinf.default", dtypes=ALL)
def isinf(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.op("is_inf", g.cast(x, torch.float32))


# ---- two ----------------------------------------------------------------------------------------------------------


@converts("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", dtypes=NUMBERS)
def add(g: GraphBuilder, node: Node, x: Any, y: Any, alpha: Any) -> Output:
    left, right = (g.cast(operand, dtype_of(node)) for operand in (x, y))
    if alpha != 1:
        right = g.op("multiply", right, alpha, dtype=dtype_of(node))
    return g.op("add" if ".add." in str(node.target) else "subtract", left, right)


_BINARY: Final = {
    "mul.Tensor": "multiply",
    "mul.Scalar": "multiply",
    "pow.Tensor_Tensor": "power",
    "pow.Tensor_Scalar": "power",
    "pow.Scalar": "power",
    "remainder.Tensor": "floor_mod",
    "remainder.Scalar": "floor_mod",
    "fmod.Tensor": "mod",
    "fmod.Scalar": "mod",
    "bitwise_and.Tensor": "bitwise_and",
    "bitwise_and.Scalar": "bitwise_and",
    "bitwise_or.Tensor": "bitwise_or",
    "bitwise_or.Scalar": "bitwise_or",
    "bitwise_xor.Tensor": "bitwise_xor",
    "bitwise_xor.Scalar": "bitwise_xor",
}


@converts(*(name for name in _BINARY if name.startswith("bitwise")), dtypes=ALL)
@converts("remainder.Tensor", "remainder.Scalar", "fmod.Tensor", "fmod.Scalar", dtypes=NUMBERS)
@converts("mul.Tensor", "mul.Scalar", dtypes=NUMBERS)
@converts("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def binary(g: GraphBuilder, node: Node, x: Any, y: Any) -> Output:
    left, right = (g.cast(operand, dtype_of(node)) for operand in (x, y))
    return g.op(_BINARY[str(node.target).removeprefix("aten.")], left, right)


@converts("maximum.default", "minimum.default", dtypes=NUMBERS)
def extreme_of_two(g: GraphBuilder, node: Node, x: Node, y: Node) -> Output:
    """One behind the other are a Clamp to OpenVINO."""
    return g.op(str(node.target).split(".")[1], *(with_reals(g, operand, node) for operand in (x, y)))


def _float_result(node: Node, *_: Any) -> str | None:
    return None if dtype_of(node).is_floating_point else "its result is not a floating-point number"


@converts("div.Tensor", "div.Scalar", "true_divide.Tensor", dtypes=NUMBERS, check=_float_result)
def divide(g: GraphBuilder, node: Node, x: Any, y: Any) -> Output:
    left, right = (g.cast(operand, dtype_of(node)) for operand in (x, y))
    return g.op("divide", left, right)


def _floats_or_bytes(node: Node, x: Any, y: Any, mode: str | None) -> str | None:
    if dtype_of(node) != torch.uint8:
        return _float_result(node)
    return None if mode is not None else "its result is not a byte"


@converts("div.Tensor_mode", "div.Scalar_mode", dtypes=FLOATS | {torch.uint8}, check=_floats_or_bytes)
def divide_rounded(g: GraphBuilder, node: Node, x: Any, y: Any, mode: str | None) -> Output:
    if dtype_of(node) == torch.uint8:  # of bytes, float32 has every quotient's floor
        return g.cast(g.op("floor", g.op("divide", *(g.cast(n, torch.float32) for n in (x, y)))), torch.uint8)
    quotient = divide(g, node, x, y)
    if mode == "trunc":
        return g.op("multiply", g.op("sign", quotient), g.op("floor", g.op("abs", quotient)))
    return quotient if mode is None else g.op("floor", quotient)


_COMPARISONS: Final = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}  # fmt: skip


@converts(*(f"{name}.{form}" for name in _COMPARISONS for form in ("Tensor", "Scalar")), dtypes=ALL)
def compare(g: GraphBuilder, node: Node, x: Any, y: Any) -> Output:
    dtype = torch.result_type(_example(x), _example(y))
    if dtype == torch.bool:
        dtype = torch.int32
    return g.op(_COMPARISONS[str(node.target).split(".")[1]], g.cast(x, dtype), g.cast(y, dtype))


def _example(operand: Any) -> Any:
    """What torch takes a dtype from; a size is an integer."""
    value = operand.meta["val"] if isinstance(operand, Node) else operand
    return value if isinstance(value, torch.Tensor | bool | int | float) else 1


@converts("logical_and.default", dtypes=_BOOL)
def logical_and(g: GraphBuilder, node: Node, x: Any, y: Any) -> Output:
    return g.op("logical_and", g.cast(x, torch.bool), g.cast(y, torch.bool))


@converts("logical_or.default", dtypes=_BOOL)
def logical_or(g: GraphBuilder, node: Node, x: Any, y: Any) -> Output:
    return g.op("logical_or", g.cast(x, torch.bool), g.cast(y, torch.bool))


@converts("logical_xor.default", dtypes=_BOOL)
def logical_xor(g: GraphBuilder, node: Node, x: Any, y: Any) -> Output:
    return g.op("logical_xor", g.cast(x, torch.bool), g.cast(y, torch.bool))


# ---- a choice -----------------------------------------------------------------------------------------------------


@converts("where.self", dtypes=ALL)
def where(g: GraphBuilder, node: Node, condition: Node, x: Any, y: Any) -> Output:
    chosen = (g.cast(operand, dtype_of(node)) for operand in (x, y))
    return g.op("select", g.cast(condition, torch.bool), *chosen)


@converts("masked_fill.Scalar", "masked_fill.Tensor", dtypes=ALL, keep=True)
def masked_fill(g: GraphBuilder, node: Node, x: Node, mask: Node, value: Any) -> Output:
    return g.op("select", mask, g.cast(value, dtype_of(node)), x)
