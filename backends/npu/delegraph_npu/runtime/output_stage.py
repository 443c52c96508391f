"""int32 sums -> elements of an output: bias, multiplier and shift, zero point, clamp, table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import DelegateInvalidCompatibility
from delegraph_machines.fixed_point import Rounding, requantize
from delegraph_npu.commands import IDENTITY_MULTIPLIER, IDENTITY_SHIFT, Block, Dtype, FeatureMap, Requantize

__all__ = ["NUMPY_DTYPES", "OutputStage"]

NUMPY_DTYPES: Final[dict[Dtype, np.dtype[Any]]] = {
    Dtype.INT8: np.dtype("<i1"),
    Dtype.INT16: np.dtype("<i2"),
    Dtype.INT32: np.dtype("<i4"),
}


class OutputStage:
    """The output stage of a command. Channels are the last dim of its sums."""

    def __init__(
        self, stage: Requantize, ofm: FeatureMap, constants: Mapping[Block, memoryview], rounding: Rounding
    ) -> None:
        self._stage = stage
        self._rounding: Rounding = rounding
        self._dtype = NUMPY_DTYPES[ofm.dtype]
        self.bias: NDArray[np.int64] | None = None
        self._multiplier: Any = stage.multiplier
        self._shift: Any = stage.shift
        self._is_identity = not stage.scales and (stage.multiplier, stage.shift) == (
            IDENTITY_MULTIPLIER,
            IDENTITY_SHIFT,
        )
        if stage.scales:
            scales = np.frombuffer(constants[stage.scales], "<i4").reshape(-1, 3).astype(np.int64)
            self.bias, self._multiplier, self._shift = (np.ascontiguousarray(column) for column in scales.T)
            if (self._multiplier < 0).any() or ((self._shift < 2) | (self._shift > 62)).any():
                raise DelegateInvalidCompatibility(
                    "scales of NpuBackend: a multiplier is below 0, or a shift not 2 to 62"
                )
        self._table: NDArray[np.int8] | None = None
        if stage.table:  # an int8, read as uint8, is its own index then
            self._table = np.roll(np.frombuffer(constants[stage.table], np.int8), 128)

    def __call__(self, sums: NDArray[np.int64]) -> NDArray[Any]:
        """`sums`, to which `bias` has been added, as elements of the output."""
        stage = self._stage
        if self._is_identity:
            values = np.clip(sums + stage.zero_point, stage.low, stage.high)
        else:
            values = requantize(
                sums, self._multiplier, self._shift, stage.zero_point, stage.low, stage.high, self._rounding
            )
        elements = values.astype(self._dtype)
        return elements if self._table is None else np.asarray(self._table[elements.view(np.uint8)])
