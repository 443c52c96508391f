"""What a program costs: closed forms for one kernel, and what no program undercuts."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest
import torch
from backends.dsp.tests.harness import Run, small

from delegraph_dsp.aot.tiling import launch_loops
from delegraph_dsp.device import device_named
from delegraph_dsp.program import Launch, Program, Transfer
from delegraph_dsp.runtime.timing import Timing, loop_energy, measure, transfer_time
from delegraph_machines.descriptions import preset_names
from delegraph_machines.energy import energy_table


@pytest.fixture(scope="module")
def tiled() -> Run:
    """A sum of which 16 tiles fit in the TCM by turns."""
    x = torch.randn(256, 128).half()
    return Run(torch.add, [x, x], small(48 * 1024))


def transfers(program: Program) -> list[Transfer]:
    return [command for command in program.commands if isinstance(command, Transfer)]


def test_a_kernel_of_many_tiles_takes_the_larger_of_computing_and_moving(tiled: Run) -> None:
    program, device, timing = tiled.compiled.program, tiled.device, tiled.handle.timing
    launches = [command for command in program.commands if isinstance(command, Launch)]
    assert len(launches) > 3
    (cost,) = timing.costs
    moving = sum(transfer_time(transfer, device)[0] for transfer in transfers(program))
    latencies = device.ddr.read_latency + device.ddr.write_latency + device.tcm.read_latency + device.tcm.write_latency
    fill = (moving + cost.compute) / len(launches)  # the first load, and the last store
    assert max(cost.compute, moving) <= timing.cycles <= max(cost.compute, moving) + 2 * fill + 2 * latencies
    assert cost.compute + cost.stall == pytest.approx(timing.cycles)


def test_computing_is_the_sum_of_packets_and_overheads(tiled: Run) -> None:
    program, device = tiled.compiled.program, tiled.device
    expected = 0
    for command in program.commands:
        if isinstance(command, Launch):
            expected += device.launch_overhead
            for number, trips in command.loops:
                expected += device.loop_overhead + trips * len(program.loops[number].packets)
    (cost,) = tiled.handle.timing.costs
    assert cost.compute == expected
    assert cost.bound <= cost.packets


def test_an_elementwise_sum_needs_two_loads_a_vector(tiled: Run) -> None:
    (cost,) = tiled.handle.timing.costs
    vectors = 256 * 128 * 2 // tiled.device.vector_nbytes
    assert cost.bound >= 2 * vectors


def test_moved_bytes_are_those_of_the_arguments_where_each_is_moved_once(tiled: Run) -> None:
    (cost,) = tiled.handle.timing.costs
    assert cost.dma_nbytes == 3 * 256 * 128 * 2 == sum(t.nbytes for t in transfers(tiled.compiled.program))


def timing_of(run: Run, **changes: object) -> Timing:
    return measure(run.compiled.program, replace(run.device, **changes))  # type: ignore[arg-type]


def test_slower_memories_and_overheads_never_take_fewer_cycles(tiled: Run) -> None:
    slow = replace(tiled.device.ddr, bytes_per_cycle=4.0)
    late = replace(tiled.device.ddr, read_latency=2000)
    base = timing_of(tiled).cycles
    for changes in ({"ddr": slow}, {"ddr": late}, {"launch_overhead": 500}, {"loop_overhead": 90}):
        assert timing_of(tiled, **changes).cycles >= base


def test_energy_is_the_sum_of_its_parts_and_grows_with_traffic(tiled: Run) -> None:
    table, program, device = energy_table(), tiled.compiled.program, tiled.device
    energy = tiled.handle.timing.energy
    nbytes = sum(t.nbytes for t in transfers(program))
    assert energy.dram == pytest.approx(nbytes * table.dram_byte)
    loops = [loop_energy(loop, device, table) for loop in program.loops]
    launches = [command for command in program.commands if isinstance(command, Launch)]
    compute = sum(trips * loops[number].compute for launch in launches for number, trips in launch.loops)
    assert energy.compute == pytest.approx(compute) and energy.total == pytest.approx(
        energy.compute + energy.sram + energy.dram
    )
    twice = replace(program, commands=program.commands * 2)
    assert measure(twice, device).energy.total == pytest.approx(2 * energy.total)


def test_a_copy_computes_nothing() -> None:
    x = torch.randn(8, 8).half()
    run = Run(lambda a: a.transpose(0, 1), [x])
    assert run.handle.timing.energy.compute == 0 < run.handle.timing.energy.sram


@pytest.mark.parametrize("rows", [1, 4, 9])
@pytest.mark.parametrize("columns", [64, 130])
def test_cycles_of_a_product_are_at_least_its_multiplications(rows: int, columns: int) -> None:
    """Four rows share a vector of 64 columns: a product of halves takes both multiply units for a packet."""
    x, w = torch.randn(rows, 32).half(), torch.randn(32, columns).half()
    run = Run(torch.matmul, [x, w])
    (cost,) = run.handle.timing.costs
    assert cost.bound >= ceil(rows / 4) * 4 * ceil(columns / 64) * 32
    assert launch_loops(run.compiled.graph.calls[0], ((0, rows), (0, columns), (0, 32)), run.device)


def test_a_larger_tcm_never_moves_more() -> None:
    x = torch.randn(64, 96).half()
    weights = torch.randn(96, 96).half()

    def function(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(a @ w, -1) @ w + a

    moved = []
    for nbytes in (10 * 1024, 128 * 1024, 4 * 2**20):
        run = Run(function, [x, weights], small(nbytes))
        moved.append(sum(cost.dma_nbytes for cost in run.handle.timing.costs))
    assert moved == sorted(moved, reverse=True) and moved[0] > moved[-1]


def two_layers(tcm_nbytes: int | None = None) -> Run:
    """Products with weights of 32 and of 128 KiB."""
    x, first, second = (torch.randn(shape).half() for shape in ((16, 64), (64, 256), (256, 256)))
    return Run(lambda a, b, c: a @ b @ c, [x, first, second], small(tcm_nbytes))


def test_what_a_kernel_reads_first_comes_while_the_one_before_computes() -> None:
    run = two_layers()
    commands = run.compiled.program.commands
    ahead = next(n for n, c in enumerate(commands) if isinstance(c, Transfer) and c.load and c.task == 1)
    before = max(n for n, c in enumerate(commands) if isinstance(c, Launch) and c.operator == 0)
    assert ahead < before
    first, second = run.handle.timing.costs
    assert second.begin == first.end
    _, through = transfer_time(commands[ahead], run.device)  # type: ignore[arg-type]
    assert second.stall < through, "it would stand still for all of that"
    assert run.handle.timing.cycles == pytest.approx(first.compute + second.compute + first.stall + second.stall)


def test_nothing_comes_ahead_that_there_is_no_room_for() -> None:
    """The same bits, and not one byte more than the memory has."""
    sizes = [4 * 2**20, 96 * 2**10, 40 * 2**10, 20 * 2**10]
    runs = [two_layers(nbytes) for nbytes in sizes]
    inputs = [torch.randn(shape).half() for shape in ((16, 64), (64, 256), (256, 256))]
    expected = runs[0](*inputs)[0]
    for nbytes, run in zip(sizes, runs, strict=True):
        assert run.compiled.program.tcm_nbytes <= nbytes
        assert (run(*inputs)[0] == expected).all()
    assert any(runs[0].compiled.placed.ahead)


def test_presets_are_what_their_names_say() -> None:
    sizes = {name: device_named(name).tcm_nbytes for name in preset_names("delegraph_dsp")}
    assert sizes == {"audio-256kb": 256 * 1024, "hvx-4mb": 4 * 2**20, "hvx-8mb": 8 * 2**20}
