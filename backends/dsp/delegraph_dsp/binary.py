"""A program <-> its bytes: a header, and sections of packed records (`delegraph.interfaces.BlobFormat`).

    header     the device's description, TOML, TCM bytes, regions, operators, and the constants' key in the program's
               named data, where they lie there
    loops      bound u32, packets u32, then for each packet its size u8 and its instructions:
               opcode u8, target i16, stream i8, sources u8, each i16
    commands   kind u8, then the fields of a transfer, a wait or a launch
    constants  as the transfers read them, unless the header has their key

All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import BlobFormat, Buffer, Size, UnpackedBlob, read_record, shared_data
from delegraph.lazy_dataclass import dataclass
from delegraph_dsp.isa import OPCODES, Instruction, Loop
from delegraph_dsp.program import (
    BACKEND_ID,
    BLOB_VERSION,
    DTYPES,
    KERNELS,
    Command,
    Launch,
    Operand,
    Operator,
    Program,
    Region,
    Transfer,
    Wait,
)

__all__ = ["FORMAT", "pack", "unpack"]

FORMAT: Final = BlobFormat(BACKEND_ID, "delegraph-dsp", (BLOB_VERSION,), alignment=16)
REGION_KINDS: Final = ("constants", "scratch", "input", "output")
MOST_RANK: Final = 8
LOAD, STORE, WAIT, LAUNCH = range(4)

_LOOP: Final = struct.Struct("<II")
_INSTRUCTION: Final = struct.Struct("<BhbB")
_TRANSFER: Final = struct.Struct("<HQQQIQBI")
_LAUNCH: Final = struct.Struct("<BBBBBI")
_OPERAND: Final = struct.Struct("<QBB")
_TRIPS: Final = struct.Struct("<II")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Header:
    device: str
    tcm_nbytes: Size
    regions: tuple[Region, ...]
    operators: tuple[Operator, ...]
    constants_key: str


# ---- writing ------------------------------------------------------------------------------------------------------


def pack(program: Program) -> bytes:
    """The bytes of `program`."""
    header = _Header(program.device, program.tcm_nbytes, program.regions, program.operators, program.constants_key)
    sections: dict[str, Buffer] = {
        "loops": b"".join(map(_loop, program.loops)),
        "commands": b"".join(map(_command, program.commands)),
    }
    if not program.constants_key:
        sections["constants"] = program.constants
    return FORMAT.pack(header, sections)


def _loop(loop: Loop) -> bytes:
    data = bytearray(_LOOP.pack(loop.bound, len(loop.packets)))
    for packet in loop.packets:
        data.append(len(packet))
        for i in packet:
            data += _INSTRUCTION.pack(i.code, i.target, i.stream, len(i.sources))
            data += struct.pack(f"<{len(i.sources)}h", *i.sources)
    return bytes(data)


def _command(command: Command) -> bytes:
    if isinstance(command, Wait):
        return bytes((WAIT, command.channel))
    if isinstance(command, Transfer):
        c = command
        fields = (c.region, c.begin, c.tcm, c.row_nbytes, c.rows, c.stride, c.channel, c.task)
        return bytes([LOAD if c.load else STORE]) + _TRANSFER.pack(*fields)
    return bytes([LAUNCH]) + _launch(command)


def _launch(launch: Launch) -> bytes:
    counts = (len(launch.operands), len(launch.integers), len(launch.reals), len(launch.loops))
    data = bytearray(_LAUNCH.pack(KERNELS.index(launch.kernel), *counts, launch.operator))
    for o in launch.operands:
        data += _OPERAND.pack(o.offset, DTYPES.index(o.dtype), len(o.shape))
        data += struct.pack(f"<{len(o.shape)}I{len(o.shape)}Q", *o.shape, *o.strides)
    data += struct.pack(f"<{len(launch.integers)}q{len(launch.reals)}d", *launch.integers, *launch.reals)
    for loop in launch.loops:
        data += _TRIPS.pack(*loop)
    return bytes(data)


# ---- reading ------------------------------------------------------------------------------------------------------


def unpack(data: bytes | memoryview, named_data: Mapping[str, Buffer] | None = None) -> Program:
    """The program in `data`; its constants are a view, of `named_data` where they lie there: without it there are none
    then. Raises `DelegateInvalidCompatibility` for what cannot be read; whether it may be run is for
    `runtime/validator.py` to say."""
    content = FORMAT.unpack(data)
    with FORMAT.reading():
        header = read_record(_Header, content.header)
        for region in header.regions:
            if region.kind not in REGION_KINDS or region.dtype not in DTYPES or len(region.shape) > MOST_RANK:
                raise ValueError(f"there is no {region!r:.200}")
        for result in filter(None, (operator.result for operator in header.operators)):
            if result.dtype not in DTYPES or not len(result.shape) == len(result.strides) <= MOST_RANK:
                raise ValueError(f"there is no {result!r:.200}")
    return Program(
        header.device,
        header.tcm_nbytes,
        header.regions,
        _constants(content, header, named_data),
        tuple(_Reader("loops", content.read("loops")).each(_read_loop)),
        tuple(_Reader("commands", content.read("commands")).each(_read_command)),
        header.operators,
        header.constants_key,
    )


def _constants(content: UnpackedBlob, header: _Header, named_data: Mapping[str, Buffer] | None) -> bytes | memoryview:
    if not header.constants_key:
        return content.view("constants")
    if named_data is None or not header.regions:
        return b""
    return memoryview(shared_data(BACKEND_ID, named_data, header.constants_key, header.regions[0].nbytes)).cast("B")


class _Reader:
    """Takes records from the front of a section."""

    def __init__(self, name: str, section: memoryview) -> None:
        self._name, self._section, self._at = name, section, 0

    def error(self, what: str) -> DelegateInvalidCompatibility:
        return FORMAT.damaged(f"section {self._name!r}, byte {self._at}: {what}")

    def take(self, record: struct.Struct) -> tuple[Any, ...]:
        if self._at + record.size > len(self._section):
            raise self.error("it ends in the middle of a record")
        self._at += record.size
        return record.unpack_from(self._section, self._at - record.size)

    def numbers(self, count: int, code: str) -> tuple[Any, ...]:
        return self.take(struct.Struct(f"<{count}{code}"))

    def one_of(self, names: Sequence[Any], number: int, what: str) -> Any:
        if number >= len(names):
            raise self.error(f"{number} is not the number of a {what}")
        return names[number]

    def each(self, read: Callable[[_Reader], _T]) -> Iterator[_T]:
        """The records that fill the section."""
        while self._at < len(self._section):
            yield read(self)


def _rank(reader: _Reader, rank: int) -> int:
    if rank > MOST_RANK:
        raise reader.error(f"a tensor of {rank} dims; there are up to {MOST_RANK}")
    return rank


def _read_loop(reader: _Reader) -> Loop:
    bound, count = reader.take(_LOOP)
    packets = []
    for _ in range(count):
        (size,) = reader.numbers(1, "B")
        packets.append(tuple(_read_instruction(reader) for _ in range(size)))
    return Loop(tuple(packets), bound)


def _read_instruction(reader: _Reader) -> Instruction:
    code, target, stream, sources = reader.take(_INSTRUCTION)
    reader.one_of(OPCODES, code, "instruction")
    return Instruction(code, target, reader.numbers(sources, "h"), stream)


def _read_command(reader: _Reader) -> Command:
    (kind,) = reader.numbers(1, "B")
    if kind in (LOAD, STORE):
        return Transfer(kind == LOAD, *reader.take(_TRANSFER))
    if kind == WAIT:
        return Wait(*reader.numbers(1, "B"))
    if kind == LAUNCH:
        return _read_launch(reader)
    raise reader.error(f"{kind} is not the number of a command")


def _read_launch(reader: _Reader) -> Launch:
    kernel, operands, integers, reals, loops, operator = reader.take(_LAUNCH)
    return Launch(
        reader.one_of(KERNELS, kernel, "kernel"),
        tuple(_read_operand(reader) for _ in range(operands)),
        reader.numbers(integers, "q"),
        reader.numbers(reals, "d"),
        tuple(reader.take(_TRIPS) for _ in range(loops)),
        operator,
    )


def _read_operand(reader: _Reader) -> Operand:
    offset, dtype, rank = reader.take(_OPERAND)
    _rank(reader, rank)
    shape, strides = reader.numbers(rank, "I"), reader.numbers(rank, "Q")
    return Operand(offset, reader.one_of(DTYPES, dtype, "dtype"), shape, strides)
