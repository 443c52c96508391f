"""The arguments of a convolution in one to three spatial dims -> its sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from delegraph.errors import InvalidArgument
from delegraph.lazy_dataclass import dataclass
from delegraph.runtime.numpy_kernels.prepared import Array
from delegraph.runtime.numpy_kernels.shapes import Shape, per_dim


@dataclass(frozen=True, slots=True)
class ConvolutionGeometry:
    """The sizes of one convolution; tuples have one entry per spatial dim."""

    batch: int
    in_channels: int
    out_channels: int
    groups: int
    input: Shape
    output: Shape
    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def padded(self) -> Shape:
        return tuple(n + 2 * p for n, p in zip(self.input, self.padding, strict=True))

    def tap_slices(self, tap: Sequence[int], count: Shape) -> tuple[slice, ...]:
        """Where, in the padded input, kernel point `tap` lies for `count` outputs in each dim."""
        starts = (t * d for t, d in zip(tap, self.dilation, strict=True))
        return tuple(
            slice(start, start + (n - 1) * step + 1, step)
            for start, n, step in zip(starts, count, self.stride, strict=True)
        )


def _output_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _transposed_size(size: int, kernel: int, stride: int, padding: int, dilation: int, extra: int) -> int:
    return (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + extra + 1


def geometry(
    input: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> ConvolutionGeometry:
    rank = weight.ndim - 2
    if rank not in (1, 2, 3) or input.ndim != weight.ndim:
        raise InvalidArgument(f"arguments 'input' {input.shape} and 'weight' {weight.shape} must both have 3 to 5 dims")
    steps, pads, spread, extra = (
        per_dim(values, rank, name)
        for values, name in (
            (stride, "stride"),
            (padding, "padding"),
            (dilation, "dilation"),
            (output_padding, "output_padding"),
        )
    )
    if min(*steps, *spread, groups) < 1 or min(*pads, *extra) < 0:
        raise InvalidArgument("arguments 'stride', 'dilation' and 'groups' must be positive, and paddings not negative")
    in_channels = weight.shape[0] if transposed else weight.shape[1] * groups
    out_channels = weight.shape[1] * groups if transposed else weight.shape[0]
    if input.shape[1] != in_channels or in_channels % groups or out_channels % groups:
        raise InvalidArgument(
            f"argument 'input' {input.shape} does not fit argument 'weight' {weight.shape} with groups={groups}"
        )
    sizes = zip(input.shape[2:], weight.shape[2:], steps, pads, spread, strict=True)
    if transposed:
        output = tuple(_transposed_size(*s, e) for s, e in zip(sizes, extra, strict=True))
    else:
        output = tuple(_output_size(*s) for s in sizes)
    if min(output) < (0 if input.size == 0 else 1):
        raise InvalidArgument(f"argument 'input' {input.shape} is smaller than the kernel {weight.shape[2:]}")
    return ConvolutionGeometry(
        input.shape[0],
        in_channels,
        out_channels,
        groups,
        input.shape[2:],
        output,
        weight.shape[2:],
        steps,
        pads,
        spread,
    )
