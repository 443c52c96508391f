"""A loop's instructions, in order -> packets: unrolled, list-scheduled by critical path, given real registers.

a = vload 0          packet 0   a0 = vload 0
s = vaddb a b        packet 1   a1 = vload 0
vstore 1 s           packet 2   s0 = vaddb a0 b
                     packet 3   s1 = vaddb a1 b; vstore 1 s0
                     packet 4   vstore 1 s1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from delegraph_dsp.device import Device
from delegraph_dsp.isa import Instruction, Loop, Packet, fits, resource_bound

__all__ = ["dependencies", "schedule", "schedule_best", "unroll"]

UNROLLS: Final = (1, 2, 4, 8, 16)
"""The numbers of iterations that are tried as a loop's body: more iterations hide latencies, and need more registers.

This replaces software pipelining, which would overlap the last packets of an iteration with the first of the next:
unrolled iterations overlap within a loop's body, and latencies are only waited for once in up to 16 iterations.
"""


@lru_cache(maxsize=2048)
def _unrolled(body: tuple[Instruction, ...], count: int, device: Device) -> Loop | None:
    return schedule(unroll(body, count), device)


def schedule_best(body: tuple[Instruction, ...], iterations: int, device: Device) -> tuple[Loop, int]:
    """The loop that takes the fewest packets for `iterations` of `body`, and how often it runs.

    Raises `ValueError` for a body that needs more registers than the device has.
    """
    best: tuple[Loop, int] | None = None
    for count in UNROLLS:
        loop = _unrolled(body, count, device) if count == 1 or count <= iterations else None
        if loop is not None:
            trips = -(-iterations // count)
            if best is None or len(loop.packets) * trips < len(best[0].packets) * best[1]:
                best = (loop, trips)
            if len(loop.packets) == loop.bound:
                break
    if best is None:
        raise ValueError(f"a loop of {len(body)} instructions needs more than {device.vector_registers} registers")
    return best


def unroll(body: Sequence[Instruction], count: int) -> list[Instruction]:
    """`count` iterations one after the other, each with registers of its own except those carried from the last
    iteration.

    A value that an iteration passes to the next is in the same register in all.
    """
    carried = _carried(body)
    width = max((max([i.target, *i.sources]) for i in body), default=-1) + 1
    return [_moved(i, n * width, carried) for n in range(count) for i in body]


def _carried(body: Sequence[Instruction]) -> set[int]:
    """Registers that are read before they are written: constants, and values that an iteration passes to the next."""
    written: set[int] = set()
    carried: set[int] = set()
    for instruction in body:
        carried.update(source for source in instruction.sources if source not in written)
        written.add(instruction.target)
    return carried


def _moved(instruction: Instruction, by: int, kept: set[int]) -> Instruction:
    def moved(register: int) -> int:
        return register if register in kept or register < 0 else register + by

    return replace(instruction, target=moved(instruction.target), sources=tuple(map(moved, instruction.sources)))


def dependencies(body: Sequence[Instruction]) -> list[dict[int, int]]:
    """For each instruction, the earlier ones on which it waits, and the least distance to each in packets.

    A value is read its latency after it was written; a register is written again in the packet of its last reader or
    later, and after its last writer; loads and stores of one stream stay in order.
    """
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    last_of_stream: dict[int, int] = {}
    waits_of_all: list[dict[int, int]] = []
    for index, instruction in enumerate(body):
        waits: dict[int, int] = {}
        for source in instruction.sources:
            if source in writer:
                waits[writer[source]] = body[writer[source]].opcode.latency
            readers.setdefault(source, []).append(index)
        target = instruction.target
        if target >= 0:
            # write after read: a packet reads before it writes, so that both may share one
            for reader in readers.pop(target, []):
                if reader != index:
                    waits[reader] = max(waits.get(reader, 0), 0)
            # write after write: the later result must arrive later
            if target in writer:
                first = body[writer[target]].opcode.latency
                waits[writer[target]] = max(waits.get(writer[target], 0), first - instruction.opcode.latency + 1, 1)
            writer[target] = index
        # an access moves the stream's pointer on
        if instruction.stream >= 0:
            if instruction.stream in last_of_stream:
                earlier = last_of_stream[instruction.stream]
                waits[earlier] = max(waits.get(earlier, 0), 1)
            last_of_stream[instruction.stream] = index
        waits_of_all.append(waits)
    return waits_of_all


def schedule(body: Sequence[Instruction], device: Device) -> Loop | None:
    """The packets of one iteration; None if they need more registers than there are."""
    waits = dependencies(body)
    priority = _critical_paths(body, waits)
    start: dict[int, int] = {}
    packets: list[list[int]] = []
    # the longest critical path first
    left = sorted(range(len(body)), key=lambda index: (-priority[index], index))
    while left:
        now = len(packets)
        packet: list[int] = []
        for index in list(left):
            ready = all(w in start and start[w] + gap <= now for w, gap in waits[index].items())
            if ready and fits([body[i] for i in [*packet, index]], device.units, device.packet_width):
                packet.append(index)
                start[index] = now
                left.remove(index)
        packets.append(packet)
    carried = _carried(body)
    packets += [[] for _ in range(_wait_for_next(body, start, len(packets), carried))]
    rows = [[body[index] for index in sorted(packet)] for packet in packets]
    named = _with_registers(rows, carried, device.vector_registers)
    return None if named is None else Loop(named, resource_bound(body, device.units, device.packet_width))


def _critical_paths(body: Sequence[Instruction], waits: Sequence[dict[int, int]]) -> list[int]:
    """The least number of packets that come after each instruction."""
    longest = [instruction.opcode.latency for instruction in body]
    for index in reversed(range(len(body))):
        for earlier, gap in waits[index].items():
            longest[earlier] = max(longest[earlier], longest[index] + gap)
    return longest


def _wait_for_next(body: Sequence[Instruction], start: dict[int, int], length: int, carried: set[int]) -> int:
    """Empty packets behind the last, so that the next iteration reads the registers that this one leaves, and no late
    result of this one arrives in a register that has another value then: a result that nobody waits for."""
    written: dict[int, int] = {}
    for index, instruction in enumerate(body):
        if instruction.target >= 0:
            written[instruction.target] = start[index] + instruction.opcode.latency
    seen: set[int] = set()
    missing = max([0, *(end - length for register, end in written.items() if register not in carried)])
    for index, instruction in enumerate(body):
        for source in instruction.sources:
            if source in written and source not in seen:
                missing = max(missing, written[source] - start[index] - length)
        seen.add(instruction.target)
    return missing


# ---- registers ----------------------------------------------------------------------------------------------------


def _with_registers(
    packets: Sequence[Sequence[Instruction]], carried: set[int], registers: int
) -> tuple[Packet, ...] | None:
    """The packets with registers numbered below `registers`; None if these are too few."""
    last_read = {source: at for at, packet in enumerate(packets) for i in packet for source in i.sources}
    names = {register: number for number, register in enumerate(sorted(carried))}
    free = list(reversed(range(len(names), registers)))
    if len(names) > registers:
        return None
    busy_until: dict[int, int] = {}  # until its last reader, or its writer's result
    done: list[Packet] = []
    for at, packet in enumerate(packets):
        sources = [tuple(names[source] for source in i.sources) for i in packet]
        free += [name for name, until in busy_until.items() if until <= at]
        busy_until = {name: until for name, until in busy_until.items() if until > at}
        row = []
        for instruction, read in zip(packet, sources, strict=True):
            target = instruction.target
            if target >= 0 and target not in carried:
                if not free:
                    return None
                names[target] = free.pop()
                busy_until[names[target]] = max(last_read.get(target, at), at + instruction.opcode.latency)
            row.append(replace(instruction, target=names.get(target, -1), sources=read))
        done.append(tuple(row))
    return tuple(done)
