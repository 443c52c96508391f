"""Operations that OpenVINO's CPU device computes inexactly or otherwise than ONNX -> the same from exact operations.

    a <= b, of int32        (max(a, b) xor b) == 0          it compares as float32, which has 24 bits
    select(c, a, b)         b xor ((a xor b) and -c)        as float32, too, where it is fused with others
    a / b, of int32         quotients of float32, and of their remainders
    a > b, of float32       b < a                           NaN > 0.5 is true there
    exp(x), relu(x)         select(isnan(x), x, exp(x))     exp(NaN) is infinite, relu(NaN) 0
    if p: a else: b         cut to its own size, where that is known in the run alone
    round(round(x) * c)     round(max(round(x) * c, lowest))    of such steps in a row it loses one
    abs(concat(a, b))       of it with one dim more         it is concat(abs(a), abs(b)), for other readers too

Tried on OpenVINO 2026.4. Sums, products, Max, CumSum, TopK, bits and moves of elements are exact on int32. Integers
that float32 holds are left as they are; so are, unless asked for, activations and pools behind a layer: they are
computed with it, in one pass over memory (ResNet-18 takes 12 % longer otherwise, MobileNetV2 twice as long).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from delegraph_openvino.blob import WEIGHT
from delegraph_openvino.engine import Node, Output, Type, openvino
from delegraph_openvino.engine import opset15 as opset

__all__ = ["EXACT_NAN", "make_exact", "nodes_behind", "operations_of", "shapes_behind"]

EXACT_NAN: Final = "exact_nan"
"""The compile spec that asks for NaN behind layers, too."""

Row = Callable[[Node], "Output | None"]

_WIDE: Final = (Type.i32, Type.i64)
_EXACT_IN_FLOAT: Final = 2**24
_MOVES: Final = frozenset(
    ("Reshape", "Squeeze", "Unsqueeze", "Transpose", "Slice", "StridedSlice", "Gather", "Broadcast", "Tile")
)
_LESS_THAN_A_QUOTIENT: Final = np.float32(1 - 2**-22)
"""A factor that keeps a float32 quotient of two integers from exceeding the true one."""


def make_exact(model: openvino.Model, behind_layers: bool) -> None:
    """Replace inexact operations of `model` and its branches; `behind_layers`: also those computed with a layer."""
    for operation in operations_of(model):
        kind = operation.get_type_name()
        if kind in _REWIRED:
            _REWIRED[kind](operation)
        if kind not in _ROWS or (
            kind in _COMPUTED_WITH_A_LAYER and not behind_layers and _is_behind_a_layer(operation)
        ):
            continue
        result = _ROWS[kind](operation)
        if result is not None:
            operation.output(0).replace(result)


def _is_behind_a_layer(operation: Node, depth: int = 8) -> bool:
    """Whether an operand comes from a layer, or from a rounding to integers, within so many steps."""
    sources = [value.get_node() for value in operation.input_values()]
    return any(
        source.get_type_name() in _LAYERS
        or (depth > 0 and source.get_type_name() in _BETWEEN and _is_behind_a_layer(source, depth - 1))
        for source in sources
    )


def operations_of(model: openvino.Model) -> Iterator[Node]:
    """The operations of `model`, and of the bodies of its branches."""
    for operation in model.get_ordered_ops():
        yield operation
        if operation.get_type_name() == "If":
            yield from operations_of(operation.get_then_body())
            yield from operations_of(operation.get_else_body())


def _give_dims(operation: Node) -> None:
    """Give an operand from which a dim was taken the dims that the other has more. OpenVINO computes a scale or a bias
    with the layer in front of the Squeeze, and its own dims get lost."""
    values = operation.input_values()
    for index, (value, other) in enumerate(zip(values, values[::-1], strict=True)):
        ranks = [part.get_partial_shape().rank for part in (value, other)]
        if value.get_node().get_type_name() != "Squeeze" or any(rank.is_dynamic for rank in ranks):
            continue
        rank, more = (length.get_length() for length in ranks)
        if rank < more:
            axes = opset.constant(np.arange(more - rank))
            operation.input(index).replace_source_output(_made("unsqueeze", value, axes))


def _keep_apart(rounding: Node) -> None:
    """Keep a step between two roundings where it is: OpenVINO moves scales and sums with constants into the rounding in
    front of them, and of two in a row, the ranges being the same, it loses one.

        x -> FakeQuantize -> * 0.5 -> FakeQuantize -> * 0.5          gives 0.5 x
        x -> FakeQuantize -> * 0.5 -> Maximum(lowest) -> FakeQuantize -> * 0.5
    """
    value = rounding.input_value(0)
    operands = value.get_node().input_values() if value.get_node().get_type_name() in _STEPS else []
    rounded = [operand for operand in operands if operand.get_node().get_type_name() == "FakeQuantize"]
    if len(rounded) == 1 and all(map(_is_constant, (operand for operand in operands if operand not in rounded))):
        lowest = _constant(float(np.finfo(np.float32).min), value)
        rounding.input(0).replace_source_output(_made("maximum", value, lowest))


def _wait_for(branches: Node) -> None:
    """Cut the results of branches, of sizes known in the run, to those sizes: OpenVINO prepares layers and pools behind
    them before it knows the sizes, and reads the memory of the run before where that was smaller.

        if -> conv          garbage in the first run, and in each with more rows than any before
        if -> slice(0, size of it) -> conv
    """
    for output in branches.outputs():
        shape = output.get_partial_shape()
        axis = next((dim for dim, length in enumerate(shape) if length.is_dynamic), None)
        readers = [reader for reader in output.get_target_inputs() if reader.get_node().get_type_name() != "Result"]
        if axis is None or not readers:
            continue
        at = opset.constant(np.array([axis]))
        size = opset.gather(opset.shape_of(output), at, opset.constant(np.array(0)))
        whole = _made("slice", output, opset.constant(np.array([0])), size, opset.constant(np.array([1])), at)
        for reader in readers:
            reader.replace_source_output(whole)


# ---- integers -----------------------------------------------------------------------------------------------------


def _are_wide(operation: Node) -> bool:
    """Whether the operands are integers that float32 may not hold. OpenVINO computes known sizes exactly, and needs
    their operations as they are while it reads a graph."""
    operands = operation.input_values()
    return operands[0].get_element_type() in _WIDE and not (
        all(map(_is_narrow, operands)) or all(map(_is_known, operands))
    )


def _is_known(output: Output) -> bool:
    """Whether `output` depends only on constants and known sizes."""
    shapes = shapes_behind(output)
    return shapes is not None and all(shape.get_input_partial_shape(0).is_static for shape in shapes)


def shapes_behind(output: Output) -> list[Node] | None:
    """The ShapeOf operations on which `output` depends, beside constants; None if it depends on an input's elements."""
    shapes = []
    for node in nodes_behind(output):
        if node.get_type_name() == "Parameter" and not _is_weight(node):
            return None
        if node.get_type_name() == "ShapeOf":
            shapes.append(node)
    return shapes


def nodes_behind(output: Output) -> Iterator[Node]:
    """The operations on whose elements `output` depends, its own first; none behind a ShapeOf."""
    seen, ahead = set[int](), [output.get_node()]
    while ahead:
        node = ahead.pop()
        if node.get_instance_id() not in seen:
            seen.add(node.get_instance_id())
            yield node
            if node.get_type_name() != "ShapeOf":
                ahead += [value.get_node() for value in node.input_values()]


def _is_narrow(output: Output, depth: int = 8) -> bool:
    node = output.get_node()
    if output.get_element_type() not in _WIDE:
        return True
    if node.get_type_name() == "Constant":
        return bool((np.abs(node.get_data().astype(np.float64)) < _EXACT_IN_FLOAT).all())
    if node.get_type_name() == "Convert":
        source = node.input_value(0)
        integers = source.get_element_type().is_integral() or source.get_element_type() == Type.boolean
        return integers and _is_narrow(source, depth)
    if node.get_type_name() in _MOVES and depth:
        return _is_narrow(node.input_value(0), depth - 1)
    return False


def _has_narrow_constant(operation: Node) -> bool:
    """Whether an operand is a constant so small that rounding the other operand does not pass it."""
    return any(_is_constant(v) and _is_narrow(v) for v in operation.input_values())


def _is_weight(node: Node) -> bool:
    """Whether an input of the graph is a large constant, which it is again when it is loaded."""
    return bool(node.get_type_name() == "Parameter" and node.get_friendly_name().startswith(WEIGHT))


def _is_constant(value: Output) -> bool:
    kind: str = value.get_node().get_type_name()
    return kind == "Constant"


def _made(operation: str, *operands: Any, **settings: Any) -> Output:
    """The result of an operation."""
    result: Output = getattr(opset, operation)(*operands, **settings).output(0)
    return result


def _constant(number: float, like: Output) -> Output:
    return _made("constant", np.array(number), like.get_element_type())


def _is_zero(value: Output) -> Output:
    return _made("equal", value, _constant(0, value))


def _smaller(a: Output, b: Output) -> Output:
    """A minimum behind a maximum would become a Clamp with limits of float32: this is a maximum of complements."""
    return _made("bitwise_not", opset.maximum(_made("bitwise_not", a), _made("bitwise_not", b)))


def _is_no_larger(a: Output, b: Output) -> Output:
    return _is_equal(_made("maximum", a, b), b)


def _chosen(condition: Output, a: Output, b: Output) -> Output:
    # -1 has all bits, 0 none
    mask = opset.negative(opset.convert(condition, a.get_element_type().get_type_name()))
    return _made("bitwise_xor", b, opset.bitwise_and(opset.bitwise_xor(a, b), mask))


def _compared(exact: Callable[[Output, Output], Output], otherwise: str = "", turned: bool = False) -> Row:
    """A row: by `exact` where float32 may not hold the operands, else by the operation `otherwise`, or unchanged."""

    def row(operation: Node) -> Output | None:
        a, b = operation.input_values()[:: -1 if turned else 1]
        if _are_wide(operation) and not _has_narrow_constant(operation):
            return exact(a, b)
        return _made(otherwise, a, b) if otherwise else None

    return row


def _is_equal(a: Output, b: Output) -> Output:
    return _is_zero(_made("bitwise_xor", a, b))


def _is_less(a: Output, b: Output) -> Output:
    return _made("logical_not", _is_no_larger(b, a))


def _select(operation: Node) -> Output | None:
    condition, a, b = operation.input_values()
    return _chosen(condition, a, b) if a.get_element_type() in _WIDE and not (_is_narrow(a) and _is_narrow(b)) else None


def _absolute(operation: Node) -> Output | None:
    """OpenVINO's Abs of values that depend on constants and sizes alone keeps the signs if the first has none; that of
    what is joined becomes the parts', for all who read the whole."""
    value = operation.input_value(0)
    if not _is_constant(value) and shapes_behind(value) is not None:
        return _made("maximum", value, opset.negative(value))
    if value.get_node().get_type_name() != "Concat":
        return None
    axis = np.int64(0)
    return _made("squeeze", opset.abs(opset.unsqueeze(value, axis)), axis)


def _relu(operation: Node) -> Output | None:
    value = operation.input_value(0)
    return _positive(value) if value.get_element_type() in _WIDE else _keeping_nan(operation)


def _positive(value: Output) -> Output:
    """The maximum with 0, by a choice: OpenVINO would make a ReLU of float32 of a maximum."""
    zero = _constant(0, value)
    return _chosen(_made("less", value, zero), zero, value)


def _extreme(operation: Node) -> Output | None:
    """The first in sorted order, along one axis after the other."""
    value, axes = operation.input_values()
    if not _are_wide(operation):
        return _finite_extreme(operation)
    kind = operation.get_type_name().removeprefix("Reduce").lower()
    # TopK compares integers exactly, ReduceMax and ReduceMin in float32
    for axis in np.atleast_1d(axes.get_node().get_data()):
        value = _made("topk", value, np.int64(1), int(axis), kind, "none", index_element_type="i32")
    return value if operation.get_keep_dims() else _made("squeeze", value, axes)


def _padded(operation: Node) -> Output | None:
    """Pads with any number: 0 is padded around the value xor the number, and both are combined by xor again."""
    value, before, after, *number = operation.input_values()
    if operation.get_pad_mode() != "constant" or not number or value.get_element_type() not in _WIDE:
        return None
    if _is_narrow(number[0]):
        return None
    inside = opset.pad(opset.bitwise_xor(value, number[0]), before, after, "constant", _constant(0, value))
    return _made("bitwise_xor", inside, number[0])


# ---- quotients of integers ----------------------------------------------------------------------------------------


def _divided(a: Output, b: Output) -> tuple[Output, Output]:
    """The quotient towards zero and the remainder, which has the sign of `a`. No float quotient is larger than the true
    one: the remainder keeps its sign after both steps, and at most once `b` is left to be taken."""
    quotient, rest = _whole(a, b), None
    rest = opset.subtract(a, opset.multiply(quotient, b))
    # the bits of the quotient that float32 has lost are those of the remainder's quotient
    more = _whole(rest.output(0), b)
    rest = opset.subtract(rest, opset.multiply(more, b)).output(0)
    # |rest| >= |b|, compared below zero, where the lowest integer has a counterpart
    remains = _is_no_larger(_below_zero(rest), _below_zero(b))
    sign = opset.multiply(opset.sign(rest), opset.sign(b))
    one_more = opset.multiply(sign, opset.convert(remains, a.get_element_type().get_type_name()))
    total = opset.add(opset.add(quotient, more), one_more).output(0)
    return total, opset.subtract(rest, opset.multiply(one_more, b)).output(0)


def _whole(a: Output, b: Output) -> Output:
    quotient = opset.divide(opset.convert(a, "f32"), opset.convert(b, "f32"))
    limited = opset.multiply(quotient, _LESS_THAN_A_QUOTIENT)
    return _made("convert", limited, a.get_element_type().get_type_name())


def _below_zero(value: Output) -> Output:
    """-|value|: |value| of the lowest integer does not exist."""
    return _smaller(value, _made("negative", value))


def _divide(operation: Node) -> Output | None:
    return _divided(*operation.input_values())[0] if _are_wide(operation) else None


def _mod(operation: Node) -> Output | None:
    return _divided(*operation.input_values())[1] if _are_wide(operation) else None


def _floor_mod(operation: Node) -> Output | None:
    """The remainder, with the sign of the divisor."""
    if not _are_wide(operation):
        return None
    a, b = operation.input_values()
    rest = _divided(a, b)[1]
    other_sign = opset.less(opset.multiply(opset.sign(rest), opset.sign(b)), _constant(0, a)).output(0)
    return opset.add(rest, opset.multiply(b, opset.convert(other_sign, a.get_element_type().get_type_name()))).output(0)


# ---- floats that are no numbers -----------------------------------------------------------------------------------


def _keeping_nan(operation: Node) -> Output | None:
    """The same operation, with NaN where the operand is NaN."""
    value = operation.input_value(0)
    if not value.get_element_type().is_real():
        return None
    settings = {_NAMES.get(name, name): setting for name, setting in operation.get_attributes().items()}
    return _unless_nan(value, _made(_AGAIN[operation.get_type_name()], *operation.input_values(), **settings))


_AGAIN: Final = {"Exp": "exp", "Relu": "relu", "HardSigmoid": "hard_sigmoid", "Clamp": "clamp"}
_NAMES: Final = {"min": "min_value", "max": "max_value"}


def _unless_nan(value: Output, otherwise: Output) -> Output:
    if _is_constant(value):
        return otherwise
    return _made("select", opset.is_nan(value), value, otherwise)


def _extreme_of_two(operation: Node) -> Output | None:
    """NaN if one float is NaN, where OpenVINO gives the other; integers without a Clamp or ReLU of float32."""
    a, b = operation.input_values()
    is_maximum = operation.get_type_name() == "Maximum"
    if a.get_element_type() in _WIDE:
        return _extreme_of_integers(a, b) if is_maximum else _smaller(a, b)
    if not a.get_element_type().is_real():
        return None
    return _unless_nan(a, _unless_nan(b, _made("maximum" if is_maximum else "minimum", a, b)))


def _extreme_of_integers(a: Output, b: Output) -> Output | None:
    values = [v for v in (a, b) if not (_is_constant(v) and not v.get_node().get_data().any())]
    return _positive(values[0]) if len(values) == 1 else None


def _finite_extreme(operation: Node) -> Output | None:
    """OpenVINO's extreme of infinities is the largest finite number: half of it, doubled, is infinite again."""
    value, axes = operation.input_values()
    if not value.get_element_type().is_real():
        return None
    reduce = "reduce_max" if operation.get_type_name() == "ReduceMax" else "reduce_min"
    return _of_halves(value, lambda half: _made(reduce, half, axes, operation.get_keep_dims()))


def _of_halves(value: Output, extreme: Callable[[Output], Output]) -> Output:
    return _made("multiply", extreme(_made("multiply", value, _constant(0.5, value))), _constant(2.0, value))


def _max_pool(operation: Node) -> None:
    """The values of a max pool, with NaN. The result with places has a branch of its own that looks for NaN."""
    value, settings = operation.input_value(0), operation.get_attributes()
    if value.get_element_type().is_integral():
        return
    names = "strides", "dilations", "pads_begin", "pads_end", "kernel"
    window = *(settings[name] for name in names), "floor", "explicit"
    pooled = _of_halves(value, lambda half: _made("max_pool", half, *window))
    # a comparison does not see NaN: a pool over where they are does
    with_nan = opset.max_pool(opset.convert(opset.is_nan(value), "f32"), *window).output(0)
    nan = opset.convert_like(opset.constant(np.array(np.nan, np.float32)), pooled)
    operation.output(0).replace(_made("select", opset.greater(with_nan, np.float32(0)), nan, pooled))


def _softmax(operation: Node) -> Output | None:
    """NaN along a dim with a NaN, beside which OpenVINO leaves numbers. A sum tells: scaled down, finite elements
    cannot make it infinite; if it is infinite the result is NaN too, unless it is -inf."""
    value, axis = operation.input_value(0), operation.get_attributes()["axis"]
    softmax = _made("softmax" if operation.get_type_name() == "Softmax" else "log_softmax", value, axis)
    # 2^-40: no sum of finite elements becomes infinite
    total = opset.reduce_sum(opset.multiply(value, _constant(2.0**-40, value)), np.array([axis]), True)
    return _made("select", opset.less(total, _constant(np.inf, value)), softmax, _constant(np.nan, value))


def _scaled_product(operation: Node) -> Output | None:
    """A product of matrices times a number. OpenVINO multiplies an operand by the number, of which an element may leave
    its dtype: with AMX, infinity times the least bfloat16 becomes NaN. With an operation between them it does not."""
    for product, factor in (operation.input_values(), operation.input_values()[::-1]):
        source = product.get_node()
        while source.get_type_name() == "Convert":
            source = source.input_value(0).get_node()
        if source.get_type_name() == "MatMul" and _is_constant(factor):
            first = np.array([0])
            return _made("squeeze", opset.multiply(opset.unsqueeze(product, first), factor), first)
    return None


def _in_stable_order(operation: Node) -> None:
    """ONNX keeps the order of equals."""
    value, count = operation.input_values()
    settings = operation.get_attributes()
    if settings.get("stable") or settings["sort"] != "value":
        return
    stable = opset.topk(value, count, settings["axis"], settings["mode"], "value", settings["index_element_type"], True)
    for place in (0, 1):
        operation.output(place).replace(stable.output(place))


_COMPUTED_WITH_A_LAYER: Final = frozenset(("Relu", "Clamp", "HardSigmoid", "MaxPool", "Multiply", "Softmax"))
_CONVOLUTIONS: Final = tuple(
    group + kind for group in ("", "Group") for kind in ("Convolution", "ConvolutionBackpropData")
)
_LAYERS: Final = frozenset((*_CONVOLUTIONS, "MatMul", "FakeQuantize"))
_BETWEEN: Final = _MOVES | _COMPUTED_WITH_A_LAYER | {"Add", "Subtract", "BatchNormInference", "Concat"}

_SCALES: Final = frozenset(("Add", "Subtract", "Multiply", "Divide"))

_STEPS: Final = _SCALES | {"Negative"}
"""Operations that OpenVINO moves into a FakeQuantize in front of them, if their other operand is a constant."""

_REWIRED: Final[dict[str, Callable[[Node], None]]] = {
    **dict.fromkeys(_SCALES, _give_dims),
    "FakeQuantize": _keep_apart,
    "If": _wait_for,
}
"""Operations that stay, and what is put on their inputs' or results' ways."""

_ROWS: Final[dict[str, Row]] = {
    "Abs": _absolute,
    "TopK": _in_stable_order,
    "Equal": _compared(_is_equal),
    "NotEqual": _compared(lambda a, b: _made("logical_not", _is_equal(a, b))),
    "Less": _compared(_is_less),
    "LessEqual": _compared(_is_no_larger),
    "Greater": _compared(_is_less, "less", turned=True),
    "GreaterEqual": _compared(_is_no_larger, "less_equal", turned=True),
    "Select": _select,
    "Relu": _relu,
    "Clamp": _keeping_nan,
    "HardSigmoid": _keeping_nan,
    "Multiply": _scaled_product,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "MaxPool": _max_pool,
    "ReduceMax": _extreme,
    "ReduceMin": _extreme,
    "Pad": _padded,
    "Divide": _divide,
    "Mod": _mod,
    "FloorMod": _floor_mod,
    "Exp": _keeping_nan,
    "Maximum": _extreme_of_two,
    "Minimum": _extreme_of_two,
}
