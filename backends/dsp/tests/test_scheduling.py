"""Loops scheduled into packets, against an interpreter of packets that knows nothing of how they were scheduled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from backends.dsp.tests.harness import small
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delegraph_dsp.aot.loops import Tile, loops_of
from delegraph_dsp.aot.scheduling import schedule, schedule_best, unroll
from delegraph_dsp.isa import CODES, OPCODES, Instruction, Loop, fits, resource_bound
from delegraph_dsp.program import KERNELS
from delegraph_dsp.runtime.validator import loop_fault

DEVICE = small()
ITERATIONS = 3


# ---- two interpreters, of expressions -----------------------------------------------------------------------------


def in_order(body: Sequence[Instruction], iterations: int) -> dict[int, list[Any]]:
    """What each stream gets if the instructions run one after the other."""
    registers: dict[int, Any] = {}
    loaded: dict[int, int] = {}
    stored: dict[int, list[Any]] = {}
    for _ in range(iterations):
        for i in body:
            _step(i, [registers.get(s, "initial") for s in i.sources], registers, loaded, stored)
    return stored


def in_packets(loop: Loop, iterations: int) -> dict[int, list[Any]]:
    """The same for packets: all read, then write, and a result is there when its latency is over, not before."""
    registers: dict[int, Any] = {}
    pending: list[tuple[int, int, Any]] = []
    loaded: dict[int, int] = {}
    stored: dict[int, list[Any]] = {}
    for time, packet in enumerate(loop.packets * iterations):
        for write in [write for write in pending if write[0] <= time]:
            registers[write[1]] = write[2]
            pending.remove(write)
        read = [[registers.get(s, "initial") for s in i.sources] for i in packet]
        for i, values in zip(packet, read, strict=True):
            results: dict[int, Any] = {}
            _step(i, values, results, loaded, stored)
            pending += [(time + i.opcode.latency, target, value) for target, value in results.items()]
    return stored


def _step(i: Instruction, values: list[Any], registers: dict[int, Any], loaded: Any, stored: Any) -> None:
    if i.opcode.name == "vstore":
        stored.setdefault(i.stream, []).append(values[0])
    elif i.opcode.name == "vload":
        loaded[i.stream] = loaded.get(i.stream, -1) + 1
        registers[i.target] = ("load", i.stream, loaded[i.stream])
    else:
        registers[i.target] = hash((i.opcode.name, *values))


# ---- random bodies ------------------------------------------------------------------------------------------------

OTHERS = [opcode.name for opcode in OPCODES if opcode.name not in ("vload", "vstore")]


@st.composite
def bodies(draw: st.DrawFn) -> list[Instruction]:
    """Loads, operations on what is there, sums that go on from iteration to iteration, stores."""
    body: list[Instruction] = []
    registers: list[int] = []
    sums = list(range(draw(st.integers(0, 3))))
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(["load", "op", "op", "op", "sum", "store"]))
        new = len(sums) + len(body)
        if kind == "load" or not registers:
            body.append(Instruction(CODES["vload"], new, (), draw(st.integers(0, 2))))
            registers.append(new)
        elif kind == "store":
            body.append(Instruction(CODES["vstore"], -1, (draw(st.sampled_from(registers)),), 3))
        elif kind == "sum" and sums:
            total = draw(st.sampled_from(sums))
            body.append(Instruction(CODES["vaddw"], total, (total, draw(st.sampled_from(registers)))))
        else:
            sources = tuple(draw(st.lists(st.sampled_from([*registers, *sums]), min_size=1, max_size=3)))
            body.append(Instruction(CODES[draw(st.sampled_from(OTHERS))], new, sources))
            registers.append(new)
    body += [Instruction(CODES["vstore"], -1, (total,), 4) for total in sums]
    return body


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bodies(), st.sampled_from([1, 2, 4]))
def test_packets_compute_what_the_instructions_do(body: list[Instruction], count: int) -> None:
    loop = schedule(unroll(body, count), DEVICE)
    if loop is not None:  # else it needs more than 32 registers
        assert in_packets(loop, ITERATIONS) == in_order(body, ITERATIONS * count)
        assert all(fits(packet, DEVICE.units, DEVICE.packet_width) for packet in loop.packets)
        assert loop_fault(loop, DEVICE) is None
        assert loop.bound == resource_bound(unroll(body, count), DEVICE.units, DEVICE.packet_width)
        assert len(loop.packets) >= loop.bound


def test_a_result_that_nobody_reads_does_not_arrive_in_the_next_iteration() -> None:
    """Of the table lookup, which takes longest: its register may be another value's by then."""

    def of(name: str, target: int, *sources: int, stream: int = -1) -> Instruction:
        return Instruction(CODES[name], target, sources, stream)

    body = [
        *(of("vload", 2, stream=0), of("vmove", 3, 2), of("vmove", 4, 0), of("vmove", 5, 2, 4), of("vaddw", 0, 0, 5)),
        *(of("vmpyb", 7, 3), *(of("vload", register, stream=0) for register in (8, 9, 10, 11)), of("vmove", 12, 2)),
        *(of("vgather", 13, 4, 7), of("vstore", -1, 0, stream=4), of("vstore", -1, 1, stream=4)),
    ]
    loop = schedule(unroll(body, 2), DEVICE)
    assert loop is not None
    assert in_packets(loop, ITERATIONS) == in_order(body, ITERATIONS * 2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(range(len(OPCODES))), min_size=1, max_size=4))
def test_what_fits_in_a_packet_is_what_some_choice_of_units_allows(codes: list[int]) -> None:
    packet = [Instruction(code) for code in codes]
    choices = product(*(i.opcode.units for i in packet))
    allowed = any(
        all(
            sum(i.opcode.count for i, unit in zip(packet, choice, strict=True) if unit == kind) <= units
            for kind, units in DEVICE.units.items()
        )
        for choice in choices
    )
    assert fits(packet, DEVICE.units, DEVICE.packet_width) == allowed
    assert (resource_bound(packet, DEVICE.units, DEVICE.packet_width) == 1) >= allowed


def test_a_product_of_halves_takes_both_multiply_units() -> None:
    bytes_, half = Instruction(CODES["vmpyb"]), Instruction(CODES["vmpyh"])
    assert fits([bytes_, bytes_], DEVICE.units, 4) and not fits([half, bytes_], DEVICE.units, 4)
    assert resource_bound([half, half], DEVICE.units, 4) == 2
    assert resource_bound([half, bytes_, bytes_], DEVICE.units, 4) == 2


def test_unrolling_hides_latencies() -> None:
    """A copy waits two packets for each load, unless others are under way."""
    body = (Instruction(CODES["vload"], 0, (), 0), Instruction(CODES["vstore"], -1, (0,), 1))
    once = schedule(list(body), DEVICE)
    assert once is not None and len(once.packets) == 3
    best, trips = schedule_best(body, 400, DEVICE)
    assert (trips, best.bound) == (25, 16) and len(best.packets) == 18


def test_a_loop_for_two_iterations_is_not_unrolled_for_four() -> None:
    body = (Instruction(CODES["vload"], 0, (), 0), Instruction(CODES["vstore"], -1, (0,), 1))
    loop, trips = schedule_best(body, 2, DEVICE)
    assert trips * sum(i.opcode.name == "vload" for i in loop.instructions) == 2


def test_registers_run_out() -> None:
    loads = [Instruction(CODES["vload"], n, (), 0) for n in range(40)]
    stores = [Instruction(CODES["vstore"], -1, (n,), 1) for n in reversed(range(40))]
    body = (*loads, Instruction(CODES["vmove"], 40, tuple(range(40))), *stores)
    assert schedule(body, DEVICE) is None
    with pytest.raises(ValueError, match="needs more than 32 registers"):
        schedule_best(body, 1, DEVICE)


# ---- the kernels' own loops ---------------------------------------------------------------------------------------


def tiles() -> list[Tile]:
    """One for each kernel and dtype, roughly as they come."""
    found = []
    for kernel, dtype in product(KERNELS, ("int8", "int16", "float16")):
        if kernel.endswith("_int") == (dtype == "float16") and kernel not in ("copy", "fill", "clamp", "gather"):
            continue
        shapes = tuple((8, 160) for _ in range(9))
        found.append(Tile(kernel, shapes, (dtype,) * 9, (1, 1, 1), DEVICE.vector_nbytes))
    return found


@pytest.mark.parametrize("tile", tiles(), ids=lambda tile: f"{tile.kernel}-{tile.dtypes[0]}")
def test_loops_of_kernels_are_valid(tile: Tile) -> None:
    for body, count in loops_of(tile):
        loop, trips = schedule_best(body, count, DEVICE)
        assert loop_fault(loop, DEVICE) is None
        iterations = 2 * len(loop.instructions) // len(body)
        assert in_packets(loop, 2) == in_order(body, iterations)
        assert trips * len(loop.packets) >= resource_bound(body, DEVICE.units, 4) > 0


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda p: (p[0] * 3, *p[1:]), "packet 0 needs more units"),
        (lambda p: (p[0], (replace(p[-1][0], sources=(99,)),)), "reads a register that there is not"),
        (lambda p: ((replace(p[0][0], target=40),), *p[1:]), "writes a register that there is not"),
        (lambda p: (p[0] + p[-1],), "its least number of packets is not the one stated"),
        (lambda p: (p[0], p[-1], ()), "packet 1 reads register 0 before it is there"),
        (lambda p: (), "it has no packets"),
    ],
)
def test_loops_that_cannot_run(change: Any, fault: str) -> None:
    body = [Instruction(CODES["vload"], 0, (), 0), Instruction(CODES["vstore"], -1, (0,), 1)]
    loop = schedule(body, DEVICE)
    assert loop is not None and loop_fault(loop, DEVICE) is None
    bound = 9 if "least" in fault else 1
    assert fault in str(loop_fault(Loop(change(loop.packets), bound), DEVICE))
