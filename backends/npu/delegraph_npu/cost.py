"""Commands and a device -> cycles, bytes and energy. An estimate, on which no result depends.

A computing command works block by block through stages that run side by side: each memory, the array, the output stage.

    memory   ▓▓▓▓ ▓▓▓▓ ▓▓▓▓            a block costs what its slowest stage costs: max(compute, output, SRAM, DRAM);
    array         ▓▓▓  ▓▓▓  ▓▓▓        the first block goes through all of them: pipeline fill.
    output             ▓▓   ▓▓   ▓▓

The shape of this model is that of Vela's (`npu_performance.py`); a plain array's cycles are the closed forms of the
counts of SCALE-Sim 3.0.0. Operands are read again for each block, from SRAM or beyond: the input for each block of
channels, the weights for each block of pixels. Energy is that of the table of 45 nm.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from math import ceil, prod

from delegraph.lazy_dataclass import dataclass, field
from delegraph_machines.energy import Energy, Operation, energy_table
from delegraph_machines.memories import access_cycles, transfer_cycles
from delegraph_npu.accesses import constants_of, inputs_of
from delegraph_npu.commands import (
    Command,
    Computing,
    Conv,
    Depthwise,
    DmaStart,
    DmaWait,
    FeatureMap,
    MatMul,
    Pool,
    Reduce,
    Region,
    Stop,
)
from delegraph_npu.device import Array, Device

__all__ = ["Cost", "Segment", "array_cycles", "cost_of", "schedule"]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of commands: `cycles` from begin to end; the stages' own cycles, which overlap; work and bytes."""

    cycles: float = 0.0
    array: float = 0.0
    output: float = 0.0
    sram: float = 0.0
    dram: float = 0.0
    macs: int = 0
    sram_nbytes: int = 0
    dram_nbytes: int = 0
    energy: Energy = field(default_factory=Energy)

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.cycles + other.cycles,
            self.array + other.array,
            self.output + other.output,
            self.sram + other.sram,
            self.dram + other.dram,
            self.macs + other.macs,
            self.sram_nbytes + other.sram_nbytes,
            self.dram_nbytes + other.dram_nbytes,
            self.energy + other.energy,
        )


# ---- the array -------------------------------------------------------------------------------------


def array_cycles(array: Array, m: int, k: int, n: int, times: int = 1) -> float:
    """Cycles of `times` products of (m, k) and (k, n); k counts `depth` elements, which a cell multiplies at a time, as
    one.

    With R rows and C columns a pass takes, in SCALE-Sim 3.0.0, for output, weight and input stationary dataflow:
    k + R + C - 2, for each R x C of the output; m + 2R + C - 2, for each R x C of the weights; n + 2R + C - 2, for each
    R x C of the input. Where passes are pipelined, only the first one fills the array; the R rows that must be loaded
    into it before a pass are loaded during the pass before.
    """
    rows, columns = array.rows, array.columns
    if array.dataflow == "output_stationary":
        passes, stream, load = ceil(m / rows) * ceil(n / columns), k, 0
    elif array.dataflow == "weight_stationary":
        passes, stream, load = ceil(k / rows) * ceil(n / columns), m, rows
    else:
        passes, stream, load = ceil(k / rows) * ceil(m / columns), n, rows
    fill = load + rows + columns - 2
    if array.pipelined:
        return (times * passes - 1) * max(stream, load) + stream + fill
    return times * passes * (stream + fill)


def _cell_cycles(array: Array, pixels: int, channels: int, terms: int) -> float:
    """Cycles of sums of `terms` elements that share none: a cell of a pipelined array does one sum, an element a cycle;
    of a plain array, whose columns all see one input, only one column works."""
    if array.pipelined:
        return ceil(pixels / array.rows) * ceil(channels / array.columns) * terms + array.rows + array.columns - 2
    return array_cycles(array, pixels, terms, 1, channels)


# ---- one command -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Work:
    """The work of a command: the array's cycles, its multiply-adds, blocks, and how often each input is read."""

    array: float
    macs: int
    blocks: int
    first: int = 1
    second: int = 1


def _work(command: Computing, device: Device) -> _Work:
    array, ofm = device.array, command.ofm
    blocks = ceil(ofm.size / array.accumulators)
    match command:
        case Conv():
            m, n, depth = prod(ofm.shape[:3]), ofm.shape[3], command.ifm.shape[3]
            window = prod(command.geometry.kernel)
            pixels, channels = _block(array, m, n, command.ifm.nbytes, command.weights.nbytes)
            cycles = array_cycles(array, m, window * ceil(depth / array.depth), n)
            return _Work(cycles, m * n * window * depth, pixels * channels, channels, pixels)
        case MatMul():
            n, h, m, k = command.ifm.shape
            columns = ofm.shape[3]
            pixels, channels = _block(array, m, columns, command.ifm.nbytes, command.ifm2.nbytes)
            cycles = array_cycles(array, m, ceil(k / array.depth), columns, n * h)
            return _Work(cycles, ofm.size * k, n * h * pixels * channels, channels, pixels)
        case Depthwise() | Pool():
            pixels, channels, terms = prod(ofm.shape[:3]), ofm.shape[3], prod(command.geometry.kernel)
            again = ceil(pixels / max(1, array.accumulators // array.columns))
            if isinstance(command, Depthwise):
                return _Work(_cell_cycles(array, pixels, channels, terms), ofm.size * terms, blocks, second=again)
            return _Work(_cell_cycles(array, pixels, channels, terms * array.pool_cycles), 0, blocks)
        case Reduce():
            terms = command.ifm.size // ofm.size * array.pool_cycles
            return _Work(_cell_cycles(array, prod(ofm.shape[:3]), ofm.shape[3], terms), 0, blocks)
        case _:
            return _Work(0.0, 0, blocks)


@lru_cache(maxsize=4096)
def _block(array: Array, m: int, n: int, ifm_nbytes: int, weights_nbytes: int) -> tuple[int, int]:
    """The numbers of blocks of pixels and of channels into which an output (m, n) is cut so that the least is read."""
    best, least = (1, 1), float("inf")
    columns = min(ceil(n / array.columns), array.accumulators // (array.columns * array.rows))
    for width in range(1, columns + 1):
        channels = ceil(n / (width * array.columns))
        rows = array.accumulators // (width * array.columns) // array.rows * array.rows
        pixels = ceil(m / rows)
        read = channels * ifm_nbytes + pixels * weights_nbytes
        if read < least:
            best, least = (pixels, channels), read
    return best


def cost_of(command: Command, device: Device) -> Cost:
    """The cost of `command` by itself; a `DmaWait` and a `Stop` cost nothing."""
    match command:
        case Stop() | DmaWait():
            return Cost()
        case DmaStart():
            return _transfer(command, device)
        case _:
            return _computing(command, device)


def _transfer(command: DmaStart, device: Device) -> Cost:
    nbytes = prod(command.shape)
    source, target = (device.memory(place.region).memory() for place in (command.source, command.target))
    cycles = transfer_cycles(source, target, nbytes, command.shape[2])
    moved = Counter({command.source.region: nbytes})
    moved[command.target.region] += nbytes
    return _cost(device, moved, {}, cycles=cycles)


def _computing(command: Computing, device: Device) -> Cost:
    work = _work(command, device)
    moved: Counter[Region] = Counter({command.ofm.region: command.ofm.nbytes})
    first, *others = inputs_of(command)
    moved[first.region] += work.first * first.nbytes
    for operand in others:
        moved[operand.region] += work.second * _distinct(operand)
    for block in constants_of(command):
        moved[block.region] += work.second * block.nbytes
    output = 0.0
    if device.output_stage is not None:
        speed = device.output_stage.elements_per_cycle if work.array else device.output_stage.elementwise_per_cycle
        output = command.ofm.size / speed
    # each sum is requantized once: a product and an addition in 32 bits for each element
    operations: Counter[Operation] = Counter(
        {
            "int8_multiply": work.macs,
            "int32_add": work.macs + command.ofm.size,
            "int32_multiply": command.ofm.size,
        }
    )
    return _cost(device, moved, operations, work=work, output=output)


def _distinct(feature_map: FeatureMap) -> int:
    """The bytes of its elements, each once however often it is repeated."""
    steps = zip(feature_map.shape, feature_map.strides, strict=True)
    return prod(size for size, stride in steps if stride) * feature_map.dtype.nbytes


def _cost(
    device: Device,
    moved: Mapping[Region, int],
    operations: Mapping[Operation, int],
    work: _Work | None = None,
    output: float = 0.0,
    cycles: float = 0.0,
) -> Cost:
    """The cost of so many bytes of each region, of arithmetic, and of the array's and the output stage's work."""
    by_memory: dict[str, int] = defaultdict(int)
    for region, nbytes in moved.items():
        by_memory[device.memory(region).name] += nbytes
    stages = {memory.name: access_cycles(memory.memory(), by_memory[memory.name]) for memory in device.memories}
    sram_name = device.memory(Region.SRAM).name
    sram_nbytes = by_memory[sram_name]
    dram_nbytes = sum(by_memory.values()) - sram_nbytes
    sram, array = stages[sram_name], work.array if work else 0.0
    if work is not None:
        latency = max(memory.read_latency for memory in device.memories if by_memory[memory.name])
        busy = [*stages.values(), array, output]
        cycles = max(busy) + (sum(busy) - max(busy)) / work.blocks + latency
    table = energy_table()
    energy = Energy(
        table.compute(operations),
        sram_nbytes * table.sram_byte(device.sram_nbytes),
        dram_nbytes * table.dram_byte,
    )
    dram = max((stage for name, stage in stages.items() if name != sram_name), default=0.0)
    return Cost(cycles, array, output, sram, dram, work.macs if work else 0, sram_nbytes, dram_nbytes, energy)


# ---- a stream --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive commands of one operator: their begin and end, in cycles, and their cost.

    The segments of a stream cover its time without gaps. `cost.cycles` is work, transfers of later operators that run
    meanwhile included, and may be more or less than `end - begin`.
    """

    operator: int
    begin: float
    end: float
    cost: Cost


def schedule(commands: Iterable[Command], device: Device) -> list[Segment]:
    """The times at which a stream's commands run: in order, transfers beside them, one after the other.

    Contention of a transfer and a command for a memory's bandwidth is not counted.
    """
    segments: list[Segment] = []
    for operator, begin, end, cost in _timeline(commands, device):
        if segments and segments[-1].operator == operator:
            last = segments.pop()
            begin, cost = last.begin, last.cost + cost
        segments.append(Segment(operator, begin, end, cost))
    return segments


def _timeline(commands: Iterable[Command], device: Device) -> Iterator[tuple[int, float, float, Cost]]:
    """Each command's operator, its begin (that of a wait before it) and end, its cost."""
    now = begin = dma_free = 0.0
    arrives: dict[int, float] = {}
    for command in commands:
        cost = cost_of(command, device)
        match command:
            case Stop():
                return
            case DmaWait():
                now = max(now, arrives.get(command.channel, 0.0))
                continue
            case DmaStart():
                dma_free = max(now, dma_free) + cost.cycles
                arrives[command.channel] = dma_free
            case _:
                now += cost.cycles
        yield command.operator, begin, now, cost
        begin = now
