"""Descriptions, memories, energy, hazards, scratch memory and rooflines."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegraph.errors import InvalidArgument
from delegraph.interfaces import Lifetime
from delegraph_machines.descriptions import Size, from_toml, preset_or_path
from delegraph_machines.energy import Energy, energy_table
from delegraph_machines.hazards import Hazard, Hazards, Range
from delegraph_machines.memories import Memory, access_cycles, transfer_cycles
from delegraph_machines.roofline import Point, roofline
from delegraph_machines.scratch import place


@dataclass(frozen=True, slots=True)
class Bank:
    name: str
    nbytes: Size
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Device:
    rows: int
    dataflow: Literal["os", "ws"]
    banks: tuple[Bank, ...] = ()
    fast: bool = False
    limit: Size | None = None


def test_a_description_becomes_its_dataclass() -> None:
    text = 'rows = 8\ndataflow = "ws"\nlimit = 7\n[[banks]]\nname = "sram"\nnbytes = "256 KiB"\nspeed = 2\n'
    assert from_toml(text, Device, "x") == Device(8, "ws", (Bank("sram", Size(256 * 1024), 2.0),), limit=Size(7))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows = 8", "board.toml does not describe a device: it lacks dataflow"),
        ('row = 8\ndataflow = "os"', r"it has 'row' \(did you mean 'rows'\?\); known are rows, dataflow"),
        ('rows = "8"\ndataflow = "os"', "rows is '8'; it is a int"),
        ('rows = true\ndataflow = "os"', "rows is True"),
        ('rows = 8\ndataflow = "xs"', "dataflow is 'xs'; it is one of 'os', 'ws'"),
        ('rows = 8\ndataflow = "os"\nbanks = 3', "banks is 3; it is a list"),
        ('rows = 8\ndataflow = "os"\nbanks = [3]', r"banks\[0\] is 3; it is a table"),
        (
            'rows = 8\ndataflow = "os"\n[[banks]]\nname = "a"\nnbytes = "8 KX"',
            r"banks\[0\].nbytes is '8 KX'; .*\"256 KiB\"",
        ),
        (f'rows = {2**63}\ndataflow = "os"', "rows is beyond the integers of 64 bits that TOML has"),
        (
            f'rows = 8\ndataflow = "os"\n[[banks]]\nname = "a"\nnbytes = 8\nspeed = {10**400}',
            r"banks\[0\].speed is beyond the integers",
        ),
        (f'rows = 8\ndataflow = "os"\nlimit = "{10**30} B"', "limit is beyond the integers"),
        ("rows = ", "Invalid value"),
        ("rows = " + "[" * 3000, "board.toml does not describe a device: maximum recursion depth"),
        ("rows = " + "9" * 5000, "4300 digits"),
    ],
)
def test_a_wrong_description_is_told_by_its_key(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        from_toml(text, Device, "board.toml")


def test_a_description_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="can't be read"):
        preset_or_path("delegraph_machines", str(tmp_path / "none.toml"))


def test_an_access_is_paid_in_bursts_and_a_transfer_by_its_slower_side() -> None:
    sram = Memory("sram", bytes_per_cycle=8, burst_nbytes=16, read_latency=2)
    dram = Memory("dram", bytes_per_cycle=2, burst_nbytes=64, read_latency=100, write_latency=50)
    assert access_cycles(sram, 32) == 4
    assert access_cycles(dram, 65) == 64  # two bursts of 64
    assert access_cycles(sram, 32, run_nbytes=4) == 16  # eight runs, each a burst of 16
    assert transfer_cycles(dram, sram, 128) == 64 + 100
    assert transfer_cycles(sram, dram, 128) == 64 + 50
    assert transfer_cycles(sram, dram, 0) == access_cycles(sram, 0) == 0


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 300))
def test_more_bytes_never_take_less_time(few: int, more: int, run: int) -> None:
    memory = Memory("m", bytes_per_cycle=3.5, burst_nbytes=32)
    few, more = sorted((few, more))
    assert access_cycles(memory, few, run) <= access_cycles(memory, more, run)


@pytest.mark.parametrize("wrong", [{"bytes_per_cycle": 0}, {"burst_nbytes": 0}, {"read_latency": -1}, {"nbytes": -1}])
def test_no_memory_is_impossible(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="memory 'm'"):
        Memory("m", **wrong)  # type: ignore[arg-type]


def test_energy_adds_up_and_grows_with_the_memory() -> None:
    table = energy_table()
    assert table.compute({"int8_multiply": 10, "int32_add": 10}) == pytest.approx(3.0)
    sizes = [2**k for k in range(8, 26)]
    costs = [table.sram_byte(size) for size in sizes]
    assert costs == sorted(costs) and costs[0] == 1.25 and costs[-1] == 12.5 < table.dram_byte
    assert table.sram_byte(16 * 1024) == pytest.approx((1.25 + 2.5) / 2)
    assert (Energy(1, 2, 3) + Energy(1, 1, 1)).total == 9


def test_a_table_of_energies_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("int8_add = 1\n")
    with pytest.raises(InvalidArgument, match=r"mine.toml.* lacks int8_multiply"):
        energy_table(str(tmp_path / "mine.toml"))
    with pytest.raises(InvalidArgument, match="can't be read"):
        energy_table(str(tmp_path / "none.toml"))


A, B = Range("sram", 0, 64), Range("sram", 64, 128)
FAR = Range("dram", 0, 64)


def test_what_is_under_way_is_left_alone_until_it_is_waited_for() -> None:
    hazards = Hazards()
    hazards.start(0, [FAR], [A])
    hazards.access([B], [B])
    with pytest.raises(Hazard, match=r"a command reads bytes 0 to 64 of sram before it has arrived: .* channel 0"):
        hazards.access([A], [])
    with pytest.raises(Hazard, match="writes bytes 0 to 64 of sram while it arrives"):
        hazards.access([], [A])
    with pytest.raises(Hazard, match="writes bytes 0 to 64 of dram before it has left"):
        hazards.access([], [FAR])
    with pytest.raises(Hazard, match="a transfer on channel 1 reads"):
        hazards.start(1, [A], [B])
    hazards.start(0, [A], [B])  # one channel keeps its order
    assert hazards.unfinished() == [0]
    hazards.wait(0)
    hazards.access([A], [FAR])
    assert hazards.unfinished() == []


def test_scratch_memory_is_shared_by_what_is_not_alive_together() -> None:
    placement = place([Lifetime(0, 100, 0, 1), Lifetime(1, 50, 1, 2), Lifetime(2, 100, 2, 3)], 16)
    assert placement.nbytes == placement.lower_bound == 112 + 64
    assert placement.fits(None) and placement.fits(176) and not placement.fits(175)


def test_a_roofline_is_a_picture_of_every_point_with_work() -> None:
    points = [Point("conv<1>", 1e6, 1e4, 1e4, "net"), Point("nothing", 0, 10, 10)]
    svg = roofline(points, peak=256, bytes_per_cycle=8, title="a & b")
    root = ET.fromstring(svg)
    circles = [one for one in root.iter() if one.tag.endswith("circle")]
    assert len(circles) == 1 and "conv<1>: 100 operations a cycle" in "".join(circles[0].itertext())
