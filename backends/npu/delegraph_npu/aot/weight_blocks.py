"""A convolution's weights -> blocks of output channels, each with its scales, which are loaded into SRAM at once.

bias, multiplier, shift (int32 each) of every channel | 0 to a multiple of 16 | compressed weights | 0 likewise
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from delegraph_machines.fixed_point import quantized_multiplier
from delegraph_npu.aot import ir
from delegraph_npu.aot.tiling import Weights, aligned
from delegraph_npu.runtime.validate import SCALE_NBYTES
from delegraph_npu.weights import compress, store

__all__ = ["WeightBlock", "WeightBlocks"]


@dataclass(frozen=True, slots=True)
class WeightBlock:
    """Bytes as they lie in WEIGHTS and SRAM; scales are the first `scales_nbytes`, weights the last `weights_nbytes`
    before the padding, at `weights_offset`."""

    data: bytes
    scales_nbytes: int
    weights_offset: int
    weights_nbytes: int

    @property
    def scales(self) -> bytes:
        """The bytes in front of the weights, with their padding."""
        return self.data[: self.weights_offset]

    @property
    def stream(self) -> bytes:
        """The weights, with their padding."""
        return self.data[self.weights_offset :]


@dataclass(slots=True)
class WeightBlocks:
    """Blocks, each made once, on request. `columns`: channels that the array computes at a time."""

    columns: int
    compressed: bool
    _made: dict[tuple[ir.Convolution, int, int], WeightBlock] = field(default_factory=dict)

    def split(self, operator: ir.Convolution, most: int) -> Weights:
        """Blocks of as many channels as have up to `most` bytes before compression: a multiple of the columns."""
        channels = operator.output.shape[3]
        channel_nbytes = operator.weight.size // channels + SCALE_NBYTES
        step = max(most // (channel_nbytes * self.columns), 1) * self.columns
        spans = tuple((begin, min(begin + step, channels)) for begin in range(0, channels, step))
        return Weights(spans, tuple(len(self.block(operator, *span).data) for span in spans))

    def block(self, operator: ir.Convolution, begin: int, end: int) -> WeightBlock:
        """The block of output channels `begin` to `end`."""
        key = operator, begin, end
        if key not in self._made:
            self._made[key] = self._block(operator, slice(begin, end))
        return self._made[key]

    def _block(self, operator: ir.Convolution, channels: slice) -> WeightBlock:
        weight = operator.weight[..., channels] if operator.depthwise else operator.weight[channels]
        scales = _scales(operator, channels)
        stream = (compress if self.compressed else store)(np.ascontiguousarray(weight))
        offset = aligned(len(scales))
        data = scales + bytes(offset - len(scales)) + stream
        return WeightBlock(data + bytes(aligned(len(data)) - len(data)), len(scales), offset, len(stream))


def _scales(operator: ir.Convolution, channels: slice) -> bytes:
    multiplier, shift = quantized_multiplier(operator.rescaling[channels])
    bounds = np.iinfo(np.int32)
    bias: NDArray[np.int64] = np.clip(operator.bias[channels], bounds.min, bounds.max)
    return np.stack([bias, multiplier.astype(np.int64), shift.astype(np.int64)], axis=1).astype("<i4").tobytes()
