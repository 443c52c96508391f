"""The vector machine's instructions: the units that each takes in a packet, and its latency; loops of packets.

The resources are those of Hexagon HVX: one load and one store of a vector in a packet, one shift, one permute and two
multiply units. Additions, comparisons and moves run on any of the last four; a product of halves takes both multiply
units. A packet reads all its registers before it writes any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final

from delegraph.lazy_dataclass import dataclass

__all__ = [
    "CODES",
    "OPCODES",
    "RESOURCES",
    "Instruction",
    "Loop",
    "Opcode",
    "Packet",
    "fits",
    "resource_bound",
]

RESOURCES: Final = ("load", "store", "shift", "permute", "multiply")
"""Kinds of units; a device has a number of each."""

ANY: Final = ("shift", "permute", "multiply")
BOTH: Final = 2


@dataclass(frozen=True, slots=True)
class Opcode:
    """`count` units of any one kind in `units` for one packet; the result can be read `latency` packets later.

    `operation` is the row of the energy table for each element; `lanes_nbytes` the size of an element.
    """

    name: str
    units: tuple[str, ...]
    latency: int = 1
    count: int = 1
    operation: str = "int8_add"
    lane_nbytes: int = 1


_ALL: Final = (
    Opcode("vload", ("load",), 2, operation="none"),
    Opcode("vstore", ("store",), 1, operation="none"),
    Opcode("vmove", ANY, operation="none"),
    Opcode("vaddb", ANY, operation="int8_add"),
    Opcode("vaddw", ANY, operation="int32_add", lane_nbytes=4),
    Opcode("vmaxb", ANY, operation="int8_add"),
    Opcode("vmaxw", ANY, operation="int32_add", lane_nbytes=4),
    Opcode("vmpyb", ("multiply",), 2, operation="int8_multiply"),
    Opcode("vmpyh", ("multiply",), 2, BOTH, operation="int16_multiply", lane_nbytes=2),
    Opcode("vmpyw", ("multiply",), 2, BOTH, operation="int32_multiply", lane_nbytes=4),
    Opcode("vshift", ("shift",), operation="int32_add", lane_nbytes=4),
    Opcode("vround", ("shift",), operation="int32_add", lane_nbytes=4),
    Opcode("vpack", ("permute",), operation="none"),
    Opcode("vunpack", ("permute",), operation="none"),
    Opcode("vshuffle", ("permute",), operation="none"),
    Opcode("vlut", ("permute",), operation="none"),
    Opcode("vsplat", ("permute",), operation="none"),
    Opcode("vaddf", ANY, 2, operation="float16_add", lane_nbytes=2),
    Opcode("vmpyf", ("multiply",), 2, BOTH, operation="float16_multiply", lane_nbytes=2),
    Opcode("vaddsf", ANY, 2, operation="float32_add", lane_nbytes=4),
    Opcode("vmpysf", ("multiply",), 3, BOTH, operation="float32_multiply", lane_nbytes=4),
    Opcode("vmaxf", ANY, operation="float16_add", lane_nbytes=2),
    Opcode("vconvert", ("shift",), 2, operation="none"),
    Opcode("vmux", ANY, operation="int8_add"),
    Opcode("vgather", ("load",), 4, operation="none"),
)

OPCODES: Final[tuple[Opcode, ...]] = _ALL
"""Opcodes, by their numbers in a binary."""

CODES: Final[Mapping[str, int]] = {opcode.name: number for number, opcode in enumerate(OPCODES)}
"""Name -> number."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """`target = opcode sources`; -1 for no target. Loads and stores go along operand `stream`, a vector each time.

    Registers are numbers. A register that an iteration reads before it writes it has the value of the iteration before.
    """

    code: int
    target: int = -1
    sources: tuple[int, ...] = ()
    stream: int = -1

    @property
    def opcode(self) -> Opcode:
        """The opcode with the number `code`."""
        return OPCODES[self.code]


Packet = tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """The packets of one iteration; an empty packet waits for a result. `bound` is the least number of packets."""

    packets: tuple[Packet, ...]
    bound: int

    @property
    def instructions(self) -> list[Instruction]:
        """The instructions of all packets."""
        return [instruction for packet in self.packets for instruction in packet]


def fits(packet: Sequence[Instruction], units: Mapping[str, int], width: int) -> bool:
    """Whether one packet can hold these instructions: at most `width`, and enough units for each kind of them."""
    if len(packet) > width:
        return False
    opcodes = sorted((i.opcode for i in packet), key=lambda opcode: len(opcode.units))
    return _assign(opcodes, dict(units))


def _assign(opcodes: list[Opcode], free: dict[str, int]) -> bool:
    if not opcodes:
        return True
    first, *others = opcodes
    for unit in first.units:
        if free[unit] >= first.count:
            free[unit] -= first.count
            if _assign(others, free):
                return True
            free[unit] += first.count
    return False


def resource_bound(instructions: Iterable[Instruction], units: Mapping[str, int], width: int) -> int:
    """The least number of packets that any schedule of these instructions has, whatever their order.

    For every set of unit kinds, the instructions that can run nowhere else take `uses / units` packets; and each packet
    has at most `width` instructions (the resource-constrained lower bound of modulo scheduling, Rau 1994, with
    alternatives).
    """
    uses: Counter[tuple[str, ...]] = Counter()
    listed = list(instructions)
    for instruction in listed:
        uses[instruction.opcode.units] += instruction.opcode.count
    bound = -(-len(listed) // width)
    for size in range(1, len(RESOURCES) + 1):
        for kinds in combinations(RESOURCES, size):
            confined = sum(count for alternatives, count in uses.items() if set(alternatives) <= set(kinds))
            bound = max(bound, -(-confined // sum(units[kind] for kind in kinds)))
    return bound
