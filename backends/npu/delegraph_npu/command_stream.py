"""Commands -> 32-bit words -> commands.

As in Arm's Ethos-U, a stream sets registers and then names the command: a command's fields, down to the last
integer, are registers, and only those are set whose value changes.

    bits 9:0    an opcode (below 64), or 64 + the number of a register
    bit 14      one more word follows, the register's value; without it the value is bits 31:16
    bits 31:16  the register's value, or 0

Values are signed; registers are 0 at first. Their names are those of the fields, `ifm.shape.2`; commands that have a
field of the same name share them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeAlias, cast, get_args, get_origin, get_type_hints

import numpy as np

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import Buffer
from delegraph_npu.commands import Command

__all__ = ["REGISTERS", "decode", "decode_at", "encode"]

_PAYLOAD: Final = 1 << 14
_FIRST_REGISTER: Final = 64
_KNOWN_BITS: Final = 0xFFFF43FF

_KINDS: Final[dict[int, Any]] = {cast(Any, kind).opcode: kind for kind in get_args(Command)}


# ---- registers -------------------------------------------------------------------------------------


def _paths(kind: Any, path: str = "") -> Iterator[str]:
    """The names of the integers in a value of the type `kind`."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        for field in fields(kind):
            yield from _paths(hints[field.name], f"{path}.{field.name}" if path else field.name)
    elif get_origin(kind) is tuple:
        for index, item in enumerate(get_args(kind)):
            yield from _paths(item, f"{path}.{index}")
    else:
        yield path


def _values(value: Any) -> Iterator[int]:
    """The integers in `value`, in the order of `_paths`."""
    if isinstance(value, int):
        yield int(value)
    elif isinstance(value, tuple):
        for item in value:
            yield from _values(item)
    else:
        for field in fields(value):
            yield from _values(getattr(value, field.name))


_Maker: TypeAlias = Callable[[Iterator[int]], Any]


def _maker(kind: Any) -> _Maker:
    """A function from integers, in the order of `_paths`, to a value of the type `kind`.

    It raises ValueError for an integer that is no member of its enum.
    """
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        makers = [_maker(hints[field.name]) for field in fields(kind)]
        return lambda values: cast(Any, kind)(*[make(values) for make in makers])
    if get_origin(kind) is tuple:
        makers = [_maker(item) for item in get_args(kind)]
        return lambda values: tuple([make(values) for make in makers])
    if kind is int:
        return next
    return lambda values: kind(next(values))


_MAKERS: Final = {opcode: _maker(kind) for opcode, kind in _KINDS.items()}
_PATHS: Final = {opcode: tuple(_paths(kind)) for opcode, kind in _KINDS.items()}

REGISTERS: Final[tuple[str, ...]] = tuple(dict.fromkeys(path for paths in _PATHS.values() for path in paths))
"""The name of each register."""

_NUMBERS: Final = {opcode: tuple(map(REGISTERS.index, paths)) for opcode, paths in _PATHS.items()}


# ---- writing ---------------------------------------------------------------------------------------


def encode(commands: Iterable[Command]) -> bytes:
    """The words of `commands`, little endian. Raises OverflowError for a value that no register can hold."""
    words: list[int] = []
    registers = [0] * len(REGISTERS)
    for command in commands:
        for register, value in zip(_NUMBERS[command.opcode], _values(command), strict=True):
            if registers[register] != value:
                words += _setting(register, value)
                registers[register] = value
        words.append(command.opcode)
    return np.array(words, "<u4").tobytes()


def _setting(register: int, value: int) -> list[int]:
    """The word, or two, that set the register to `value`."""
    if not -(1 << 31) <= value < 1 << 31:
        raise OverflowError(f"{REGISTERS[register]} = {value} does not fit into a register of 32 bits")
    what = _FIRST_REGISTER + register
    if -(1 << 15) <= value < 1 << 15:
        return [what | (value & 0xFFFF) << 16]
    return [what | _PAYLOAD, value & 0xFFFFFFFF]


# ---- reading ---------------------------------------------------------------------------------------


def decode(stream: Buffer) -> list[Command]:
    """The commands of a stream. Raises `DelegateInvalidCompatibility`, with the word, for an invalid one."""
    return [command for _, command in decode_at(stream)]


def decode_at(stream: Buffer) -> Iterator[tuple[int, Command]]:
    """Each command, and the number of the word with its opcode."""
    if memoryview(stream).nbytes % 4:
        raise DelegateInvalidCompatibility(
            f"a command stream has words of 4 bytes, and this one has {memoryview(stream).nbytes} bytes"
        )
    words = np.frombuffer(stream, "<u4").tolist()
    registers = [0] * len(REGISTERS)
    position = 0
    while position < len(words):
        at, word = position, words[position]
        position += 1
        what = word & 0x3FF
        if word & ~_KNOWN_BITS or (what < _FIRST_REGISTER and word != what):
            raise _refused(at, f"{word:#010x} has bits that mean nothing")
        if what < _FIRST_REGISTER:
            yield at, _command(what, registers, at)
            continue
        if what - _FIRST_REGISTER >= len(registers):
            raise _refused(at, f"there is no register {what - _FIRST_REGISTER}")
        value = word >> 16
        if word & _PAYLOAD:
            if value or position == len(words):
                raise _refused(at, "a register's value is missing or given twice")
            value = words[position]
            position += 1
            value -= (value >> 31) << 32
        else:
            value -= (value >> 15) << 16
        registers[what - _FIRST_REGISTER] = value


def _command(opcode: int, registers: list[int], at: int) -> Command:
    if opcode not in _MAKERS:
        raise _refused(at, f"there is no command {opcode}")
    try:
        return cast(Command, _MAKERS[opcode](registers[number] for number in _NUMBERS[opcode]))
    except ValueError as error:
        raise _refused(at, f"{_KINDS[opcode].__name__}: {error}") from error


def _refused(at: int, reason: str) -> DelegateInvalidCompatibility:
    return DelegateInvalidCompatibility(f"word {at} of a command stream of NpuBackend: {reason}")
