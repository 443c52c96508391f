"""Operations and bytes -> picojoules, by a table in a file (`horowitz_45nm.toml`, which names its sources).

An estimate that ranks: more work or more traffic never costs less.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from math import log2
from pathlib import Path
from typing import Literal, TypeAlias

from delegraph.errors import InvalidArgument
from delegraph.lazy_dataclass import dataclass
from delegraph_machines.descriptions import Size, from_toml

__all__ = ["Energy", "EnergyTable", "Operation", "SramByte", "energy_table"]

Operation: TypeAlias = Literal[
    "int8_add",
    "int8_multiply",
    "int16_add",
    "int16_multiply",
    "int32_add",
    "int32_multiply",
    "float16_add",
    "float16_multiply",
    "float32_add",
    "float32_multiply",
]
"""The operations with an energy in a table."""


@dataclass(frozen=True, slots=True)
class SramByte:
    """`byte`: picojoules for a byte of an SRAM of `nbytes`."""

    nbytes: Size
    byte: float


@dataclass(frozen=True, slots=True)
class EnergyTable:
    """Picojoules for an operation of each kind, and for a byte of DRAM and of SRAMs by size."""

    int8_add: float
    int8_multiply: float
    int16_add: float
    int16_multiply: float
    int32_add: float
    int32_multiply: float
    float16_add: float
    float16_multiply: float
    float32_add: float
    float32_multiply: float
    dram_byte: float
    sram: tuple[SramByte, ...]

    def __post_init__(self) -> None:
        """Raise `ValueError` unless the sizes of the SRAMs, and their costs, grow."""
        sizes, costs = [entry.nbytes for entry in self.sram], [entry.byte for entry in self.sram]
        if not self.sram or sizes != sorted(set(sizes)) or costs != sorted(costs) or min(sizes) < 1:
            raise ValueError("sram is a list of sizes that grow, and larger ones do not cost less")

    def compute(self, operations: Mapping[Operation, int]) -> float:
        """Picojoules of so many operations of each kind."""
        return float(sum(getattr(self, kind) * count for kind, count in operations.items()))

    def sram_byte(self, nbytes: int) -> float:
        """Picojoules for a byte of an SRAM of `nbytes`: on a straight line over the logarithms of the sizes, and beyond
        the ends of the table the end's."""
        smaller = [entry for entry in self.sram if entry.nbytes <= nbytes]
        larger = [entry for entry in self.sram if entry.nbytes > nbytes]
        if not smaller or not larger:
            return (smaller[-1] if smaller else larger[0]).byte
        low, high = smaller[-1], larger[0]
        part = log2(nbytes / low.nbytes) / log2(high.nbytes / low.nbytes)
        return low.byte + part * (high.byte - low.byte)


@dataclass(frozen=True, slots=True)
class Energy:
    """Picojoules of computing and of each kind of memory."""

    compute: float = 0.0
    sram: float = 0.0
    dram: float = 0.0

    @property
    def total(self) -> float:
        """Picojoules in all."""
        return self.compute + self.sram + self.dram

    def __add__(self, other: Energy) -> Energy:
        return Energy(self.compute + other.compute, self.sram + other.sram, self.dram + other.dram)


@lru_cache
def energy_table(path: str | None = None) -> EnergyTable:
    """The table in the file at `path`; without one, that of 45 nm. Raises `InvalidArgument`."""
    if path is None:
        text = (resources.files("delegraph_machines") / "horowitz_45nm.toml").read_text("utf-8")
        return from_toml(text, EnergyTable, "horowitz_45nm.toml")
    try:
        return from_toml(Path(path).read_text("utf-8"), EnergyTable, repr(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the table of energies can't be read: {error}") from error
