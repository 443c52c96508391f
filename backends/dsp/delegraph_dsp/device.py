"""A preset's name, or the path of a TOML file -> the description of a vector machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from delegraph.errors import InvalidArgument
from delegraph.lazy_dataclass import dataclass, replace
from delegraph_dsp.isa import OPCODES, RESOURCES
from delegraph_machines.descriptions import Size, from_toml, preset_or_path
from delegraph_machines.memories import Memory

__all__ = ["CHANNELS", "Device", "Units", "device_named", "device_of", "device_text"]

CHANNELS = 4
"""DMA channels: two that load, tile by tile in turns, and two that store."""

MOST_TCM_NBYTES = 1 << 30
"""The most bytes of a TCM: a simulator's memory is real, and a binary may be a stranger's."""


@dataclass(frozen=True, slots=True)
class Units:
    """The units of each kind that a packet may use."""

    load: int = 1
    store: int = 1
    shift: int = 1
    permute: int = 1
    multiply: int = 2


@dataclass(frozen=True, slots=True)
class Device:
    """A vector machine, described by `presets/*.toml`.

    `clock_mhz` is the core's; `vector_nbytes` the width of a register, of which there are `vector_registers`;
    `packet_width` how many instructions start together. A loop costs `loop_overhead` cycles once, a kernel
    `launch_overhead`. `tcm_nbytes` is the tightly coupled memory's hard capacity; `tcm` and `ddr` are the speeds of
    both memories, in cycles of the core.
    """

    name: str
    clock_mhz: float
    tcm_nbytes: Size
    tcm: Memory
    ddr: Memory
    units_of: Units = Units()
    vector_nbytes: int = 128
    vector_registers: int = 32
    packet_width: int = 4
    loop_overhead: int = 4
    launch_overhead: int = 40

    def __post_init__(self) -> None:
        """Raise `ValueError` for an impossible machine."""
        if self.vector_nbytes < 16 or self.vector_nbytes & (self.vector_nbytes - 1):
            raise ValueError(f"vector_nbytes is {self.vector_nbytes}; it is a power of two from 16")
        for name in ("clock_mhz", "tcm_nbytes", "packet_width"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it is above 0")
        if self.tcm_nbytes > MOST_TCM_NBYTES:
            raise ValueError(f"tcm_nbytes is {self.tcm_nbytes}; it is up to {MOST_TCM_NBYTES}")
        if not 16 <= self.vector_registers <= 256:
            raise ValueError(f"vector_registers is {self.vector_registers}; it is 16 to 256")
        if min(self.loop_overhead, self.launch_overhead) < 0:
            raise ValueError("loop_overhead and launch_overhead are not below 0")
        for unit in RESOURCES:
            needed = max(opcode.count for opcode in OPCODES if opcode.units == (unit,))
            if self.units[unit] < needed:
                raise ValueError(f"units_of.{unit} is {self.units[unit]}; one instruction takes {needed}")

    @property
    def units(self) -> Mapping[str, int]:
        """Kind of unit -> their number."""
        return {kind: getattr(self.units_of, kind) for kind in RESOURCES}


def device_named(name: str, tcm_nbytes: int | None = None) -> Device:
    """The device of a preset, or of a file whose path ends in `.toml`; `tcm_nbytes` replaces its memory's size.

    Raises `InvalidArgument`, which lists the presets.
    """
    device = device_of(*preset_or_path("delegraph_dsp", name))
    try:
        return device if tcm_nbytes is None else replace(device, tcm_nbytes=Size(tcm_nbytes))
    except ValueError as error:
        raise InvalidArgument(str(error)) from error


def device_of(text: str, where: str) -> Device:
    """The device that `text` describes; `where` is its origin, for messages. Raises `InvalidArgument`."""
    return from_toml(text, Device, where)


def device_text(device: Device) -> str:
    """The TOML that `device_of` reads as `device`."""
    values = asdict(device)
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    parts = [_lines({key: value for key, value in values.items() if key not in tables})]
    parts += [f"[{key}]\n{_lines(table)}" for key, table in tables.items()]
    return "\n".join(parts)


def _lines(values: Mapping[str, object]) -> str:
    """A JSON number or string is TOML as well."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items() if value is not None)
