"""Operators on elements: arithmetic, functions of one number by table or by their value at each float16, limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.fx import Node

from delegraph.aot.authoring import Quantization, clamp_limits
from delegraph_dsp.aot.grids import function_table, output_integers, scaled
from delegraph_dsp.aot.kernel_calls import View
from delegraph_dsp.aot.kernel_graph import TABLE, KernelGraph, Unsupported, shape_of
from delegraph_dsp.program import BINARY_FUNCTIONS, FUNCTIONS
from delegraph_dsp.runtime.functions import REAL_FUNCTIONS
from delegraph_machines.fixed_point import not_interpolated

__all__: list[str] = []

aten = torch.ops.aten


# ---- functions of one ---------------------------------------------------------------------------------------------

_UNARY: Final[dict[Any, str]] = {
    aten.exp.default: "exp",
    aten.log.default: "log",
    aten.sigmoid.default: "sigmoid",
    aten.tanh.default: "tanh",
    aten.silu.default: "silu",
    aten.erf.default: "erf",
    aten.sqrt.default: "sqrt",
    aten.rsqrt.default: "rsqrt",
    aten.reciprocal.default: "reciprocal",
    aten.hardsigmoid.default: "hardsigmoid",
    aten.hardswish.default: "hardswish",
    aten.sin.default: "sin",
    aten.cos.default: "cos",
    aten.mish.default: "mish",
    aten.log1p.default: "log1p",
    aten.expm1.default: "expm1",
    aten.abs.default: "abs",
    aten.neg.default: "neg",
    aten.floor.default: "floor",
    aten.ceil.default: "ceil",
}


def unary(graph: KernelGraph, node: Node, source: Node, function: str) -> View:
    """A function of each element."""
    codes = graph.codes(source)
    if codes is None:
        x = graph.real(source)
        return graph.pointwise("unary", [x], graph.made("float16", x.shape), (FUNCTIONS.index(function),))
    grid = graph.grid_of(node)
    reason = _far_from_lines(function, codes.grid)
    if reason is not None:
        raise Unsupported(reason)
    return table(graph, codes, grid, REAL_FUNCTIONS[function])


def _far_from_lines(function: str, grid: Quantization | None) -> str | None:
    """The reason why an int16 table does not approximate a function; int8 tables are exact."""
    if grid is None or grid.dtype != torch.int16:
        return None
    low, high = ((code - int(grid.zero_point)) * float(grid.scale) for code in (grid.qmin, grid.qmax))
    return not_interpolated(function, low, high)


def table(graph: KernelGraph, codes: View, grid: Quantization, function: Callable[[Any], Any]) -> View:
    """A function of codes."""
    assert codes.grid is not None
    if codes.grid.dtype != grid.dtype:
        raise Unsupported(f"its table would go from {codes.grid.dtype} to {grid.dtype}")
    entries = graph.known(function_table(function, codes.grid, grid))
    return graph.pointwise("table", [codes], graph.on_grid(grid, codes.shape), extras=[entries])


def _row(operator: Any, function: str) -> None:
    @TABLE.converts(operator, keep_whole=True)
    def convert(graph: KernelGraph, node: Node, source: Node) -> View:
        return unary(graph, node, source, function)


for _operator, _function in _UNARY.items():
    _row(_operator, _function)


@TABLE.converts(aten.gelu.default, keep_whole=True)
def gelu(graph: KernelGraph, node: Node, source: Node, approximate: str) -> View:
    return unary(graph, node, source, "gelu_tanh" if approximate == "tanh" else "gelu")


@TABLE.converts(aten.softplus.default, keep_whole=True)
def softplus(graph: KernelGraph, node: Node, source: Node, beta: float, threshold: float) -> View:
    if (beta, threshold) != (1, 20):
        raise Unsupported(f"softplus with beta {beta} and threshold {threshold}; there is 1 and 20")
    return unary(graph, node, source, "softplus")


@TABLE.converts(aten.elu.default, keep_whole=True)
def elu(graph: KernelGraph, node: Node, source: Node, alpha: float, scale: float, input_scale: float) -> View:
    if (alpha, scale, input_scale) != (1, 1, 1):
        raise Unsupported("elu with factors other than 1")
    return unary(graph, node, source, "elu")


@TABLE.converts(aten.relu.default, aten.relu6.default, aten.hardtanh.default, aten.clamp.default, keep_whole=True)
def clamp(graph: KernelGraph, node: Node, source: Node, *_: Any) -> View:
    limits = clamp_limits(node)
    if limits is None:
        raise Unsupported("its limits are tensors, or not numbers")
    codes = graph.codes(source)
    if codes is not None:
        return _clamp_codes(graph, node, codes, limits)
    x = graph.real(source)
    out = graph.made("float16", x.shape)
    if node.target == aten.relu.default:
        return graph.pointwise("unary", [x], out, (FUNCTIONS.index("relu"),))
    return graph.pointwise("clamp", [x], out, (0, 0), limits)


def _clamp_codes(graph: KernelGraph, node: Node, codes: View, limits: tuple[float, float]) -> View:
    """Rescaled to the output's grid, within the limits; nothing is left to do where the operator before was limited."""
    from delegraph_dsp.aot.kernel_graph import limited

    grid = limited(graph.grid_of(node), *limits)
    assert codes.grid is not None
    if codes.grid == grid:
        return codes
    return graph.regrid(codes, grid)


# ---- functions of two ---------------------------------------------------------------------------------------------


def binary(graph: KernelGraph, node: Node, a: Any, b: Any, function: str) -> View:
    """A function of two float16, or of one and a number."""
    x, y = graph.real(a), graph.real(b)
    out = graph.made("bool" if function in BINARY_FUNCTIONS[6:] else "float16", shape_of(node))
    return graph.pointwise("binary", [x, y], out, (BINARY_FUNCTIONS.index(function),))


@TABLE.converts(aten.add.Tensor, aten.sub.Tensor)
def add(graph: KernelGraph, node: Node, a: Any, b: Any, alpha: Any) -> View:
    if alpha != 1:
        raise Unsupported(f"adds {alpha} times its second operand")
    function = "add" if node.target == aten.add.Tensor else "sub"
    x, y = graph.codes(a), graph.codes(b)
    if x is None and y is None:
        return binary(graph, node, a, b, function)
    if x is None or y is None:
        raise Unsupported("one of its operands is quantized and the other is not")
    return _add_codes(graph, node, x, y, 1 if function == "add" else -1)


def _add_codes(graph: KernelGraph, node: Node, x: View, y: View, sign: int) -> View:
    """Both operands are rescaled to a grid of 32 bits, with as many bits below the larger scale as leave room for the
    sum (2 ** 20 for int8, 2 ** 12 for int16), as in TFLite and ExecuTorch's Arm backend."""
    grid = graph.grid_of(node)
    assert x.grid is not None and y.grid is not None
    left, right = float(x.grid.scale), float(y.grid.scale)
    common = 2 * max(left, right) / 2.0 ** (20 if x.dtype == y.dtype == "int8" else 12)
    integers = (
        *(int(x.grid.zero_point), *scaled(left / common), int(y.grid.zero_point), *scaled(right / common)),
        sign,
        *output_integers(common / float(grid.scale), grid),
    )
    return graph.pointwise("add_int", [x, y], graph.on_grid(grid, shape_of(node)), integers)


@TABLE.converts(aten.mul.Tensor)
def mul(graph: KernelGraph, node: Node, a: Any, b: Any) -> View:
    x, y = graph.codes(a), graph.codes(b)
    if x is None and y is None:
        return binary(graph, node, a, b, "mul")
    if x is None or y is None:
        return _times_number(graph, node, *((y, a) if x is None else (x, b)))
    grid = graph.grid_of(node)
    assert x.grid is not None and y.grid is not None
    scale = float(x.grid.scale) * float(y.grid.scale) / float(grid.scale)
    integers = (int(x.grid.zero_point), int(y.grid.zero_point), *output_integers(scale, grid))
    return graph.pointwise("mul_int", [x, y], graph.on_grid(grid, shape_of(node)), integers)


@TABLE.converts(aten.div.Tensor)
def div(graph: KernelGraph, node: Node, a: Any, b: Any) -> View:
    x, y = graph.codes(a), graph.codes(b)
    if x is None and y is None:
        return binary(graph, node, a, b, "div")
    number = graph.constants.number(b)
    if x is None or number in (None, 0):
        raise Unsupported("divides quantized values by what is not a number")
    return _times_number(graph, node, x, 1 / number)


def _times_number(graph: KernelGraph, node: Node, codes: View | None, factor: Any) -> View:
    """Codes times a number: a rescaling to another grid, mirrored if the number is negative."""
    number = graph.constants.number(factor)
    if codes is None or not isinstance(number, int | float):
        raise Unsupported("one of its operands is quantized and the other is neither that nor a number")
    grid = graph.grid_of(node)
    return table_or_rescale(graph, codes, grid, float(number))


def table_or_rescale(graph: KernelGraph, codes: View, grid: Quantization, number: float) -> View:
    """`codes * number` on `grid`."""
    assert codes.grid is not None
    if number > 0:
        scale = float(codes.grid.scale) * number / float(grid.scale)
        integers = (int(codes.grid.zero_point), *output_integers(scale, grid))
        return graph.pointwise("rescale", [codes], graph.on_grid(grid, codes.shape), integers)
    return table(graph, codes, grid, lambda x: x * number)


def _float_row(operator: Any, function: str) -> None:
    @TABLE.converts(operator)
    def convert(graph: KernelGraph, node: Node, a: Any, b: Any) -> View:
        if graph.codes(a) is not None or graph.codes(b) is not None:
            raise Unsupported(f"{function} is there for float16 alone")
        return binary(graph, node, a, b, function)


for _operator, _function in {
    aten.maximum.default: "maximum",
    aten.minimum.default: "minimum",
    **{getattr(aten, name).Tensor: name for name in ("gt", "lt", "ge", "le", "eq", "ne")},
}.items():
    _float_row(_operator, _function)


@TABLE.converts(aten.where.self)
def where(graph: KernelGraph, node: Node, condition: Node, a: Any, b: Any) -> View:
    chosen = graph.value(condition)
    if chosen.dtype != "bool":
        raise Unsupported(f"its condition is {chosen.dtype}")
    x, y = graph.codes(a), graph.codes(b)
    if (x is None) is not (y is None):
        raise Unsupported("one of its operands is quantized and the other is not")
    if x is None or y is None:
        return graph.pointwise("where", [chosen, graph.real(a), graph.real(b)], graph.made("float16", shape_of(node)))
    grid = graph.grid_of(node)
    both = [view if view.grid == grid else graph.regrid(view, grid) for view in (x, y)]
    return graph.pointwise("where", [chosen, *both], graph.on_grid(grid, shape_of(node)))


@TABLE.converts(aten.pow.Tensor_Scalar)
def power(graph: KernelGraph, node: Node, source: Node, exponent: Any) -> View:
    if exponent != 2 or graph.codes(source) is not None:
        raise Unsupported("of powers there is the square of float16 alone")
    return binary(graph, node, source, source, "mul")
