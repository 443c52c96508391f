"""With double rounding, commands compute what LiteRT's (TFLite's) reference kernels compute, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from backends.npu.tests.harness import Builder, run_one
from backends.npu.tests.oracles.litert import Tensor, litert
from numpy.typing import NDArray

from delegraph_machines.fixed_point import quantized_multiplier, table_of
from delegraph_npu.commands import (
    Conv,
    Depthwise,
    Elementwise,
    ElementwiseKind,
    Geometry,
    Operand,
    Pool,
    PoolKind,
    Reduce,
    ReduceKind,
    Requantize,
    Table,
)

pytestmark = pytest.mark.oracles

IN_SCALE, IN_ZERO, OUT_SCALE, OUT_ZERO = 0.0431, -17, 0.107, 9
SHAPE = (2, 9, 9, 8)


def values(shape: tuple[int, ...], seed: int = 0) -> NDArray[np.int8]:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def scale(real: float) -> dict[str, int]:
    multiplier, shift = quantized_multiplier(real)
    return {"multiplier": int(multiplier), "shift": int(shift)}


def image() -> Tensor:
    return Tensor(SHAPE, np.int8, IN_SCALE, IN_ZERO)


def result(shape: tuple[int, ...], out_scale: float = OUT_SCALE, zero_point: int = OUT_ZERO) -> Tensor:
    return Tensor(shape, np.int8, out_scale, zero_point)


# ---- weights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions(depthwise: bool, stride: int) -> None:
    rng = np.random.default_rng(stride)
    channels = SHAPE[3] if depthwise else 21
    weights = rng.integers(-127, 128, (1, 3, 3, channels) if depthwise else (channels, 3, 3, SHAPE[3])).astype(np.int8)
    scales = rng.uniform(0.002, 0.01, channels).astype(np.float32)
    bias = rng.integers(-3000, 3000, channels).astype(np.int32)

    options: Any = schema.DepthwiseConv2DOptionsT() if depthwise else schema.Conv2DOptionsT()
    options.padding, options.strideH, options.strideW = schema.Padding.SAME, stride, stride
    options.dilationHFactor = options.dilationWFactor = 1
    if depthwise:
        options.depthMultiplier = 1
    size = -(-SHAPE[1] // stride)
    constants = [
        Tensor(weights.shape, np.int8, scales, 0, weights, 3 if depthwise else 0),
        Tensor(bias.shape, np.int32, scales * np.float32(IN_SCALE), 0, bias),
    ]
    name, output = ("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"), result((SHAPE[0], size, size, channels))
    expected = litert(name, options, [image(), *constants], output, values(SHAPE))

    builder = Builder()
    ifm, ofm = builder.map(SHAPE), builder.map(output.shape)
    geometry = Geometry((3, 3), (stride, stride), pads=(1, 1, 1, 1))
    real = np.float64(np.float32(IN_SCALE)) * scales.astype(np.float64) / np.float64(np.float32(OUT_SCALE))
    stage = Requantize(OUT_ZERO, scales=builder.scales(bias, *quantized_multiplier(real)))
    kind = Depthwise if depthwise else Conv
    command = kind(ifm, IN_ZERO, ofm, geometry, builder.weight(weights), stage)
    np.testing.assert_array_equal(run_one(builder, command, [values(SHAPE)], "double"), expected)


def test_a_linear_layer() -> None:
    rng = np.random.default_rng(5)
    weights, bias = values((13, 70), 5), rng.integers(-3000, 3000, 13).astype(np.int32)
    options: Any = schema.FullyConnectedOptionsT()
    constants = [
        Tensor(weights.shape, np.int8, 0.004, 0, weights),
        Tensor(bias.shape, np.int32, np.float32(IN_SCALE) * np.float32(0.004), 0, bias),
    ]
    inputs = values((6, 70))
    expected = litert(
        "FULLY_CONNECTED", options, [Tensor((6, 70), np.int8, IN_SCALE, IN_ZERO), *constants], result((6, 13)), inputs
    )
    builder = Builder()
    ifm, ofm = builder.map((1, 1, 6, 70)), builder.map((1, 1, 6, 13))
    real = float(np.float32(IN_SCALE)) * float(np.float32(0.004)) / float(np.float32(OUT_SCALE))
    stage = Requantize(OUT_ZERO, scales=builder.scales(bias, *quantized_multiplier(np.full(13, real))))
    command = Conv(ifm, IN_ZERO, ofm, Geometry(), builder.weight(weights), stage)
    found = run_one(builder, command, [inputs.reshape(1, 1, 6, 70)], "double")
    np.testing.assert_array_equal(found.reshape(6, 13), expected)


# ---- elementwise -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ElementwiseKind.ADD, ElementwiseKind.SUB])
def test_sums(kind: ElementwiseKind) -> None:
    scales, zeros = (np.float32(0.05), np.float32(0.021)), (-11, 30)
    options = schema.AddOptionsT() if kind is ElementwiseKind.ADD else schema.SubOptionsT()
    inputs = [Tensor(SHAPE, np.int8, one, zero) for one, zero in zip(scales, zeros, strict=True)]
    arrays = [values(SHAPE, 1), values(SHAPE, 2)]
    expected = litert(kind.name, options, inputs, result(SHAPE), *arrays)

    builder, twice = Builder(), 2 * max(float(one) for one in scales)
    operands = [
        Operand(builder.map(SHAPE), zero, 20, **scale(float(one) / twice))
        for one, zero in zip(scales, zeros, strict=True)
    ]
    stage = Requantize(OUT_ZERO, **scale(twice / (float(np.float32(OUT_SCALE)) * (1 << 20))))
    command = Elementwise(kind, operands[0], operands[1], builder.map(SHAPE), stage)
    np.testing.assert_array_equal(run_one(builder, command, arrays, "double"), expected)


def test_products() -> None:
    arrays = [values(SHAPE, 1), values(SHAPE, 2)]
    inputs = [Tensor(SHAPE, np.int8, 0.05, -11), Tensor(SHAPE, np.int8, 0.021, 30)]
    expected = litert("MUL", schema.MulOptionsT(), inputs, result(SHAPE), *arrays)
    builder = Builder()
    real = float(np.float32(0.05)) * float(np.float32(0.021)) / float(np.float32(OUT_SCALE))
    a, b = Operand(builder.map(SHAPE), -11), Operand(builder.map(SHAPE), 30)
    command = Elementwise(ElementwiseKind.MUL, a, b, builder.map(SHAPE), Requantize(OUT_ZERO, **scale(real)))
    np.testing.assert_array_equal(run_one(builder, command, arrays, "double"), expected)


@pytest.mark.parametrize(("operator", "function", "out"), [
    ("TANH", np.tanh, (1 / 128, 0)),
    ("LOGISTIC", lambda x: 1 / (1 + np.exp(-x)), (1 / 256, -128)),
])  # fmt: skip
def test_tables(operator: str, function: Any, out: tuple[float, int]) -> None:
    codes = np.arange(-128, 128).astype(np.int8).reshape(1, 1, 16, 16)
    inputs = Tensor(codes.shape, np.int8, IN_SCALE, IN_ZERO)
    expected = litert(operator, None, [inputs], result(codes.shape, *out), codes)
    builder = Builder()
    ifm, ofm = builder.map(codes.shape), builder.map(codes.shape)
    table = builder.table(table_of(function, float(np.float32(IN_SCALE)), IN_ZERO, *out, np.int8))
    np.testing.assert_array_equal(run_one(builder, Table(ifm, table, ofm, Requantize()), [codes], "double"), expected)


# ---- pools -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PoolKind.AVERAGE, PoolKind.MAX])
@pytest.mark.parametrize("size", [2, 3, 9])
def test_pools(kind: PoolKind, size: int) -> None:
    stride = min(size, 3)
    options = schema.Pool2DOptionsT()
    options.padding, options.filterHeight, options.filterWidth = schema.Padding.VALID, size, size
    options.strideH = options.strideW = stride
    outputs = (SHAPE[1] - size) // stride + 1
    shape = (SHAPE[0], outputs, outputs, SHAPE[3])
    operator = "MAX_POOL_2D" if kind is PoolKind.MAX else "AVERAGE_POOL_2D"
    expected = litert(operator, options, [image()], result(shape, IN_SCALE, IN_ZERO), values(SHAPE))
    builder = Builder()
    ifm, ofm = builder.map(SHAPE), builder.map(shape)
    geometry = Geometry((size, size), (stride, stride))
    command = Pool(kind, ifm, IN_ZERO, ofm, geometry, Requantize(IN_ZERO))
    np.testing.assert_array_equal(run_one(builder, command, [values(SHAPE)], "double"), expected)


def test_an_average_with_pads() -> None:
    options = schema.Pool2DOptionsT()
    options.padding, options.filterHeight, options.filterWidth = schema.Padding.SAME, 3, 3
    options.strideH = options.strideW = 1
    expected = litert("AVERAGE_POOL_2D", options, [image()], result(SHAPE, IN_SCALE, IN_ZERO), values(SHAPE))
    builder = Builder()
    ifm, ofm = builder.map(SHAPE), builder.map(SHAPE)
    command = Pool(PoolKind.AVERAGE, ifm, IN_ZERO, ofm, Geometry((3, 3), pads=(1, 1, 1, 1)), Requantize(IN_ZERO))
    np.testing.assert_array_equal(run_one(builder, command, [values(SHAPE)], "double"), expected)


def test_a_maximum_over_channels() -> None:
    options = schema.ReducerOptionsT()
    options.keepDims = True
    axes = Tensor((1,), np.int32, 0.0, 0, np.array([3], np.int32))
    shape = (*SHAPE[:3], 1)
    expected = litert("REDUCE_MAX", options, [image(), axes], result(shape, IN_SCALE, IN_ZERO), values(SHAPE))
    builder = Builder()
    ifm, ofm = builder.map(SHAPE), builder.map(shape)
    command = Reduce(ReduceKind.MAX, 0b1000, ifm, IN_ZERO, ofm, Requantize(IN_ZERO))
    np.testing.assert_array_equal(run_one(builder, command, [values(SHAPE)], "double"), expected)
