"""A board's TOML file -> its memories: their names, sizes, alignments, devices and speeds, and who goes where.

policy = "fastest_first"        # or "by_hand"

[[memory]]                      # memory_id 1
name = "sram"
size = "256 KiB"
alignment = 16                  # of every tensor in it, in bytes
device = "cpu"
speed = 8                       # relative to the others: more is faster

[[memory]]                      # memory_id 2; without a size there is no limit
name = "dram"

[place]                         # by hand, by names of nodes, inputs and buffers
"cache.*" = "dram"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from os import PathLike
from types import MappingProxyType
from typing import Final, TypeVar

from delegraph.errors import InvalidArgument
from delegraph.lazy_dataclass import dataclass, field
from delegraph.program.devices import CPU, Device

__all__ = ["POLICIES", "Memory", "MemoryHierarchy", "read_memory_hierarchy"]

_T = TypeVar("_T")

POLICIES: Final = ("fastest_first", "by_hand")
"""How tensors come to their memory; see `MemoryHierarchy.policy`."""

_UNITS: Final = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE: Final = re.compile(r"(\d+) ?(" + "|".join(_UNITS) + ")")


@dataclass(frozen=True, slots=True)
class Memory:
    """One memory of a device. `nbytes`: its size, None for no limit. `alignment`: of every tensor in it, in bytes.
    `speed`: how fast it is relative to the others; more is faster."""

    name: str
    nbytes: int | None = None
    alignment: int = 16
    device: Device = CPU
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class MemoryHierarchy:
    """The memories that a method's tensors may lie in; number `n` of them, from 1 on, is `memory_id` n of the file.

    `policy`: "fastest_first" gives the fastest memory of its device to who uses it most, by instructions that name a
    tensor for each step that it lives, and spills tensors that do not fit to the next; "by_hand" puts all in the first
    memory of their device. Before that comes `place`, from patterns of names (of nodes, inputs and buffers) to a
    memory's name, and `meta["memory_id"]` of a node.
    """

    memories: tuple[Memory, ...]
    policy: str = "fastest_first"
    place: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        """Raise `InvalidArgument` for settings that contradict themselves."""
        names = [memory.name for memory in self.memories]
        if not names:
            raise InvalidArgument("a memory hierarchy has at least one memory")
        for memory in self.memories:
            _check_memory(memory, names)
        if self.policy not in POLICIES:
            raise InvalidArgument(f"policy is {self.policy!r}; it is one of {', '.join(POLICIES)}")
        for pattern, name in self.place.items():
            if name not in names:
                raise InvalidArgument(f"{pattern!r} is to lie in memory {name!r}; there are {', '.join(names)}")

    def memory_id(self, name: str) -> int:
        """The id, from 1 on, of the memory of this name."""
        return [memory.name for memory in self.memories].index(name) + 1


def read_memory_hierarchy(path: str | PathLike[str]) -> MemoryHierarchy:
    """The memories that a TOML file describes. Raises `InvalidArgument`, which names the file and the fault."""
    try:
        with open(path, "rb") as file:
            return _hierarchy(tomllib.load(file))
    except (OSError, ValueError, RecursionError, InvalidArgument) as error:
        raise InvalidArgument(f"{str(path)!r} is not a memory hierarchy: {error}") from error


def _hierarchy(table: Mapping[str, object]) -> MemoryHierarchy:
    _check_keys("the file", table, ("policy", "memory", "place"))
    memories = table.get("memory", [])
    if not isinstance(memories, list) or not all(isinstance(entry, dict) for entry in memories):
        raise InvalidArgument("memories are written as tables, [[memory]]")
    return MemoryHierarchy(
        tuple(map(_memory, memories)),
        _typed("policy", table.get("policy", "fastest_first"), str),
        _typed("place", table.get("place", {}), dict),
    )


def _memory(table: Mapping[str, object]) -> Memory:
    _check_keys("[[memory]]", table, ("name", "size", "alignment", "device", "speed"))
    try:
        device = Device.parse(_typed("device", table.get("device", "cpu"), str))
    except ValueError as error:
        raise InvalidArgument(f"device: {error}") from error
    return Memory(
        _typed("name", table.get("name"), str),
        _size(table["size"]) if "size" in table else None,
        _typed("alignment", table.get("alignment", 16), int),
        device,
        _typed("speed", table.get("speed", 1), int, float),
    )


def _size(size: object) -> int:
    if isinstance(size, str) and (match := _SIZE.fullmatch(size.strip())):
        return int(match[1]) * _UNITS[match[2]]
    if not isinstance(size, int) or isinstance(size, bool):
        raise InvalidArgument(f'size is {size!r}; it is a number of bytes, or written as "256 KiB"')
    return size


def _typed(name: str, value: object, *types: type[_T]) -> _T:
    if not isinstance(value, types) or isinstance(value, bool):
        raise InvalidArgument(f"{name} is {value!r}; it is a {' or '.join(kind.__name__ for kind in types)}")
    return value


def _check_keys(where: str, table: Mapping[str, object], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise InvalidArgument(f"{where} has {key!r}; it takes {', '.join(known)}")


def _check_memory(memory: Memory, names: list[str]) -> None:
    if not memory.name or names.count(memory.name) > 1:
        raise InvalidArgument(f"a memory is called {memory.name!r}; each has a name of its own")
    if memory.nbytes is not None and memory.nbytes < 0:
        raise InvalidArgument(f"memory {memory.name!r}: size is {memory.nbytes}; it is a number of bytes")
    if memory.alignment < 1 or memory.alignment & (memory.alignment - 1):
        raise InvalidArgument(f"memory {memory.name!r}: alignment is {memory.alignment} bytes; it is a power of two")
    if not memory.speed > 0:
        raise InvalidArgument(f"memory {memory.name!r}: speed is {memory.speed}; it is above 0")
