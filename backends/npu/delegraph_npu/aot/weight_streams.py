"""Blocks of weights -> the weights that partitions share, in the region WEIGHTS.

    alone     WEIGHTS  scales | stream | scales | stream …      in the partition's blob
    shared    WEIGHTS  stream | stream …                        in the named data, for all partitions that share
              TABLES   scales | scales …                        in each partition's blob: grids are its own

Streams are equal where partitions cut a layer into the same blocks of channels, which they do if it fits into SRAM.
"""

from __future__ import annotations

from delegraph_npu.aot import ir
from delegraph_npu.aot.scheduling import Schedule
from delegraph_npu.aot.weight_blocks import WeightBlocks

__all__ = ["streams"]


def streams(schedule: Schedule, blocks: WeightBlocks) -> frozenset[bytes]:
    """The streams of all blocks of a partition."""
    return frozenset(
        blocks.block(operator, *channels).stream
        for plan in schedule.plans
        for operator, weights in plan.weights.items()
        if isinstance(operator, ir.Convolution)
        for channels in weights.channels
    )
