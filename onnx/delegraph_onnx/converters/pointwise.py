"""Element by element: arithmetic, comparison, logic, activations, casts."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters.extremes import limited, of_two, sign_of
from delegraph_onnx.converters.table import convert_with
from delegraph_onnx.dtypes import ALL, FLOATS, INDICES, NARROW, NUMBERS, NUMBERS_OR_BOOL, REALS
from delegraph_onnx.graph_builder import GraphBuilder, Scalar, TensorLike
from delegraph_onnx.node_facts import dtype_of, outer_dtype_of

BOOL = torch.bool

# ---- one operand: the result's dtype is the operand's, or float for an operation that has no integers ----------

for _names, _op_type, _dtypes in (
    ("abs", "Abs", NUMBERS),
    ("acos", "Acos", FLOATS | INDICES),
    ("acosh", "Acosh", FLOATS | INDICES),
    ("asin", "Asin", FLOATS | INDICES),
    ("asinh", "Asinh", FLOATS | INDICES),
    ("atan", "Atan", FLOATS | INDICES),
    ("atanh", "Atanh", FLOATS | INDICES),
    ("ceil", "Ceil", REALS),
    ("cos", "Cos", NUMBERS),
    ("cosh", "Cosh", FLOATS | INDICES),
    ("erf", "Erf", FLOATS | INDICES),
    ("exp", "Exp", NUMBERS),
    ("floor", "Floor", REALS),
    ("hardswish", "HardSwish", FLOATS),
    ("log", "Log", NUMBERS),
    ("mish", "Mish", FLOATS),
    ("neg", "Neg", NUMBERS),
    ("reciprocal", "Reciprocal", NUMBERS),
    ("relu", "Relu", REALS | {torch.int32}),
    ("round", "Round", REALS),
    ("sin", "Sin", NUMBERS),
    ("sinh", "Sinh", FLOATS | INDICES),
    ("sqrt", "Sqrt", NUMBERS),
    ("tan", "Tan", FLOATS | INDICES),
    ("tanh", "Tanh", NUMBERS),
):

    def _unary(g: GraphBuilder, node: Node, self: Node, *_: object, op_type: str = _op_type) -> ir.Value:
        return g.op(op_type, g.tensor(self, dtype_of(node)))

    convert_with(_names, dtypes=_dtypes, keep=_names in ("hardswish", "mish"))(_unary)


@convert_with("rsqrt", dtypes=NUMBERS)
def rsqrt(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("Reciprocal", g.op("Sqrt", g.tensor(self, dtype_of(node))))


@convert_with("exp2", dtypes=REALS)
def exp2(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("Pow", g.tensor(2.0, dtype_of(node)), g.tensor(self, dtype_of(node)))


@convert_with("log2", dtypes=REALS)
def log2(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return _log_to_base(g, node, self, 2.0)


@convert_with("log10", dtypes=REALS)
def log10(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return _log_to_base(g, node, self, 10.0)


def _log_to_base(g: GraphBuilder, node: Node, self: Node, base: float) -> ir.Value:
    dtype = dtype_of(node)
    return g.op("Mul", g.op("Log", g.tensor(self, dtype)), g.tensor(1.0 / math.log(base), dtype))


@convert_with("log1p")
def log1p(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    """Exact near 0 too: log(1 + x) is scaled by what rounding lost in 1 + x (Kahan)."""
    dtype = dtype_of(node)
    x, one = g.tensor(self, dtype), g.tensor(1.0, dtype)
    total = g.op("Add", x, one)
    kept, log = g.op("Sub", total, one), g.op("Log", total)
    corrected = g.op("Div", g.op("Mul", x, log), kept)
    near_zero = g.op("Where", g.op("Equal", kept, g.tensor(0.0, dtype)), x, corrected)
    return g.op("Where", g.op("Equal", kept, x), log, near_zero)


@convert_with("expm1")
def expm1(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    """Exact near 0 too: as `log1p`, the other way round."""
    dtype = dtype_of(node)
    x, one = g.tensor(self, dtype), g.tensor(1.0, dtype)
    power = g.op("Exp", x)
    plain = g.op("Sub", power, one)
    corrected = g.op("Div", g.op("Mul", plain, x), g.op("Log", power))
    near_zero = g.op("Where", g.op("Equal", power, one), x, corrected)
    return g.op("Where", g.op("Less", g.op("Abs", x), g.tensor(0.5, dtype)), near_zero, plain)


@convert_with("atan2")
def atan2(g: GraphBuilder, node: Node, self: Node, other: Node) -> ir.Value:
    """The arc tangent of the quotient, half a turn further where `other` is negative, of both signs of zero."""
    y, x = (g.operand(operand, outer_dtype_of(node)) for operand in (self, other))
    return arc_tangent(g, y, x, dtype_of(node))


def arc_tangent(g: GraphBuilder, y: ir.Value, x: ir.Value, dtype: torch.dtype) -> ir.Value:
    """The angle of (x, y)."""
    zero, pi = g.tensor(0.0, dtype), g.tensor(math.pi, dtype)
    infinite = g.op("And", g.op("IsInf", y), g.op("IsInf", x))
    no_angle = g.op("And", g.op("Equal", x, zero), g.op("Equal", y, zero))
    quotient = g.op("Where", infinite, g.op("Mul", g.op("Sign", y), g.op("Sign", x)), g.op("Div", y, x))
    angle = g.op("Atan", g.op("Where", no_angle, y, quotient))
    turned = g.op("Where", is_negative(g, y, dtype), g.op("Sub", angle, pi), g.op("Add", angle, pi))
    flat = g.op("Where", is_negative(g, y, dtype), g.op("Neg", pi), pi)
    turned = g.op("Where", no_angle, flat, turned)
    return g.op("Where", is_negative(g, x, dtype), turned, angle)


def is_negative(g: GraphBuilder, value: ir.Value, dtype: torch.dtype) -> ir.Value:
    """Also of -0, of which the reciprocal is."""
    zero = g.tensor(0.0, dtype)
    signed = g.op("Where", g.op("Equal", value, zero), g.op("Reciprocal", value), value)
    return g.op("Less", signed, zero)


@convert_with("trunc", dtypes=REALS)
def trunc(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return truncated(g, g.value(self), dtype_of(node))


def truncated(g: GraphBuilder, value: ir.Value, dtype: torch.dtype) -> ir.Value:
    return g.op("Where", g.op("Less", value, g.tensor(0.0, dtype)), g.op("Ceil", value), g.op("Floor", value))


@convert_with("round.decimals", dtypes=REALS)
def round_decimals(g: GraphBuilder, node: Node, self: Node, decimals: int) -> ir.Value:
    """In steps of a power of ten, which is no float itself where there are decimals: multiplied and divided by."""
    dtype = dtype_of(node)
    value, power = g.value(self), g.tensor(float(f"1e{abs(decimals)}"), dtype)
    there, back = ("Mul", "Div") if decimals > 0 else ("Div", "Mul")
    return g.op(back, g.op("Round", g.op(there, value, power)), power)


@convert_with("sign sgn", dtypes=NUMBERS)
def sign(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    """The sign of NaN is 0 in torch and NaN in ONNX."""
    value, dtype = g.value(self), dtype_of(node)
    result = sign_of(g, value, dtype)
    return result if dtype in INDICES else g.op("Where", g.op("IsNaN", value), g.tensor(0.0, dtype), result)


def _float_operand(node: Node, self: Node) -> str | None:
    return "the operand is bool" if dtype_of(self) == BOOL else None


@convert_with("isnan", dtypes=FLOATS | {BOOL}, check=_float_operand)
def isnan(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("IsNaN", g.value(self))


@convert_with("isinf", dtypes=REALS | {BOOL}, check=_float_operand)
def isinf(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("IsInf", g.value(self))


@convert_with("logical_not", dtypes=ALL)
def logical_not(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("Not", g.tensor(self, BOOL))


@convert_with("bitwise_not", dtypes=INDICES | {BOOL})
def bitwise_not(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("Not" if dtype_of(node) == BOOL else "BitwiseNot", g.value(self))


# ---- two operands: computed in the result's dtype ---------------------------------------------------------------

for _names, _op_type, _dtypes in (
    ("mul.Tensor mul.Scalar", "Mul", NUMBERS_OR_BOOL),
    ("div.Tensor div.Scalar true_divide.Tensor", "Div", NUMBERS_OR_BOOL),
):

    def _binary(g: GraphBuilder, node: Node, self: TensorLike, other: TensorLike, op_type: str = _op_type) -> ir.Value:
        dtype = dtype_of(node)
        if dtype == BOOL:
            return g.op("And", g.tensor(self, dtype), g.tensor(other, dtype))
        return g.op(op_type, g.tensor(self, dtype), g.tensor(other, dtype))

    convert_with(_names, dtypes=_dtypes)(_binary)


@convert_with("add.Tensor add.Scalar", dtypes=NUMBERS_OR_BOOL)
def add(g: GraphBuilder, node: Node, self: Node | Scalar, other: Node | Scalar, alpha: Scalar) -> ir.Value:
    if dtype_of(node) == BOOL:
        return g.op("Or", g.tensor(self, BOOL), g.tensor(other, BOOL)) if alpha else g.tensor(self, BOOL)
    return g.op("Add", g.operand(self, outer_dtype_of(node)), _scaled(g, node, other, alpha))


def _no_bool_result(node: Node, *_: object) -> str | None:
    return "the result is a bool" if dtype_of(node) == BOOL else None


@convert_with("sub.Tensor sub.Scalar", dtypes=NUMBERS_OR_BOOL, check=_no_bool_result)
def sub(g: GraphBuilder, node: Node, self: Node | Scalar, other: Node | Scalar, alpha: Scalar) -> ir.Value:
    return g.op("Sub", g.operand(self, outer_dtype_of(node)), _scaled(g, node, other, alpha))


@convert_with("rsub.Tensor rsub.Scalar", dtypes=NUMBERS_OR_BOOL, check=_no_bool_result)
def rsub(g: GraphBuilder, node: Node, self: Node | Scalar, other: Node | Scalar, alpha: Scalar) -> ir.Value:
    return g.op("Sub", g.operand(other, outer_dtype_of(node)), _scaled(g, node, self, alpha))


def _scaled(g: GraphBuilder, node: Node, operand: Node | Scalar, alpha: Scalar) -> ir.Value:
    dtype = dtype_of(node)
    value = g.operand(operand, outer_dtype_of(node))
    return value if alpha == 1 else g.op("Mul", value, g.tensor(alpha, dtype))


# ---- comparison: computed in the operands' common dtype ---------------------------------------------------------

for _name, _op_type in (("maximum", "Max"), ("minimum", "Min")):

    def _of_two(g: GraphBuilder, node: Node, self: Node, other: Node, op_type: str = _op_type) -> ir.Value:
        dtype = outer_dtype_of(node)
        return of_two(g, op_type, g.operand(self, dtype), g.operand(other, dtype), dtype_of(node))

    convert_with(_name, dtypes=NUMBERS)(_of_two)

for _name, _op_type in (("fmax", "Max"), ("fmin", "Min")):

    def _number_of_two(g: GraphBuilder, node: Node, self: Node, other: Node, op_type: str = _op_type) -> ir.Value:
        """Where one of them is not a number, the other."""
        dtype = dtype_of(node)
        one, two = g.tensor(self, dtype), g.tensor(other, dtype)
        chosen = of_two(g, op_type, one, two, dtype)
        if not dtype.is_floating_point:
            return chosen
        return g.op("Where", g.op("IsNaN", one), two, g.op("Where", g.op("IsNaN", two), one, chosen))

    convert_with(_name, dtypes=NUMBERS)(_number_of_two)


@convert_with("hypot", dtypes=REALS)
def hypot(g: GraphBuilder, node: Node, self: Node, other: Node) -> ir.Value:
    x, y = (g.operand(operand, outer_dtype_of(node)) for operand in (self, other))
    return length(g, x, y, dtype_of(node))


def length(g: GraphBuilder, x: ir.Value, y: ir.Value, dtype: torch.dtype) -> ir.Value:
    """That of (x, y), by the larger one before it is squared: a square may be too large for the dtype, or too small."""
    one, two = g.op("Abs", x), g.op("Abs", y)
    larger, smaller = g.op("Max", one, two), g.op("Min", one, two)
    ratio = g.op("Div", smaller, g.op("Max", larger, g.tensor(torch.finfo(dtype).tiny, dtype)))
    root = g.op("Sqrt", g.op("Add", g.op("Mul", ratio, ratio), g.tensor(1.0, dtype)))
    infinite = g.op("Or", g.op("IsInf", one), g.op("IsInf", two))  # beside what is not a number too
    return g.op("Where", infinite, g.tensor(math.inf, dtype), g.op("Mul", larger, root))


for _name, _op_type, _negated in (
    ("eq", "Equal", False),
    ("ne", "Equal", True),
    ("lt", "Less", False),
    ("le", "LessOrEqual", False),
    ("gt", "Greater", False),
    ("ge", "GreaterOrEqual", False),
):

    def _compare(
        g: GraphBuilder,
        node: Node,
        self: Node,
        other: TensorLike,
        op_type: str = _op_type,
        negated: bool = _negated,
    ) -> ir.Value:
        result = g.op(op_type, *compared(g, op_type, self, other))
        return g.op("Not", result) if negated else result

    convert_with(f"{_name}.Tensor {_name}.Scalar", dtypes=NUMBERS_OR_BOOL | NARROW)(_compare)


def compared(g: GraphBuilder, op_type: str, *operands: Any) -> list[ir.Value]:
    """The operands in the dtype that torch compares them in, or in int32 where onnxruntime's `op_type` lacks that."""
    dtype = torch.result_type(*(o.meta["val"] if isinstance(o, Node) else o for o in operands))
    values = [g.operand(operand, dtype) for operand in operands]
    lacking = dtype in NARROW or (dtype == BOOL and op_type != "Equal")
    return [g.cast(value, torch.int32) for value in values] if lacking else values


# ---- logic ------------------------------------------------------------------------------------------------------

for _names, _op_type in (
    ("logical_and", "And"),
    ("logical_or", "Or"),
    ("logical_xor", "Xor"),
):

    def _logical(g: GraphBuilder, node: Node, self: Node, other: Node, op_type: str = _op_type) -> ir.Value:
        return g.op(op_type, g.tensor(self, BOOL), g.tensor(other, BOOL))

    convert_with(_names, dtypes=ALL)(_logical)

for _names, _logical_type, _bitwise_type in (
    ("bitwise_and.Tensor bitwise_and.Scalar bitwise_and.Scalar_Tensor __and__.Tensor", "And", "BitwiseAnd"),
    ("bitwise_or.Tensor bitwise_or.Scalar bitwise_or.Scalar_Tensor __or__.Tensor", "Or", "BitwiseOr"),
    ("bitwise_xor.Tensor bitwise_xor.Scalar bitwise_xor.Scalar_Tensor __xor__.Tensor", "Xor", "BitwiseXor"),
):

    def _bitwise(
        g: GraphBuilder,
        node: Node,
        self: TensorLike,
        other: TensorLike,
        logical: str = _logical_type,
        bitwise: str = _bitwise_type,
    ) -> ir.Value:
        dtype = dtype_of(node)
        return g.op(logical if dtype == BOOL else bitwise, g.tensor(self, dtype), g.tensor(other, dtype))

    convert_with(_names, dtypes=INDICES | {BOOL})(_bitwise)


@convert_with("where.self where.ScalarOther where.ScalarSelf", dtypes=NUMBERS_OR_BOOL)
def where(g: GraphBuilder, node: Node, condition: Node, self: Node | Scalar, other: Node | Scalar) -> ir.Value:
    chosen, rest = (g.operand(operand, outer_dtype_of(node)) for operand in (self, other))
    return select_where(g, g.tensor(condition, BOOL), chosen, rest, dtype_of(node))


def select_where(g: GraphBuilder, chosen: ir.Value, value: ir.Value, other: ir.Value, dtype: torch.dtype) -> ir.Value:
    """`value` where `chosen`, else `other`; onnxruntime has no Where for bool."""
    if dtype != BOOL:
        return g.op("Where", chosen, value, other)
    return g.op("Or", g.op("And", chosen, value), g.op("And", g.op("Not", chosen), other))


@convert_with("masked_fill.Scalar masked_fill.Tensor", dtypes=NUMBERS_OR_BOOL, keep=True)
def masked_fill(g: GraphBuilder, node: Node, self: Node, mask: Node, value: Node | Scalar) -> ir.Value:
    return where(g, node, mask, value, self)


# ---- activations ------------------------------------------------------------------------------------------------


@convert_with("clamp hardtanh relu6", dtypes=NUMBERS)
def clamp(g: GraphBuilder, node: Node, self: Node, low: Any = None, high: Any = None) -> ir.Value:
    if node.target == torch.ops.aten.relu6.default:
        low, high = 0, 6
    dtype = dtype_of(node)
    if dtype not in INDICES:  # a bound that is missing is the largest finite number to onnxruntime
        low, high = -math.inf if low is None else low, math.inf if high is None else high
    least, most = (None if bound is None else g.operand(bound, outer_dtype_of(node)) for bound in (low, high))
    return limited(g, g.tensor(self, dtype), least, most, dtype)


@convert_with("clamp.Tensor", dtypes=NUMBERS)
def clamp_tensor(g: GraphBuilder, node: Node, self: Node, low: Node | None, high: Node | None) -> ir.Value:
    dtype = dtype_of(node)
    value = g.tensor(self, dtype)
    if low is not None:
        value = of_two(g, "Max", value, g.tensor(low, dtype), dtype)
    return value if high is None else of_two(g, "Min", value, g.tensor(high, dtype), dtype)


@convert_with("gelu", keep=True)
def gelu(g: GraphBuilder, node: Node, self: Node, approximate: str) -> ir.Value:
    return g.op("Gelu", g.value(self), approximate=None if approximate == "none" else approximate)


@convert_with("hardsigmoid", keep=True)
def hardsigmoid(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("HardSigmoid", g.value(self), alpha=1 / 6, beta=0.5)


@convert_with("leaky_relu", keep=True)
def leaky_relu(g: GraphBuilder, node: Node, self: Node, negative_slope: float) -> ir.Value:
    return g.op("LeakyRelu", g.value(self), alpha=float(negative_slope))


@convert_with(
    "elu",
    keep=True,
    check=lambda node, self, alpha, scale, input_scale: (
        None if scale == 1 and input_scale == 1 else "elu with scale or input_scale"
    ),
)
def elu(g: GraphBuilder, node: Node, self: Node, alpha: float, *_: object) -> ir.Value:
    return g.op("Elu", g.value(self), alpha=float(alpha))


@convert_with("selu", keep=True)
def selu(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("Selu", g.value(self))


@convert_with("celu", keep=True)
def celu(g: GraphBuilder, node: Node, self: Node, alpha: float) -> ir.Value:
    return g.op("Celu", g.value(self), alpha=float(alpha))


@convert_with("softplus", keep=True)
def softplus(g: GraphBuilder, node: Node, self: Node, beta: Scalar, threshold: Scalar) -> ir.Value:
    """log(1 + exp(beta x)) / beta, and x itself beyond the threshold."""
    dtype, value = dtype_of(node), g.value(self)
    scaled = value if beta == 1 else g.op("Mul", value, g.tensor(beta, dtype))
    soft = g.op("Softplus", scaled)
    result = soft if beta == 1 else g.op("Div", soft, g.tensor(beta, dtype))
    return g.op("Where", g.op("Greater", scaled, g.tensor(threshold, dtype)), value, result)


@convert_with("log_sigmoid", keep=True)
def log_sigmoid(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("Neg", g.op("Softplus", g.op("Neg", g.value(self))))
