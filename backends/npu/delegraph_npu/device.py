"""A device's TOML file -> its array, output stage and memories.

    name = "ethos-u55-128"
    clock_mhz = 500
    regions = { sram = "sram", dram = "flash", weights = "flash", tables = "flash" }

    [array]                        # multiplies and adds
    rows = 2                       # pixels at a time, where outputs stay in the array
    columns = 8                    # channels at a time
    depth = 8                      # input channels at a time: each cell multiplies so many, and adds them
    dataflow = "output_stationary"
    pipelined = true               # one pass begins while the one before drains
    accumulators = 4096            # sums that are kept between passes: how large a block of the output may be
    pool_cycles = 4                # of a cell, for an element of a pool's window

    [output_stage]                 # scales, clamps, looks up; without this table it never limits
    elements_per_cycle = 1.0
    elementwise_per_cycle = 1.0    # of commands that have no array's work

    [[memories]]
    name = "sram"
    nbytes = "512 KiB"
    port_nbytes = 8                # bytes a cycle of one port
    ...

Presets are like Arm's Ethos-U in size and speed, as Vela's configuration (`ethosu/config_files/Arm/vela.ini`) and
architecture tables tell them; they are no Ethos-U.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, TypeAlias

from delegraph.lazy_dataclass import dataclass
from delegraph_machines.descriptions import Size, from_toml, preset_or_path
from delegraph_machines.memories import Memory
from delegraph_npu.commands import Region

__all__ = [
    "Array",
    "Dataflow",
    "Device",
    "MemoryDescription",
    "OutputStageRates",
    "Regions",
    "device_text",
    "read_device",
]

Dataflow: TypeAlias = Literal["output_stationary", "weight_stationary", "input_stationary"]
"""The operand that stays in the array while the others flow through it."""

_LARGEST: Final = 1 << 31
"""The most bytes of a memory: addresses are signed registers of 32 bits."""


@dataclass(frozen=True, slots=True)
class Array:
    """`rows` x `columns` of cells with `depth` multiply-adders each. `accumulators`: sums of 32 bits in a block of the
    output. `pool_cycles`: cycles of a cell for an element of a pool's window."""

    rows: int
    columns: int
    depth: int = 1
    dataflow: Dataflow = "output_stationary"
    pipelined: bool = True
    accumulators: int = 4096
    pool_cycles: int = 1

    def __post_init__(self) -> None:
        """Raise `ValueError` for an impossible array."""
        if min(self.rows, self.columns, self.depth, self.pool_cycles) < 1:
            raise ValueError("array: rows, columns, depth and pool_cycles are above 0")
        if self.accumulators < self.rows * self.columns:
            raise ValueError(f"array: {self.rows} x {self.columns} needs as many accumulators at least")


@dataclass(frozen=True, slots=True)
class OutputStageRates:
    """Elements per cycle: results of the array, and elementwise results."""

    elements_per_cycle: float
    elementwise_per_cycle: float

    def __post_init__(self) -> None:
        """Raise `ValueError` for a stage that would never finish."""
        if not (self.elements_per_cycle > 0 and self.elementwise_per_cycle > 0):
            raise ValueError("output_stage: elements per cycle are above 0")


@dataclass(frozen=True, slots=True)
class MemoryDescription:
    """A memory: its size, and its latencies in cycles of the core's clock. Its bandwidth is `port_nbytes * ports *
    clock_scale` bytes a cycle, in whole bursts."""

    name: str
    nbytes: Size
    port_nbytes: int
    clock_scale: float = 1.0
    ports: int = 1
    burst_nbytes: int = 32
    read_latency: int = 0
    write_latency: int = 0

    def __post_init__(self) -> None:
        """Raise `ValueError` for an impossible memory."""
        if not 0 < self.nbytes <= _LARGEST:
            raise ValueError(f"memory {self.name!r}: its size is from 1 byte to 2 GiB")
        if self.port_nbytes < 1 or self.ports < 1:
            raise ValueError(f"memory {self.name!r}: ports, and their bytes, are above 0")
        self.memory()

    def memory(self) -> Memory:
        """The memory's numbers for counting cycles."""
        return Memory(
            self.name,
            self.nbytes,
            self.port_nbytes * self.ports * self.clock_scale,
            self.burst_nbytes,
            self.read_latency,
            self.write_latency,
        )


@dataclass(frozen=True, slots=True)
class Regions:
    """The memory of each region of the commands."""

    sram: str
    dram: str
    weights: str
    tables: str


@dataclass(frozen=True, slots=True)
class Device:
    """A machine to compile for, whose cycles are counted."""

    name: str
    clock_mhz: float
    regions: Regions
    array: Array
    memories: tuple[MemoryDescription, ...]
    output_stage: OutputStageRates | None = None
    dma_channels: int = 2

    def __post_init__(self) -> None:
        """Raise `ValueError` for conditions across the parts."""
        names = [memory.name for memory in self.memories]
        if len(set(names)) < len(names):
            raise ValueError("memories: two have one name")
        for region in Region:
            if self._name(region) not in names:
                raise ValueError(f"regions.{region.name.lower()} is {self._name(region)!r}; memories are {names}")
        if self.regions.sram in (self.regions.dram, self.regions.weights, self.regions.tables):
            raise ValueError("regions: SRAM is a memory of its own, of which nothing else takes bytes")
        if not self.clock_mhz > 0 or self.dma_channels < 1:
            raise ValueError("clock_mhz and dma_channels are above 0")

    def _name(self, region: Region) -> str:
        return str(getattr(self.regions, region.name.lower()))

    def memory(self, region: Region) -> MemoryDescription:
        """The memory that `region` lies in."""
        return next(memory for memory in self.memories if memory.name == self._name(region))

    @property
    def sram_nbytes(self) -> int:
        """Bytes on the chip."""
        return self.memory(Region.SRAM).nbytes

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-adds a cycle, at most."""
        return self.array.rows * self.array.columns * self.array.depth


def device_text(name: str) -> tuple[str, str]:
    """The description of the preset `name`, or of the user's own file where it ends in `.toml`; and its name for
    messages."""
    return preset_or_path("delegraph_npu", name)


@lru_cache
def read_device(text: str, where: str) -> Device:
    """The device that `text` describes. Raises `InvalidArgument`, which names `where` and the key."""
    return from_toml(text, Device, where)
