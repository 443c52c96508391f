"""A program -> the time and the cost of each of its operators: cycles, stalls, bytes, picojoules.

The core issues commands in order. A kernel takes `launch_overhead` cycles, and each of its loops `loop_overhead` plus a
cycle for every packet. Transfers share one bus to the outer memory, in the order in which they were issued, beside the
core, which only stops where it waits for them. With two buffers for each operand, a kernel of many tiles so takes
about the larger of computing and moving, plus its first load and its last store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from delegraph.lazy_dataclass import dataclass, field
from delegraph_dsp.device import CHANNELS, Device
from delegraph_dsp.isa import Loop
from delegraph_dsp.program import Launch, Program, Transfer, Wait
from delegraph_machines.energy import Energy, EnergyTable, energy_table
from delegraph_machines.memories import access_cycles, transfer_cycles

__all__ = ["Cost", "Timing", "loop_energy", "measure", "transfer_time"]


@dataclass(slots=True)
class Cost:
    """An operator's cost: it runs from cycle `begin` to `end`. Of these it computes for `compute` cycles and waits for
    `stall`; `dma` is the time of the bus to the outer memory, with `dma_nbytes`. `packets` are those of its loops,
    `bound` the least possible, `peak_tcm` the highest byte that it touches."""

    begin: float = 0.0
    end: float = 0.0
    compute: float = 0.0
    stall: float = 0.0
    dma: float = 0.0
    dma_nbytes: int = 0
    packets: int = 0
    bound: int = 0
    launches: int = 0
    peak_tcm: int = 0
    energy: Energy = field(default_factory=Energy)


@dataclass(frozen=True)
class Timing:
    """Costs by operator, in the program's order; some may have none."""

    costs: Sequence[Cost]

    @cached_property
    def cycles(self) -> float:
        """Cycles from the first command to the last."""
        return max((cost.end for cost in self.costs), default=0.0)

    @cached_property
    def energy(self) -> Energy:
        """The energy of all operators."""
        return sum((cost.energy for cost in self.costs), Energy())

    @cached_property
    def peak_tcm(self) -> int:
        """The most bytes of TCM in use."""
        return max((cost.peak_tcm for cost in self.costs), default=0)


def transfer_time(transfer: Transfer, device: Device) -> tuple[float, float]:
    """The cycles for which a transfer occupies the bus to the outer memory, and those until it is done, from its
    start."""
    source, target = (device.ddr, device.tcm) if transfer.load else (device.tcm, device.ddr)
    run = transfer.row_nbytes
    busy = max(access_cycles(memory, transfer.nbytes, run) for memory in (source, target))
    return busy, transfer_cycles(source, target, transfer.nbytes, run)


def loop_energy(loop: Loop, device: Device, table: EnergyTable) -> Energy:
    """The energy of one iteration: elements by operation, and vectors read and written."""
    operations: Counter[str] = Counter()
    vectors = 0
    for i in loop.instructions:
        vectors += i.stream >= 0
        if i.opcode.operation != "none":
            operations[i.opcode.operation] += device.vector_nbytes // i.opcode.lane_nbytes
    return Energy(table.compute(operations), vectors * device.vector_nbytes * table.sram_byte(device.tcm_nbytes))  # type: ignore[arg-type]


def measure(program: Program, device: Device) -> Timing:
    """Walk through the commands once; the time does not depend on the data."""
    clock = _Clock(program, device)
    for command in program.commands:
        if isinstance(command, Transfer):
            clock.transfer(command)
        elif isinstance(command, Wait):
            clock.wait(command.channel)
        else:
            clock.launch(command)
    return Timing(clock.costs)


class _Clock:
    """The time of the core, and until when each channel and the bus to the outer memory are busy, and for which
    operator."""

    def __init__(self, program: Program, device: Device) -> None:
        self.costs = [Cost() for _ in program.operators]
        self._program, self._device = program, device
        self._table = energy_table()
        self._loops = [loop_energy(loop, device, self._table) for loop in program.loops]
        self._byte = self._table.sram_byte(device.tcm_nbytes), self._table.dram_byte
        self._now = self._way_free = 0.0
        self._channels = [0.0] * CHANNELS
        self._owners = [0] * CHANNELS
        self._current: Cost | None = None

    def _enter(self, operator: int) -> Cost:
        cost = self.costs[operator]
        if cost is not self._current:
            if cost.end == 0.0:
                cost.begin = self._now
            self._current = cost
        return cost

    def transfer(self, transfer: Transfer) -> None:
        cost = self.costs[transfer.task]  # it has not begun if this is a load ahead
        busy, through = transfer_time(transfer, self._device)
        start = max(self._now, self._way_free)
        self._way_free = start + busy
        self._channels[transfer.channel] = max(self._channels[transfer.channel], start + through)
        self._owners[transfer.channel] = transfer.task
        cost.dma += busy
        cost.dma_nbytes += transfer.nbytes
        cost.peak_tcm = max(cost.peak_tcm, transfer.tcm + transfer.nbytes)
        sram, dram = self._byte
        cost.energy += Energy(0.0, transfer.nbytes * sram, transfer.nbytes * dram)

    def wait(self, channel: int) -> None:
        stall = max(0.0, self._channels[channel] - self._now)
        if stall > 0:
            cost = self._enter(self._owners[channel])
            self._now += stall
            cost.stall += stall
            cost.end = self._now

    def launch(self, launch: Launch) -> None:
        cost, device = self._enter(launch.operator), self._device
        cycles = float(device.launch_overhead)
        for number, trips in launch.loops:
            loop = self._program.loops[number]
            cycles += device.loop_overhead + trips * len(loop.packets)
            cost.packets += trips * len(loop.packets)
            cost.bound += trips * loop.bound
            energy = self._loops[number]
            cost.energy += Energy(trips * energy.compute, trips * energy.sram)
        self._now += cycles
        cost.compute += cycles
        cost.launches += 1
        cost.end = self._now
        cost.peak_tcm = max(cost.peak_tcm, *(operand.end for operand in launch.operands))
