"""Commands -> the constant bytes that each reads, to wherever transfers have copied them.

Weights, scales and tables never change, so they are decoded once, when a delegate is loaded. A command may read them in
SRAM: then the bytes there must be, to the last one, those of one transfer from a block of the blob.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import Buffer
from delegraph.lazy_dataclass import dataclass
from delegraph_machines.hazards import Range
from delegraph_npu.accesses import constants_of, dma_ranges, ranges_of
from delegraph_npu.commands import Block, Command, DmaStart, DmaWait, Region, Stop

__all__ = ["constants_read"]


@dataclass(frozen=True, slots=True)
class _Copy:
    """Bytes of a memory that are equal to those of a constant region, from `origin` on."""

    place: Range
    region: Region
    origin: int


def constants_read(commands: Iterable[Command], regions: Mapping[Region, Buffer]) -> Iterator[dict[Block, memoryview]]:
    """For each command, the bytes of each of its constant blocks. `regions` are WEIGHTS and TABLES.

    Raises `DelegateInvalidCompatibility` for a block that is not constant. The commands have been validated.
    """
    copies: list[_Copy] = []
    for index, command in enumerate(commands):
        contents: dict[Block, memoryview] = {}
        if isinstance(command, DmaStart):
            _, written = dma_ranges(command)
            copies = _without(copies, written)
            if command.source.region in regions and prod(command.shape) == command.shape[2]:
                copies.append(_Copy(written, command.source.region, command.source.offset))
        elif not isinstance(command, Stop | DmaWait):
            for block in constants_of(command):
                contents[block] = _bytes(block, copies, regions, index)
            for written in ranges_of(command)[1]:
                copies = _without(copies, written)
        yield contents


def _without(copies: list[_Copy], written: Range) -> list[_Copy]:
    return [copy for copy in copies if not copy.place.overlaps(written)]


def _bytes(block: Block, copies: list[_Copy], regions: Mapping[Region, Buffer], index: int) -> memoryview:
    """The content of `block`."""
    region, offset = block.region, block.offset
    if region not in regions:
        memory, end = region.name, offset + block.nbytes
        copy = next(
            (c for c in copies if c.place.memory == memory and c.place.begin <= offset and end <= c.place.end), None
        )
        if copy is None:
            raise DelegateInvalidCompatibility(
                f"command {index} of a stream of NpuBackend reads constants at {memory} {offset}, where no transfer"
                " brought any"
            )
        region, offset = copy.region, copy.origin + offset - copy.place.begin
    return memoryview(regions[region]).cast("B")[offset : offset + block.nbytes]
