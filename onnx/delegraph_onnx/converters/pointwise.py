"""Element by element: arithmetic, comparison, logic, activations, casts."""

from __future__ import annotations

import math
from typing import Any, Final

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters.extremes import limited, of_two, sign_of
from delegraph_onnx.converters.table import Convert, aten, convert_with, name_of, unless
from delegraph_onnx.dtypes import ALL, FLOATS, INDICES, NARROW, NUMBERS, NUMBERS_OR_BOOL, REALS
from delegraph_onnx.graph_builder import GraphBuilder, Scalar, TensorLike
from delegraph_onnx.node_facts import dtype_of, outer_dtype_of

BOOL = torch.bool

# ---- one operator: of operands in the result's dtype, or float for an operation that has no integers ----------------


_BITS = INDICES | {BOOL}


def _by(op_type: str, of_bools: str | None = None) -> Convert:
    """The operator `op_type`, or `of_bools` where the result is bool."""

    def convert(g: GraphBuilder, node: Node, *operands: TensorLike) -> ir.Value:
        dtype = dtype_of(node)
        return g.op(of_bools if of_bools and dtype == BOOL else op_type, *(g.tensor(each, dtype) for each in operands))

    return convert


for _names, _dtypes in (
    ("abs cos exp log neg reciprocal sin sqrt tanh", NUMBERS),
    ("acos acosh asin asinh atan atanh cosh erf sinh tan", FLOATS | INDICES),
    ("ceil floor round", REALS),
    ("relu", REALS | {torch.int32}),
):
    for _name in _names.split():
        convert_with(_name, dtypes=_dtypes)(_by(_name.capitalize()))

for _name, _op_type in (("hardswish", "HardSwish"), ("mish", "Mish"), ("selu", "Selu")):
    convert_with(_name, keep=True)(_by(_op_type))

for _names, _op_types, _dtypes in (
    ("mul.Tensor mul.Scalar", "Mul And", NUMBERS_OR_BOOL),
    ("div.Tensor div.Scalar true_divide.Tensor", "Div", NUMBERS_OR_BOOL),
    ("logical_and", "And", ALL),
    ("logical_not", "Not", ALL),
    ("logical_or", "Or", ALL),
    ("logical_xor", "Xor", ALL),
    ("bitwise_not", "BitwiseNot Not", _BITS),
    *(
        (f"bitwise_{name}.Tensor bitwise_{name}.Scalar bitwise_{name}.Scalar_Tensor __{name}__.Tensor", kinds, _BITS)
        for name, kinds in (("and", "BitwiseAnd And"), ("or", "BitwiseOr Or"), ("xor", "BitwiseXor Xor"))
    ),
):
    convert_with(_names, dtypes=_dtypes)(_by(*_op_types.split()))


@convert_with("rsqrt", dtypes=NUMBERS)
def rsqrt(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("Reciprocal", g.op("Sqrt", g.tensor(self, dtype_of(node))))


@convert_with("exp2", dtypes=REALS)
def exp2(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("Pow", g.tensor(2.0, dtype_of(node)), g.tensor(self, dtype_of(node)))


@convert_with("log2 log10", dtypes=REALS)
def log_to_base(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    dtype, base = dtype_of(node), 2.0 if node.target == aten("log2") else 10.0
    return g.op("Mul", g.op("Log", g.tensor(self, dtype)), g.tensor(1.0 / math.log(base), dtype))


@convert_with("log1p")
def log1p(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    """Exact near 0 too: log(1 + x) is scaled by what rounding lost in 1 + x (Kahan)."""
    dtype = dtype_of(node)
    x, unit = g.tensor(self, dtype), g.tensor(1.0, dtype)
    total = g.op("Add", x, unit)
    kept, log = g.op("Sub", total, unit), g.op("Log", total)
    corrected = g.op("Div", g.op("Mul", x, log), kept)
    near_zero = g.op("Where", g.op("Equal", kept, g.tensor(0.0, dtype)), x, corrected)
    return g.op("Where", g.op("Equal", kept, x), log, near_zero)


@convert_with("expm1")
def expm1(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    """Exact near 0 too: as `log1p`, the other way round."""
    dtype = dtype_of(node)
    x, unit = g.tensor(self, dtype), g.tensor(1.0, dtype)
    power = g.op("Exp", x)
    plain = g.op("Sub", power, unit)
    corrected = g.op("Div", g.op("Mul", plain, x), g.op("Log", power))
    near_zero = g.op("Where", g.op("Equal", power, unit), x, corrected)
    return g.op("Where", g.op("Less", g.op("Abs", x), g.tensor(0.5, dtype)), near_zero, plain)


@convert_with("atan2")
def atan2(g: GraphBuilder, node: Node, self: Node, other: Node) -> ir.Value:
    """The arc tangent of the quotient, half a turn further where `other` is negative, -0 included."""
    y, x = (g.operand(operand, outer_dtype_of(node)) for operand in (self, other))
    return arc_tangent(g, y, x, dtype_of(node))


def arc_tangent(g: GraphBuilder, y: ir.Value, x: ir.Value, dtype: torch.dtype) -> ir.Value:
    """The angle of (x, y)."""
    pi = g.tensor(math.pi, dtype)
    infinite = g.op("And", g.op("IsInf", y), g.op("IsInf", x))
    quotient = g.op("Where", infinite, g.op("Mul", g.op("Sign", y), g.op("Sign", x)), g.op("Div", y, x))
    are_numbers = g.op("Not", g.op("IsNaN", g.op("Add", x, y)))
    no_angle = g.op("And", g.op("IsNaN", quotient), are_numbers)  # zeros, or subnormals divided as zeros
    angle = g.op("Atan", g.op("Where", no_angle, y, quotient))
    turned = g.op("Where", is_negative(g, y, dtype), g.op("Sub", angle, pi), g.op("Add", angle, pi))
    flat = g.op("Where", is_negative(g, y, dtype), g.op("Neg", pi), pi)
    turned = g.op("Where", no_angle, flat, turned)
    return g.op("Where", is_negative(g, x, dtype), turned, angle)


def is_negative(g: GraphBuilder, value: ir.Value, dtype: torch.dtype) -> ir.Value:
    """Whether `value` is negative, -0 included: the reciprocal tells."""
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
    """Rounds to steps of a power of ten. 0.1 is no exact float: values are multiplied and divided by its reciprocal."""
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


_OF_FLOATS: Final = unless(lambda node, self: dtype_of(self) != BOOL, "the operand is bool")


@convert_with("isnan", dtypes=FLOATS | {BOOL}, check=_OF_FLOATS)
@convert_with("isinf", dtypes=REALS | {BOOL}, check=_OF_FLOATS)
def is_such(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("IsNaN" if node.target == aten("isnan") else "IsInf", g.value(self))


# ---- sums: numbers beside halves are rounded as they are --------------------------------------------------------


_GIVES_NUMBERS: Final = unless(lambda node, *_: dtype_of(node) != BOOL, "the result is a bool")


@convert_with("add.Tensor add.Scalar", dtypes=NUMBERS_OR_BOOL)
@convert_with("sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar", dtypes=NUMBERS_OR_BOOL, check=_GIVES_NUMBERS)
def total(g: GraphBuilder, node: Node, self: Node | Scalar, other: Node | Scalar, alpha: Scalar) -> ir.Value:
    if dtype_of(node) == BOOL:
        return g.op("Or", g.tensor(self, BOOL), g.tensor(other, BOOL)) if alpha else g.tensor(self, BOOL)
    kind = name_of(node)
    unscaled, scaled = (other, self) if kind == "rsub" else (self, other)
    return g.op(
        "Add" if kind == "add" else "Sub", g.operand(unscaled, outer_dtype_of(node)), _scaled(g, node, scaled, alpha)
    )


def _scaled(g: GraphBuilder, node: Node, operand: Node | Scalar, alpha: Scalar) -> ir.Value:
    dtype = dtype_of(node)
    value = g.operand(operand, outer_dtype_of(node))
    return value if alpha == 1 else g.op("Mul", value, g.tensor(alpha, dtype))


# ---- comparison: computed in the operands' common dtype ---------------------------------------------------------


@convert_with("maximum minimum", dtypes=NUMBERS)
def extreme_of_two(g: GraphBuilder, node: Node, self: Node, other: Node) -> ir.Value:
    a, b = (g.operand(each, outer_dtype_of(node)) for each in (self, other))
    return of_two(g, "Max" if node.target == aten("maximum") else "Min", a, b, dtype_of(node))


@convert_with("fmax fmin", dtypes=NUMBERS)
def number_of_two(g: GraphBuilder, node: Node, self: Node, other: Node) -> ir.Value:
    """The other operand where one is NaN."""
    dtype = dtype_of(node)
    a, b = g.tensor(self, dtype), g.tensor(other, dtype)
    chosen = of_two(g, "Max" if node.target == aten("fmax") else "Min", a, b, dtype)
    if not dtype.is_floating_point:
        return chosen
    return g.op("Where", g.op("IsNaN", a), b, g.op("Where", g.op("IsNaN", b), a, chosen))


@convert_with("hypot", dtypes=REALS)
def hypot(g: GraphBuilder, node: Node, self: Node, other: Node) -> ir.Value:
    x, y = (g.operand(operand, outer_dtype_of(node)) for operand in (self, other))
    return length(g, x, y, dtype_of(node))


def length(g: GraphBuilder, x: ir.Value, y: ir.Value, dtype: torch.dtype) -> ir.Value:
    """The length of (x, y): the ratio to the larger one is squared, since the squares may leave the dtype."""
    width, height = g.op("Abs", x), g.op("Abs", y)
    larger, smaller = g.op("Max", width, height), g.op("Min", width, height)
    ratio = g.op("Div", smaller, g.op("Max", larger, g.tensor(torch.finfo(dtype).tiny, dtype)))
    root = g.op("Sqrt", g.op("Add", g.op("Mul", ratio, ratio), g.tensor(1.0, dtype)))
    infinite = g.op("Or", g.op("IsInf", width), g.op("IsInf", height))  # beside NaN too
    return g.op("Where", infinite, g.tensor(math.inf, dtype), g.op("Mul", larger, root))


_COMPARISONS: Final = {
    **{"eq": "Equal", "ne": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"},
}


@convert_with(
    " ".join(f"{name}.{kind}" for name in _COMPARISONS for kind in ("Tensor", "Scalar")),
    dtypes=NUMBERS_OR_BOOL | NARROW,
)
def compare(g: GraphBuilder, node: Node, self: Node, other: TensorLike) -> ir.Value:
    name = name_of(node)
    result = g.op(_COMPARISONS[name], *compared(g, _COMPARISONS[name], self, other))
    return g.op("Not", result) if name == "ne" else result


def compared(g: GraphBuilder, op_type: str, *operands: Any) -> list[ir.Value]:
    """The operands in the dtype in which torch compares them, or in int32 where onnxruntime's `op_type` lacks that."""
    dtype = torch.result_type(*(o.meta["val"] if isinstance(o, Node) else o for o in operands))
    values = [g.operand(operand, dtype) for operand in operands]
    lacking = dtype in NARROW or (dtype == BOOL and op_type != "Equal")
    return [g.cast(value, torch.int32) for value in values] if lacking else values


# ---- choices ----------------------------------------------------------------------------------------------------


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
    if node.target == aten("relu6"):
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
    x, dtype = g.value(self), dtype_of(node)
    if g.target.has("Gelu", dtype):
        return g.op("Gelu", x, approximate=None if approximate == "none" else approximate)
    if approximate == "none":
        curve = g.op("Erf", g.op("Mul", x, g.tensor(math.sqrt(0.5), dtype)))
    else:
        cube = g.op("Mul", g.op("Mul", x, x), g.op("Mul", x, g.tensor(0.044715, dtype)))
        curve = g.op("Tanh", g.op("Mul", g.op("Add", x, cube), g.tensor(math.sqrt(2 / math.pi), dtype)))
    return g.op("Mul", g.op("Mul", x, g.tensor(0.5, dtype)), g.op("Add", curve, g.tensor(1.0, dtype)))


@convert_with("hardsigmoid", keep=True)
def hardsigmoid(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("HardSigmoid", g.value(self), alpha=1 / 6, beta=0.5)


_OF_ALPHA: Final = {"leaky_relu": "LeakyRelu", "celu": "Celu", "elu": "Elu"}


@convert_with("leaky_relu celu", keep=True)
@convert_with(
    "elu",
    keep=True,
    check=lambda node, self, alpha, scale, input_scale: (
        None if scale == 1 and input_scale == 1 else "elu with scale or input_scale"
    ),
)
def of_alpha(g: GraphBuilder, node: Node, self: Node, alpha: float, *_: object) -> ir.Value:
    return g.op(_OF_ALPHA[name_of(node)], g.value(self), alpha=float(alpha))


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
