"""Kernels that TOSA has an operator for, against Arm's reference model: integers to the bit, float16 to a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tosa_reference_model
from numpy.typing import NDArray
from serializer import tosa_serializer as ts
from tosa.DType import DType
from tosa.Op import Op
from tosa.RoundingMode import RoundingMode

from delegraph_dsp.program import FUNCTIONS, REDUCTIONS
from delegraph_dsp.runtime.kernels import TABLE
from delegraph_machines.fixed_point import quantized_multiplier

pytestmark = pytest.mark.oracles

TYPES: dict[str, int] = {"int8": DType.INT8, "int16": DType.INT16, "int32": DType.INT32, "float16": DType.FP16}
STORED: dict[int, Any] = {DType.INT8: np.int8, DType.INT16: np.int16, DType.INT32: np.int32, DType.FP16: np.float16}
BOUNDS = {"int8": (-128, 127), "int16": (-32768, 32767)}
RNG = np.random.default_rng(3)


class Model:
    """A TOSA graph that grows, and is run."""

    def __init__(self) -> None:
        self._builder = ts.TosaSerializer("", ts.ConstMode.EMBED, 1, 0, 0, False)
        self._inputs: list[NDArray[Any]] = []

    def input(self, array: NDArray[Any]) -> Any:
        tensor = ts.TosaSerializerTensor(f"input_{len(self._inputs)}", list(array.shape), TYPES[str(array.dtype)])
        self._builder.addInputTensor(tensor)
        self._inputs.append(array)
        return tensor

    def const(self, values: Any, dtype: int) -> Any:
        array = np.asarray(values, STORED[dtype])
        return self._builder.addConst(list(array.shape), dtype, array)

    def op(self, op: int, inputs: Sequence[Any], shape: Sequence[int], dtype: int, attribute: str, *values: Any) -> Any:
        result = self._builder.addIntermediate(list(shape), dtype)
        attributes = ts.TosaSerializerAttribute()
        getattr(attributes, attribute)(*values)
        self._builder.addOperator(op, [one.name for one in inputs], [result.name], attributes)
        return result

    def rescale(self, value: Any, multiplier: Any, shift: Any, zero: int, out: int, dtype: int) -> Any:
        multiplier, shift = np.atleast_1d(multiplier), np.atleast_1d(shift)
        inputs = [
            value,
            self.const(multiplier, DType.INT32),
            self.const(shift, DType.INT8),
            self.const([zero], value.dtype),
            self.const([out], dtype),
        ]
        flags = (True, RoundingMode.SINGLE_ROUND, len(multiplier) > 1, False, False)
        return self.op(Op.RESCALE, inputs, value.shape, dtype, "RescaleAttribute", *flags)

    def run(self, result: Any) -> NDArray[Any]:
        return self.prepared(result)()

    def prepared(self, result: Any) -> Callable[[], NDArray[Any]]:
        """A function that computes `result`, once the graph has been made."""
        self._builder.addOutputTensor(result)
        serialized = bytes(self._builder.serialize())

        def run() -> NDArray[Any]:
            outputs, status = tosa_reference_model.run(serialized, self._inputs)
            assert status == tosa_reference_model.GraphStatus.TOSA_VALID, status
            return np.asarray(outputs[0])

        return run


def kernel(name: str, out: tuple[tuple[int, ...], Any], *arrays: Any, integers: Any = (), reals: Any = ()) -> Any:
    """What a kernel writes."""
    written = np.zeros(*out)
    TABLE[name].function([*(np.asarray(array) for array in arrays), written], [int(i) for i in integers], reals)
    return written


def codes(dtype: str, *shape: int) -> NDArray[Any]:
    return RNG.integers(*BOUNDS[dtype], size=shape, endpoint=True).astype(dtype)


def scaled(scale: Any) -> tuple[Any, Any]:
    return quantized_multiplier(scale)


by_dtype = pytest.mark.parametrize("dtype", ["int8", "int16"])


@by_dtype
def test_table(dtype: str) -> None:
    """Of int16 with slopes of 16 bits, which others are not to have."""
    x, entries = codes(dtype, 4, 500), codes(dtype, 256) if dtype == "int8" else np.sort(codes(dtype, 513))
    model = Model()
    inputs = [model.input(x), model.const(entries, TYPES[dtype])]
    if dtype == "int8":
        result = model.op(Op.TABLE, inputs, x.shape, DType.INT8, "TableAttribute")
    else:
        wide = model.op(Op.TABLE, inputs, x.shape, DType.INT32, "TableAttribute")
        result = model.rescale(wide, 1 << 30, 37, 0, 0, DType.INT16)
    np.testing.assert_array_equal(kernel("table", (x.shape, dtype), x, entries), model.run(result))


@by_dtype
def test_rescale(dtype: str) -> None:
    x, (multiplier, shift), zero = codes(dtype, 1000), scaled(0.7371), 3 if dtype == "int8" else 0
    model = Model()
    result = model.rescale(model.input(x), multiplier, shift, zero, 0, TYPES[dtype])
    found = kernel("rescale", (x.shape, dtype), x, integers=(zero, multiplier, shift, 0, *BOUNDS[dtype]))
    np.testing.assert_array_equal(found, model.run(result))


@by_dtype
@pytest.mark.parametrize("sign", [1, -1])
def test_add(dtype: str, sign: int) -> None:
    a, b = codes(dtype, 2000), codes(dtype, 2000)
    bits, zeros = (20, (3, -5)) if dtype == "int8" else (12, (0, 0))
    left, right, out = scaled(0.5 * 2.0**bits), scaled(0.31 * 2.0**bits), scaled(1.3 / 2.0**bits)
    model = Model()
    sides = [
        model.rescale(model.input(x), *scale, zero, 0, DType.INT32)
        for x, scale, zero in ((a, left, zeros[0]), (b, right, zeros[1]))
    ]
    op, attribute = (Op.ADD, "AddAttribute") if sign == 1 else (Op.SUB, "SubAttribute")
    result = model.rescale(model.op(op, sides, a.shape, DType.INT32, attribute), *out, 0, 0, TYPES[dtype])
    integers = (zeros[0], *left, zeros[1], *right, sign, *out, 0, *BOUNDS[dtype])
    np.testing.assert_array_equal(kernel("add_int", (a.shape, dtype), a, b, integers=integers), model.run(result))


@by_dtype
def test_mul(dtype: str) -> None:
    a, b, out = codes(dtype, 2000), codes(dtype, 2000), scaled(0.0123 if dtype == "int8" else 0.0000213)
    model = Model()
    sides = [model.rescale(model.input(x), 1 << 30, 30, 0, 0, DType.INT32) for x in (a, b)]
    shift = model.const([0], DType.INT8)
    product = model.op(Op.MUL, [*sides, shift], a.shape, DType.INT32, "MulAttribute")
    result = model.rescale(product, *out, 0, 0, TYPES[dtype])
    found = kernel("mul_int", (a.shape, dtype), a, b, integers=(0, 0, *out, 0, *BOUNDS[dtype]))
    np.testing.assert_array_equal(found, model.run(result))


def test_matmul_of_int8_with_a_scale_for_each_column() -> None:
    a, b, bias = codes("int8", 1, 9, 40), codes("int8", 1, 40, 17), RNG.integers(-9999, 9999, 17).astype(np.int32)
    multiplier, shift = scaled(RNG.uniform(0.0005, 0.004, 17))
    model = Model()
    zeros = [model.const([zero], DType.INT8) for zero in (5, 0)]
    product = model.op(Op.MATMUL, [model.input(a), model.input(b), *zeros], (1, 9, 17), DType.INT32, "MatMulAttribute")
    added = [product, model.const(bias.reshape(1, 1, 17), DType.INT32)]
    total = model.op(Op.ADD, added, (1, 9, 17), DType.INT32, "AddAttribute")
    result = model.rescale(total, multiplier, shift, 0, -3, DType.INT8)
    found = kernel(
        "matmul_int", ((1, 9, 17), np.int8), a, b, bias, multiplier, shift.astype(np.int32),
        integers=(5, 0, -3, -128, 127),
    )  # fmt: skip
    np.testing.assert_array_equal(found, model.run(result))


def test_matmul_of_float16_sums_in_float32() -> None:
    """In another order: a step of float16 apart where the sum lies between two."""
    a, b = (RNG.standard_normal(shape).astype(np.float16) for shape in ((1, 9, 64), (1, 64, 17)))
    model = Model()
    zeros = [model.const([0], DType.FP16) for _ in range(2)]
    result = model.op(Op.MATMUL, [model.input(a), model.input(b), *zeros], (1, 9, 17), DType.FP32, "MatMulAttribute")
    exact = model.run(result)
    found = kernel("matmul", ((1, 9, 17), np.float16), a, b, np.zeros(1, np.float16))
    steps = np.abs(found.view(np.int16).astype(int) - exact.astype(np.float16).view(np.int16).astype(int))
    assert steps.max() <= 1 and (steps == 0).mean() > 0.99


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "exp", "log", "erf", "sin", "cos", "rsqrt", "reciprocal", "ceil"])
def test_functions_of_float16(name: str) -> None:
    x = np.linspace(0.01, 9, 1024).astype(np.float16)
    x = x if name in ("log", "rsqrt", "reciprocal") else np.concatenate([x, -x])
    model = Model()
    attribute = {name: f"{name.capitalize()}Attribute"}.get(name, "")
    result = model.op(getattr(Op, name.upper()), [model.input(x)], x.shape, DType.FP16, attribute)
    found = kernel("unary", (x.shape, np.float16), x, integers=(FUNCTIONS.index(name),))
    steps = np.abs(found.view(np.int16).astype(int) - model.run(result).view(np.int16).astype(int))
    assert steps.max() <= 1 and (steps == 0).mean() > 0.99


def test_sums_of_int8_rows() -> None:
    x, out = codes("int8", 6, 50), scaled(0.021)
    model = Model()
    words = model.rescale(model.input(x), 1 << 30, 30, 4, 0, DType.INT32)
    total = model.op(Op.REDUCE_SUM, [words], (6, 1), DType.INT32, "ReduceSumAttribute", 1)
    result = model.rescale(total, *out, 0, 2, DType.INT8)
    integers = (REDUCTIONS.index("sum"), 4, *out, 2, -128, 127)
    np.testing.assert_array_equal(kernel("reduce_int", ((6, 1), np.int8), x, integers=integers), model.run(result))
