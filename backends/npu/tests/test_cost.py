"""Cycles, bytes and energy: closed forms, what must not be less than what, and that transfers run beside commands."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from backends.npu.tests.cases import CASES_BY_NAME, cases
from backends.npu.tests.harness import Builder
from hypothesis import given
from hypothesis import strategies as st

from delegraph.errors import InvalidArgument
from delegraph_machines.descriptions import preset_names
from delegraph_npu.commands import (
    NOWHERE,
    Address,
    Conv,
    DmaStart,
    DmaWait,
    Elementwise,
    Geometry,
    Region,
    Requantize,
    Stop,
    dense,
)
from delegraph_npu.cost import Cost, array_cycles, cost_of, schedule
from delegraph_npu.device import Array, Device, device_text, read_device

PRESETS = {name: read_device(*device_text(name)) for name in preset_names("delegraph_npu")}
PLAIN, U55 = PRESETS["array-32x32"], PRESETS["ethos-u55-128"]
SIZES = st.integers(1, 300)


def conv(pixels: int, depth: int, channels: int, region: Region = Region.SRAM, kernel: int = 1) -> Conv:
    """A convolution of one row."""
    ifm = dense(region, 0, (1, kernel, pixels + kernel - 1, depth))
    weights = replace(NOWHERE, region=region, nbytes=depth * channels * kernel * kernel)
    ofm = dense(region, 0, (1, 1, pixels, channels))
    return Conv(ifm, 0, ofm, Geometry((kernel, kernel)), weights, Requantize())


# ---- the array -------------------------------------------------------------------------------------


@given(SIZES, SIZES, SIZES, st.integers(1, 32), st.integers(1, 32))
def test_a_plain_array_takes_what_scale_sim_counts(m: int, k: int, n: int, rows: int, columns: int) -> None:
    """The closed forms; that SCALE-Sim counts to them is shown where it is installed, in `oracles`."""
    expected = {
        "output_stationary": (k + rows + columns - 2) * ceil(m / rows) * ceil(n / columns),
        "weight_stationary": (2 * rows + m + columns - 2) * ceil(k / rows) * ceil(n / columns),
        "input_stationary": (2 * rows + n + columns - 2) * ceil(k / rows) * ceil(m / columns),
    }
    for dataflow, cycles in expected.items():
        array = Array(rows, columns, 1, dataflow, pipelined=False, accumulators=rows * columns)
        assert array_cycles(array, m, k, n) == cycles
        assert array_cycles(replace(array, pipelined=True), m, k, n) <= cycles


@given(SIZES, SIZES, SIZES)
def test_no_array_is_faster_than_its_multipliers(m: int, k: int, n: int) -> None:
    for device in PRESETS.values():
        assert array_cycles(device.array, m, k, n) * device.macs_per_cycle >= m * k * n


# ---- commands --------------------------------------------------------------------------------------


def test_a_command_costs_its_slowest_stage_and_the_others_once() -> None:
    cost = cost_of(conv(256, 64, 64), U55)
    stages = [cost.array, cost.output, cost.sram, cost.dram]
    assert max(stages) < cost.cycles < sum(stages)
    assert cost.macs == 256 * 64 * 64
    assert cost_of(conv(16, 8, 8), U55).cycles == pytest.approx(sum(_stages(cost_of(conv(16, 8, 8), U55))) + 32)


def _stages(cost: Cost) -> list[float]:
    return [cost.array, cost.output, cost.sram, cost.dram]


def test_the_output_stage_bounds_what_the_array_does_quickly() -> None:
    stem = cost_of(conv(12544, 3, 32, kernel=3), U55)
    assert stem.cycles >= stem.output == 12544 * 32 > stem.array


@pytest.mark.parametrize("name", PRESETS)
def test_every_command_costs_something_on_every_device(name: str) -> None:
    for case in cases():
        cost = cost_of(case.command, PRESETS[name])
        assert cost.cycles >= max(_stages(cost)) > 0 and cost.energy.total > 0
        parts = cost.energy.compute + cost.energy.sram + cost.energy.dram
        assert cost.energy.total == pytest.approx(parts)


@given(SIZES, SIZES, SIZES, st.sampled_from(sorted(PRESETS)))
def test_more_work_and_more_traffic_never_cost_less(m: int, k: int, n: int, name: str) -> None:
    device = PRESETS[name]
    cost = cost_of(conv(m, k, n), device)
    for larger in (conv(m + 1, k, n), conv(m, k + 1, n), conv(m, k, n + 1)):
        assert cost_of(larger, device).energy.total > cost.energy.total
    outside = cost_of(conv(m, k, n, Region.DRAM), device)
    assert outside.energy.total > cost.energy.total and outside.cycles >= cost.cycles


def test_what_multiplies_nothing_has_no_macs() -> None:
    copy = CASES_BY_NAME["copy to another scale"].command
    assert cost_of(copy, U55).macs == 0
    assert cost_of(copy, U55).array == 0


def test_a_broadcast_operand_is_read_once() -> None:
    add = CASES_BY_NAME["add"].command
    assert isinstance(add, Elementwise)
    scalar = replace(add, b=replace(add.b, feature_map=replace(add.b.feature_map, strides=(0, 0, 0, 0))))
    assert cost_of(add, U55).sram_nbytes - cost_of(scalar, U55).sram_nbytes == add.ofm.size - 1


def test_a_transfer_takes_latency_and_whole_bursts() -> None:
    def cycles(shape: tuple[int, int, int]) -> float:
        places = Address(Region.WEIGHTS, 0), Address(Region.SRAM, 0)
        return cost_of(DmaStart(0, *places, shape, (0, 1000), (0, 1000)), U55).cycles

    assert cycles((1, 1, 1280)) == 64 + 1280, "flash gives a byte a cycle, the first after 64"
    assert cycles((1, 1, 1)) == 64 + 128, "a burst"
    assert cycles((1, 10, 1)) == 64 + 1280


# ---- streams ---------------------------------------------------------------------------------------


def test_transfers_run_beside_commands() -> None:
    builder = Builder()
    one = builder.map((1, 1, 1, 4096))
    load = DmaStart(0, Address(Region.WEIGHTS, 0), Address(Region.SRAM, 0), (1, 1, 4096), (0, 0), (0, 0), operator=1)
    work = replace(conv(4096, 8, 8), operator=0)
    assert one.nbytes == 4096
    moving, working = cost_of(load, U55).cycles, cost_of(work, U55).cycles
    hidden = schedule([load, work, DmaWait(0), Stop()], U55)
    assert hidden[-1].end == working > moving, "double buffering hides it"
    shown = schedule([load, DmaWait(0), work, Stop()], U55)
    assert shown[-1].end == pytest.approx(moving + working)
    assert [segment.operator for segment in shown] == [1, 0]
    assert [segment.begin for segment in shown] == [0.0, shown[0].end]
    two = schedule([load, replace(load, channel=1), DmaWait(0), DmaWait(1), work, Stop()], U55)
    assert two[-1].end == pytest.approx(2 * moving + working), "there is one engine for all channels"


def test_a_segment_has_the_costs_of_its_commands() -> None:
    work = conv(64, 8, 8)
    (segment,) = schedule([work, work, Stop()], U55)
    assert segment.cost == cost_of(work, U55) + cost_of(work, U55)


# ---- descriptions ----------------------------------------------------------------------------------


def test_presets_are_what_they_are_called() -> None:
    expected = {"array-32x32": 1024, "ethos-u55-128": 128, "ethos-u55-256": 256, "ethos-u65-512": 512}
    assert {name: PRESETS[name].macs_per_cycle for name in expected} == expected
    assert PRESETS["ethos-u85-512"].macs_per_cycle == 512
    assert U55.memory(Region.SRAM).memory().bytes_per_cycle * U55.clock_mhz == 4000
    assert U55.memory(Region.WEIGHTS).memory().bytes_per_cycle * U55.clock_mhz == 500


def described(**changes: str) -> Device:
    text, _ = device_text("ethos-u55-128")
    for old, new in changes.items():
        key = old.replace("__", " = ")
        lines = [f"{key.split(' = ')[0]} = {new}" if line.startswith(f"{old} =") else line for line in text.split("\n")]
        text = "\n".join(lines)
    return read_device(text, "mine.toml")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rows": "0"}, "array: rows, columns, depth and pool_cycles are above 0"),
        ({"accumulators": "15"}, "array: 2 x 8 needs as many accumulators at least"),
        ({"dataflow": '"weights"'}, "array.dataflow is 'weights'; it is one of 'output_stationary'"),
        ({"elements_per_cycle": "0.0"}, "output_stage: elements per cycle are above 0"),
        ({"nbytes": '"4 GiB"'}, "memory 'sram': its size is from 1 byte to 2 GiB"),
        ({"port_nbytes": "0"}, "memory 'sram': ports, and their bytes, are above 0"),
        ({"read_latency": "-1"}, "its size and latencies are not below 0"),
        ({"clock_mhz": "0.0"}, "clock_mhz and dma_channels are above 0"),
        ({"clock_mhz": '"fast"'}, "clock_mhz is 'fast'; it is a float"),
        ({"name": '"sram"'}, "memories: two have one name"),
        (
            {"regions": '{ sram = "sram", dram = "d", weights = "flash", tables = "flash" }'},
            "regions.dram is 'd'; memories are",
        ),
        ({"regions": '{ sram = "sram", dram = "sram", weights = "sram", tables = "sram" }'}, "SRAM is a memory of its"),
    ],
)
def test_descriptions_that_describe_nothing(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=f"mine.toml does not describe a device: .*{reason}"):
        described(**changes)


def test_a_device_that_nobody_has() -> None:
    with pytest.raises(InvalidArgument, match=r"no device 'ethos-u55-12' \(did you mean 'ethos-u55-12[8]'\?\)"):
        device_text("ethos-u55-12")
