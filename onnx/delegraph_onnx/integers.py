"""Integers that represent a float value: how they are stored, and quantized from and dequantized to it in ONNX.

torch's int8 is stored as uint8, 128 higher, and so is its zero point: the same grid. Engines multiply uint8 with int8
(weights) many times faster than int8 with int8. Some have 16 bits without a sign alone (`Target.unsigned`).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray

from delegraph.aot.authoring import torch_dtype
from delegraph_onnx.target import QuantizedAs

if TYPE_CHECKING:
    from delegraph_onnx.graph_builder import GraphBuilder

__all__ = ["Affine", "Integers", "dequantized", "narrowed", "quantized", "shift_of", "shifted", "without_sign"]

_STORED: Final[dict[torch.dtype, type[np.integer[Any]]]] = {
    torch.int8: np.int8,
    torch.uint8: np.uint8,
    torch.int16: np.int16,
    torch.uint16: np.uint16,
    torch.int32: np.int32,
}
_UNSIGNED: Final[dict[torch.dtype, tuple[type[np.integer[Any]], torch.dtype, int]]] = {
    torch.int8: (np.uint8, torch.uint8, 128),
    torch.int16: (np.uint16, torch.uint16, 32768),
}
"""dtype -> that of the stored integers if they have no sign, for NumPy and torch, and how much higher they are."""


def shift_of(dtype: torch.dtype, unsigned: Container[torch.dtype]) -> int:
    """The amount by which stored integers of `dtype` are higher."""
    return _UNSIGNED[dtype][2] if dtype in unsigned else 0


def without_sign(dtype: torch.dtype) -> torch.dtype:
    """The dtype of as many bits as the signed `dtype`, without a sign."""
    return _UNSIGNED[dtype][1]


@dataclass(frozen=True, slots=True)
class Affine:
    """The stored parameters of a whole tensor: real = (integer - zero_point) * scale, low <= integer <= high."""

    scale: float
    zero_point: int
    low: int
    high: int
    dtype: type[np.integer[Any]]

    @classmethod
    def of(
        cls,
        scale: float,
        zero_point: int,
        low: int,
        high: int,
        dtype: torch.dtype,
        unsigned: Container[torch.dtype] = (torch.int8,),
    ) -> Affine:
        """torch's parameters in stored terms; the scale in float32, in which both torch and onnxruntime compute."""
        stored, shift = _UNSIGNED[dtype][0] if dtype in unsigned else _STORED[dtype], shift_of(dtype, unsigned)
        return cls(float(np.float32(scale)), zero_point + shift, low + shift, high + shift, stored)

    @property
    def full(self) -> Affine:
        """The same grid over the whole range of the dtype."""
        limits = np.iinfo(self.dtype)
        return replace(self, low=int(limits.min), high=int(limits.max))

    def __call__(self, number: float) -> int:
        """The integer for `number`: torch's arithmetic, in float32."""
        steps = np.float32(number) * np.float32(1.0 / self.scale)
        with np.errstate(invalid="ignore"):
            return int(np.clip(np.round(steps) + self.zero_point, self.low, self.high))

    def on_grid(self, number: float) -> bool:
        """Whether `number` is exactly the real value of its integer."""
        return bool(np.float32(self(number) - self.zero_point) * np.float32(self.scale) == np.float32(number))

    def inputs(self, g: GraphBuilder) -> tuple[ir.Value, ir.Value]:
        """Scale and zero point, the pair of inputs that operators on integers have for each tensor."""
        return g.constant(np.array(self.scale, np.float32)), g.constant(np.array(self.zero_point, self.dtype))


@dataclass(frozen=True, slots=True, eq=False)
class Integers:
    """A value on a grid. Along `axis`, if any, scales and zero points are arrays; `content` is that of a constant."""

    value: ir.Value
    scale: NDArray[np.float32]
    zero_point: NDArray[np.integer[Any]]
    axis: int | None = None
    content: NDArray[Any] | None = None
    low: int = -(2**31)
    high: int = 2**31 - 1

    def __post_init__(self) -> None:
        if self.value.type is None:  # so that converters for floats see the integers' dtype
            self.value.type = ir.TensorType(ir.DataType.from_numpy(self.zero_point.dtype))

    @classmethod
    def on(cls, value: ir.Value, grid: Affine) -> Integers:
        """`value`, integers of `grid`."""
        scale, zero_point = np.array(grid.scale, np.float32), np.array(grid.zero_point, grid.dtype)
        return cls(value, scale, zero_point, low=grid.low, high=grid.high)

    @property
    def grid(self) -> Affine | None:
        """The parameters, if they hold for the whole tensor."""
        if self.axis is not None:
            return None
        dtype = self.zero_point.dtype.type
        return Affine(float(self.scale), int(self.zero_point), self.low, self.high, dtype)

    def inputs(self, g: GraphBuilder) -> tuple[ir.Value, ir.Value]:
        """As `Affine.inputs`."""
        return g.constant(self.scale), g.constant(self.zero_point)


def quantized(g: GraphBuilder, real: ir.Value, grid: Affine) -> ir.Value:
    """`real` (float32) as stored integers of `grid`, rounded half to even.

    onnxruntime divides by the scale and torch multiplies by its reciprocal: a value within an ulp of the middle of two
    integers may become the other one.
    """
    if g.target.quantized_as is QuantizedAs.ARITHMETIC:
        return _counted(g, real, grid)
    domain = "" if grid.dtype is np.uint8 else g.target.domain_of_16_bits
    if grid.dtype is np.uint8 or grid == grid.full:
        return narrowed(g, g.op("QuantizeLinear", real, *grid.inputs(g), domain=domain), grid.full, grid)
    low, high = ((bound - grid.zero_point) * grid.scale for bound in (grid.low, grid.high))
    limited = g.op("Clip", real, *(g.constant(np.array(bound, np.float32)) for bound in (low, high)))
    return g.op("QuantizeLinear", limited, *grid.inputs(g), domain=domain)


def narrowed(g: GraphBuilder, value: ir.Value, known: Affine, grid: Affine) -> ir.Value:
    """Integers within `known`, limited to the range of `grid`: both have the same grid without a sign."""
    if grid.low <= known.low and known.high <= grid.high:
        return value
    return g.op("Clip", value, *(g.constant(np.array(bound, grid.dtype)) for bound in (grid.low, grid.high)))


def dequantized(g: GraphBuilder, integers: Integers) -> ir.Value:
    """The value in float32."""
    value, (scale, zero_point) = integers.value, integers.inputs(g)
    dtype = integers.zero_point.dtype
    has_none = dtype == np.int32 and integers.zero_point.any()  # ONNX has no such zero point
    if has_none or g.target.quantized_as is QuantizedAs.ARITHMETIC:
        return _computed(g, integers)
    domain = g.target.domain_of_16_bits if dtype in (np.int16, np.uint16) else ""
    return g.op("DequantizeLinear", value, scale, zero_point, axis=integers.axis, domain=domain)


def _counted(g: GraphBuilder, real: ir.Value, grid: Affine) -> ir.Value:
    """`clamp(round(real * (1 / scale)) + zero_point)`, torch's arithmetic."""
    numbers = [np.float32(number) for number in (1 / grid.scale, grid.zero_point, grid.low, grid.high)]
    inverse, zero_point, low, high = (g.constant(np.array(number)) for number in numbers)
    steps = g.op("Add", g.op("Round", g.op("Mul", real, inverse)), zero_point)
    return g.cast(g.cast(g.op("Clip", steps, low, high), torch.int32), torch_dtype(np.dtype(grid.dtype)))


def _computed(g: GraphBuilder, integers: Integers) -> ir.Value:
    zero_point, scale = integers.zero_point.astype(np.int32), integers.scale
    if integers.axis is not None:
        known = g.shape_of(integers.value)
        assert known is not None  # a constant's
        along = [-1 if dim == integers.axis else 1 for dim in range(len(known))]
        zero_point, scale = zero_point.reshape(along), scale.reshape(along)
    difference = g.op("Sub", g.cast(integers.value, torch.int32), g.constant(zero_point))
    return g.op("Mul", g.cast(difference, torch.float32), g.constant(scale))


def shifted(g: GraphBuilder, value: ir.Value, to: torch.dtype) -> ir.Value:
    """int8 as uint8, 128 higher, or back, and 16 bits alike: only the highest bit changes."""
    for signed, (array, unsigned, shift) in _UNSIGNED.items():
        bit = g.constant(np.array(shift, array))
        if to == unsigned:
            return g.op("BitwiseXor", g.cast(value, unsigned), bit)
        if to == signed:
            return g.cast(g.op("BitwiseXor", value, bit), signed)
    raise AssertionError(f"{to} is not shifted")
