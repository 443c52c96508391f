"""Blocks of weights -> the region WEIGHTS, each content in it once; and which partitions have one in common.

    alone     WEIGHTS  scales | stream | scales | stream …      in the partition's blob
    shared    WEIGHTS  stream | stream …                        in the named data, for all partitions that share
              TABLES   scales | scales …                        in each partition's blob: grids are its own

Streams are equal where a layer is cut into the same blocks of channels, which it is as long as it fits into SRAM.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from delegraph_npu.aot import ir
from delegraph_npu.aot.scheduling import Schedule
from delegraph_npu.aot.weight_blocks import WeightBlocks
from delegraph_npu.blob import BACKEND_ID

__all__ = ["WeightPool", "sharing"]


@dataclass(slots=True)
class WeightPool:
    """WEIGHTS as it grows."""

    content: bytearray = field(default_factory=bytearray)
    _places: dict[bytes, int] = field(default_factory=dict)

    def place(self, data: bytes) -> int:
        """Where `data` is."""
        if data not in self._places:
            self._places[data] = len(self.content)
            self.content += data
        return self._places[data]

    @property
    def key(self) -> str:
        """Its key in the named data."""
        return f"{BACKEND_ID}/{hashlib.sha256(self.content).hexdigest()}"


def sharing(scheduled: Sequence[tuple[Schedule, WeightBlocks]]) -> list[bool]:
    """For each partition whether another one has a block of the same weights."""
    streams = [_streams(schedule, blocks) for schedule, blocks in scheduled]
    owners = Counter(stream for found in streams for stream in found)
    return [any(owners[stream] > 1 for stream in found) for found in streams]


def _streams(schedule: Schedule, blocks: WeightBlocks) -> frozenset[bytes]:
    return frozenset(
        blocks.block(operator, *channels).stream
        for plan in schedule.plans
        for operator, weights in plan.weights.items()
        if isinstance(operator, ir.Convolution)
        for channels in weights.channels
    )
