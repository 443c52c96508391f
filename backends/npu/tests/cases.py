"""One command of every kind, with arguments of every kind: what is compared with the TOSA reference model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from backends.npu.tests.harness import Builder, random_values
from numpy.typing import NDArray

from delegraph_machines.fixed_point import quantized_multiplier, table_of
from delegraph_npu.accesses import inputs_of
from delegraph_npu.commands import (
    NOWHERE,
    UNUSED,
    Computing,
    Conv,
    Depthwise,
    Dtype,
    Elementwise,
    ElementwiseKind,
    Geometry,
    MatMul,
    Operand,
    Pool,
    PoolKind,
    Reduce,
    ReduceKind,
    Requantize,
    Resize,
    ResizeMode,
    Table,
)


@dataclass
class Case:
    """A command, the weights that it reads (as they were before they were compressed), and its inputs."""

    name: str
    builder: Builder
    command: Computing
    inputs: list[NDArray[Any]]
    weights: NDArray[np.int8] | None = None


def cases() -> Iterator[Case]:
    """All of them, always the same."""
    for name, make in _MAKERS.items():
        rng = np.random.default_rng(list(name.encode()))
        yield make(name, rng)


_MAKERS: dict[str, Callable[[str, np.random.Generator], Case]] = {}


def _case(name: str, make: Callable[..., Case], **arguments: Any) -> None:
    _MAKERS[name] = lambda name, rng: make(name, rng, **arguments)


def _scale(scale: float) -> dict[str, int]:
    multiplier, shift = quantized_multiplier(scale)
    return {"multiplier": int(multiplier), "shift": int(shift)}


_3X3, _HALVED = Geometry((3, 3), pads=(1, 1, 1, 1)), Geometry((2, 2), (2, 2))


# ---- windows ---------------------------------------------------------------------------------------


def _conv(
    name: str,
    rng: np.random.Generator,
    shape: tuple[int, int, int, int] = (1, 5, 6, 3),
    channels: int = 4,
    geometry: Geometry = _3X3,
    depthwise: bool = False,
    stage: dict[str, Any] | None = None,
    table: bool = False,
) -> Case:
    builder = Builder()
    channels = shape[3] if depthwise else channels
    ifm = builder.map(shape)
    ofm = builder.map((shape[0], *geometry.output(*shape[1:3]), channels))
    dims = (*geometry.kernel, channels) if depthwise else (channels, *geometry.kernel, shape[3])
    weights = rng.integers(-127, 128, dims).astype(np.int8)
    depth = weights.size // channels
    multiplier, shift = quantized_multiplier(rng.uniform(0.3, 1.0, channels) / (60 * depth**0.5))
    scales = builder.scales(rng.integers(-2000, 2000, channels), multiplier, shift)
    look = builder.table(rng.integers(-128, 128, 256).astype(np.int8)) if table else NOWHERE
    arguments = (ifm, int(rng.integers(-128, 128)), ofm, geometry, builder.weight(weights))
    requantize = Requantize(zero_point=int(rng.integers(-50, 50)), scales=scales, table=look, **(stage or {}))
    command = (Depthwise if depthwise else Conv)(*arguments, requantize)
    return Case(name, builder, command, [random_values(rng, ifm)], weights)


_case("conv 3x3", _conv)
_case("conv 1x1", _conv, geometry=Geometry())
_case("conv, linear", _conv, shape=(1, 1, 3, 33), channels=7, geometry=Geometry())
_case("conv, stride 2 and pads of two kinds", _conv, geometry=Geometry((3, 3), (2, 2), pads=(1, 0, 1, 1)))
_case("conv, dilation", _conv, shape=(2, 7, 7, 2), geometry=Geometry((3, 2), (1, 1), (2, 3), (2, 1, 2, 2)))
_case("conv, relu", _conv, stage={"low": 3})
_case("conv, relu6", _conv, stage={"low": -7, "high": 61})
_case("conv, table", _conv, table=True)
_case("conv, transposed", _conv, geometry=Geometry((3, 3), pads=(1, 1, 2, 2), upscale=(2, 2)))
_case("conv, transposed by (3, 2)", _conv, geometry=Geometry((4, 3), pads=(3, 2, 1, 0), upscale=(3, 2)))
_case("conv, deep", _conv, shape=(1, 3, 3, 65), channels=2)
_case("depthwise 3x3", _conv, depthwise=True)
_case("depthwise, stride 2", _conv, depthwise=True, geometry=Geometry((3, 3), (2, 2), pads=(1, 1, 1, 0)))
_case("depthwise, dilation", _conv, depthwise=True, geometry=Geometry((2, 3), (1, 1), (2, 1), (1, 2, 2, 0)))


def _pool(
    name: str,
    rng: np.random.Generator,
    kind: PoolKind = PoolKind.AVERAGE,
    shape: tuple[int, int, int, int] = (1, 6, 6, 5),
    geometry: Geometry = _HALVED,
    scale: float | None = None,
) -> Case:
    builder = Builder()
    ifm, ofm = builder.map(shape), builder.map((shape[0], *geometry.output(*shape[1:3]), shape[3]))
    zero_point = int(rng.integers(-128, 128))
    stage = Requantize(zero_point=zero_point, **({} if scale is None else _scale(scale)))
    command = Pool(kind, ifm, zero_point, ofm, geometry, stage)
    return Case(name, builder, command, [random_values(rng, ifm)])


_case("average pool", _pool)
_case("average pool with pads", _pool, geometry=Geometry((3, 3), pads=(1, 1, 1, 1)))
_case("average pool of everything", _pool, shape=(2, 7, 7, 3), geometry=Geometry((7, 7)))
_case("average pool to another scale", _pool, geometry=Geometry((3, 2)), scale=0.7)
_case("max pool", _pool, kind=PoolKind.MAX)
_case("max pool with pads", _pool, kind=PoolKind.MAX, geometry=Geometry((3, 3), (2, 2), pads=(1, 1, 0, 0)))
_case("max pool to another scale", _pool, kind=PoolKind.MAX, scale=1.3)


# ---- products, elementwise -------------------------------------------------------------------------


def _matmul(name: str, rng: np.random.Generator, n: int, m: int, k: int, columns: int) -> Case:
    builder = Builder()
    left, right = builder.map((n, 1, m, k)), builder.map((n, 1, k, columns))
    ofm = builder.map((n, 1, m, columns))
    zero, zero2, zero3 = (int(value) for value in rng.integers(-12, 12, 3))
    stage = Requantize(zero_point=zero3, **_scale(1 / (90 * k**0.5)))
    command = MatMul(left, zero, right, zero2, ofm, stage)
    return Case(name, builder, command, [random_values(rng, one) for one in inputs_of(command)])


_case("matmul", _matmul, n=1, m=4, k=9, columns=5)
_case("matmul, batches", _matmul, n=3, m=5, k=300, columns=4)


def _elementwise(
    name: str,
    rng: np.random.Generator,
    kind: ElementwiseKind,
    scales: tuple[float, ...] = (),
    out_scale: float | None = None,
    dtype: Dtype = Dtype.INT8,
    out_dtype: Dtype | None = None,
    bits: int = 0,
    zero_points: bool = True,
) -> Case:
    """`scales` of the operands; `bits` to shift them left by."""
    builder = Builder()
    out_dtype = dtype if out_dtype is None else out_dtype
    count = 1 if kind in (ElementwiseKind.COPY, ElementwiseKind.ABS) else 2
    maps = [builder.map((1, 4, 5, 6), dtype) for _ in range(count)]
    ofm = builder.map((1, 4, 5, 6), out_dtype)
    scales = scales or (1.0,) * count
    zeros = rng.integers(-128, 128, 3) if zero_points else np.zeros(3, int)
    operands = [
        Operand(one, int(zero), bits, **({} if scale == 1.0 else _scale(scale)))
        for one, zero, scale in zip(maps, zeros, scales, strict=False)
    ]
    out_zero = int(zeros[2]) if out_dtype is Dtype.INT8 else 0
    stage = Requantize(out_zero, out_dtype.low, out_dtype.high, **({} if out_scale is None else _scale(out_scale)))
    command = Elementwise(kind, operands[0], (*operands, UNUSED)[1], ofm, stage)
    return Case(name, builder, command, [random_values(rng, one) for one in maps])


_case("add", _elementwise, kind=ElementwiseKind.ADD, scales=(0.5, 0.23), out_scale=1.7 / (1 << 20), bits=20)
_case("sub", _elementwise, kind=ElementwiseKind.SUB, scales=(0.31, 0.5), out_scale=1.2 / (1 << 20), bits=20)
_case("mul", _elementwise, kind=ElementwiseKind.MUL, out_scale=0.0123)
_case("maximum", _elementwise, kind=ElementwiseKind.MAXIMUM, scales=(0.5, 0.4), out_scale=1.9 / (1 << 20), bits=20)
_case("minimum", _elementwise, kind=ElementwiseKind.MINIMUM, scales=(0.5, 0.4), out_scale=1.9 / (1 << 20), bits=20)
_case("abs", _elementwise, kind=ElementwiseKind.ABS, out_scale=0.8)
_case("copy to another scale", _elementwise, kind=ElementwiseKind.COPY, out_scale=0.47)
_case("copy int8 to int16", _elementwise, kind=ElementwiseKind.COPY, out_scale=200.0, out_dtype=Dtype.INT16)
_case(
    "copy int16 to int8", _elementwise, kind=ElementwiseKind.COPY, out_scale=0.004, dtype=Dtype.INT16,
    out_dtype=Dtype.INT8, zero_points=False,
)  # fmt: skip
_case(
    "add int16", _elementwise, kind=ElementwiseKind.ADD, scales=(0.5, 0.37), out_scale=1.7 / (1 << 12), bits=12,
    dtype=Dtype.INT16, zero_points=False,
)  # fmt: skip
_case("mul int16", _elementwise, kind=ElementwiseKind.MUL, out_scale=3e-5, dtype=Dtype.INT16, zero_points=False)


def _table(name: str, rng: np.random.Generator, dtype: type[np.int8] | type[np.int16]) -> Case:
    builder = Builder()
    kind = Dtype.INT8 if dtype is np.int8 else Dtype.INT16
    ifm, ofm = builder.map((1, 3, 50, 7), kind), builder.map((1, 3, 50, 7), kind)
    step = 0.05 if dtype is np.int8 else 6 / (1 << 15)
    table = builder.table(table_of(np.tanh, step, 0, 1 / (1 << (8 * kind.nbytes - 1)), 0, dtype))
    stage = Requantize(0, kind.low, kind.high, **({} if dtype is np.int8 else _scale(1 / 128)))
    return Case(name, builder, Table(ifm, table, ofm, stage), [random_values(rng, ifm)])


_case("table of 256", _table, dtype=np.int8)
_case("table of 513", _table, dtype=np.int16)


# ---- resizing, reducing ----------------------------------------------------------------------------


def _resize(name: str, rng: np.random.Generator, mode: ResizeMode, shape: Any, sizes: Any, **places: Any) -> Case:
    builder = Builder()
    ifm, ofm = builder.map(shape), builder.map((shape[0], *sizes, shape[3]))
    zero_point = int(rng.integers(-128, 128))
    scale = {} if mode is ResizeMode.NEAREST else _scale(1 / prod(places["scale_n"]))
    stage = Requantize(zero_point, **scale)
    command = Resize(mode, ifm, zero_point, ofm=ofm, requantize=stage, **places)
    return Case(name, builder, command, [random_values(rng, ifm)])


for _mode in ResizeMode:
    _case(
        f"resize to twice the size, {_mode.name}", _resize, mode=_mode, shape=(1, 4, 5, 3), sizes=(8, 10),
        scale_n=(4, 4), scale_d=(2, 2), offset=(-1, -1),
    )  # fmt: skip
    _case(
        f"resize, corners aligned, {_mode.name}", _resize, mode=_mode, shape=(2, 4, 4, 2), sizes=(7, 10),
        scale_n=(2, 6), scale_d=(1, 2), offset=(0, 0),
    )  # fmt: skip
    _case(
        f"resize to a half, {_mode.name}", _resize, mode=_mode, shape=(1, 8, 6, 3), sizes=(4, 3),
        scale_n=(2, 2), scale_d=(4, 4), offset=(1, 1),
    )  # fmt: skip


def _reduce(name: str, rng: np.random.Generator, kind: ReduceKind, axes: int, scale: float, dtype: Dtype) -> Case:
    builder = Builder()
    shape = (2, 3, 5, 7)
    ifm = builder.map(shape, dtype)
    ofm = builder.map([1 if axes >> dim & 1 else size for dim, size in enumerate(shape)])
    zero_point = int(rng.integers(-12, 12)) if dtype is Dtype.INT8 else 0
    stage = Requantize(int(rng.integers(-20, 20)), **_scale(scale))
    return Case(name, builder, Reduce(kind, axes, ifm, zero_point, ofm, stage), [random_values(rng, ifm)])


_case("sum over h and w", _reduce, kind=ReduceKind.SUM, axes=0b0110, scale=0.2, dtype=Dtype.INT8)
_case("sum over c of int16", _reduce, kind=ReduceKind.SUM, axes=0b1000, scale=0.001, dtype=Dtype.INT16)
_case("maximum over c", _reduce, kind=ReduceKind.MAX, axes=0b1000, scale=0.4, dtype=Dtype.INT8)
_case("minimum over w", _reduce, kind=ReduceKind.MIN, axes=0b0100, scale=1.0, dtype=Dtype.INT8)
_case("sum over everything", _reduce, kind=ReduceKind.SUM, axes=0b1111, scale=0.01, dtype=Dtype.INT8)


CASES_BY_NAME = {case.name: case for case in cases()}
"""Every case; what is in it must not be changed."""
