"""A program <-> its bytes: named blocks (`delegraph_machines.blocks`), each a row of packed records.

    header     version u32, TCM bytes u64, number of regions, loops, operators, commands u32
    device     the device's description, TOML
    regions    kind u8, dtype u8, rank u8, bytes u64, dims u32
    loops      bound u32, packets u32, then for each packet its size u8 and its instructions:
               opcode u8, target i16, stream i8, sources u8, each i16
    operators  name, operator: length u16 and UTF-8
    commands   kind u8, then the fields of a transfer, a wait or a launch
    constants  as the transfers read them; or
    constants_key   where they lie in the program's named data: bytes u64, then the key, UTF-8

All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import Buffer, shared_data
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
from delegraph_machines.blocks import read_blocks, write_blocks

__all__ = ["pack", "unpack"]

KIND: Final = b"DSP1"
REGION_KINDS: Final = ("constants", "scratch", "input", "output")
MOST_RANK: Final = 8
LOAD, STORE, WAIT, LAUNCH = range(4)

_HEADER: Final = struct.Struct("<IQIIII")
_REGION: Final = struct.Struct("<BBBQ")
_LOOP: Final = struct.Struct("<II")
_INSTRUCTION: Final = struct.Struct("<BhbB")
_TRANSFER: Final = struct.Struct("<HQQQIQBI")
_LAUNCH: Final = struct.Struct("<BBBBBI")
_OPERAND: Final = struct.Struct("<QBB")
_TRIPS: Final = struct.Struct("<II")
_SIZE: Final = struct.Struct("<Q")


# ---- writing ------------------------------------------------------------------------------------------------------


def pack(program: Program) -> bytes:
    """The bytes of `program`."""
    counts = (len(program.regions), len(program.loops), len(program.operators), len(program.commands))
    key = program.constants_key
    constants = {"constants": bytes(program.constants)}
    if key:
        constants = {"constants_key": _SIZE.pack(len(program.constants)) + key.encode()}
    return write_blocks(
        KIND,
        {
            "header": _HEADER.pack(BLOB_VERSION, program.tcm_nbytes, *counts),
            "device": program.device.encode(),
            "regions": b"".join(map(_region, program.regions)),
            "loops": b"".join(map(_loop, program.loops)),
            "operators": b"".join(_text(o.name) + _text(o.target) for o in program.operators),
            "commands": b"".join(map(_command, program.commands)),
            **constants,
        },
    )


def _region(region: Region) -> bytes:
    head = _REGION.pack(
        REGION_KINDS.index(region.kind), DTYPES.index(region.dtype), len(region.shape), region.nbytes
    )  # fmt: skip
    return head + struct.pack(f"<{len(region.shape)}I", *region.shape)


def _loop(loop: Loop) -> bytes:
    data = bytearray(_LOOP.pack(loop.bound, len(loop.packets)))
    for packet in loop.packets:
        data.append(len(packet))
        for i in packet:
            data += _INSTRUCTION.pack(i.code, i.target, i.stream, len(i.sources))
            data += struct.pack(f"<{len(i.sources)}h", *i.sources)
    return bytes(data)


def _text(text: str) -> bytes:
    encoded = text.encode()[:0xFFFF]
    return struct.pack("<H", len(encoded)) + encoded


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
    blocks = read_blocks(data, KIND)
    for name in ("header", "device", "regions", "loops", "operators", "commands"):
        _check_block(blocks, name)
    header = _Reader("header", blocks["header"])
    version, tcm_nbytes, regions, loops, operators, commands = header.take(_HEADER)
    if version != BLOB_VERSION:
        raise header.error(f"its version is {version}, this delegraph-dsp reads {BLOB_VERSION}")
    constants, key = _constants(blocks, named_data)
    return Program(
        _Reader("device", blocks["device"]).decoded(blocks["device"]),
        tcm_nbytes,
        tuple(_Reader("regions", blocks["regions"]).each(_read_region, regions)),
        constants,
        tuple(_Reader("loops", blocks["loops"]).each(_read_loop, loops)),
        tuple(_Reader("commands", blocks["commands"]).each(_read_command, commands)),
        tuple(_Reader("operators", blocks["operators"]).each(_read_operator, operators)),
        key,
    )


def _check_block(blocks: Mapping[str, memoryview], name: str) -> None:
    if name not in blocks:
        raise DelegateInvalidCompatibility(f"a blob of DspBackend has no block {name!r}; lower the program again")


def _constants(
    blocks: Mapping[str, memoryview], named_data: Mapping[str, Buffer] | None
) -> tuple[bytes | memoryview, str]:
    """The constants, and their key in the named data if they lie there."""
    if "constants_key" not in blocks:
        _check_block(blocks, "constants")
        return blocks["constants"], ""
    reader = _Reader("constants_key", blocks["constants_key"])
    (nbytes,) = reader.take(_SIZE)
    key = reader.decoded(blocks["constants_key"][_SIZE.size :])
    if not key:
        raise reader.error("there is no key")
    if named_data is None:
        return b"", key
    return memoryview(shared_data(BACKEND_ID, named_data, key, nbytes)).cast("B"), key


class _Reader:
    """Takes records from the front of a block."""

    def __init__(self, name: str, block: memoryview) -> None:
        self._name, self._block, self._at = name, block, 0

    def error(self, what: str) -> DelegateInvalidCompatibility:
        return DelegateInvalidCompatibility(
            f"a blob of DspBackend is damaged: block {self._name!r}, byte {self._at}: {what}; lower the program again"
        )

    def take(self, record: struct.Struct) -> tuple[Any, ...]:
        if self._at + record.size > len(self._block):
            raise self.error("it ends in the middle of a record")
        self._at += record.size
        return record.unpack_from(self._block, self._at - record.size)

    def numbers(self, count: int, code: str) -> tuple[Any, ...]:
        return self.take(struct.Struct(f"<{count}{code}"))

    def one_of(self, names: Sequence[Any], number: int, what: str) -> Any:
        if number >= len(names):
            raise self.error(f"{number} is not the number of a {what}")
        return names[number]

    def decoded(self, data: memoryview) -> str:
        try:
            return bytes(data).decode()
        except UnicodeDecodeError as error:
            raise self.error("a text is not UTF-8") from error

    def text(self) -> str:
        (size,) = self.numbers(1, "H")
        (data,) = self.numbers(size, "s") if size else (b"",)
        return self.decoded(memoryview(data))

    def each(self, read: Any, count: int) -> list[Any]:
        """`count` records, which fill the block."""
        found: list[Any] = []
        for _ in range(count):
            if self._at == len(self._block):  # before a number of billions is believed
                raise self.error(f"it has {len(found)} records of {count}")
            found.append(read(self))
        if self._at != len(self._block):
            raise self.error("something follows the last record")
        return found


def _rank(reader: _Reader, rank: int) -> int:
    if rank > MOST_RANK:
        raise reader.error(f"a tensor of {rank} dims; there are up to {MOST_RANK}")
    return rank


def _read_region(reader: _Reader) -> Region:
    kind, dtype, rank, nbytes = reader.take(_REGION)
    shape = reader.numbers(_rank(reader, rank), "I")
    return Region(
        reader.one_of(REGION_KINDS, kind, "kind of region"), nbytes, reader.one_of(DTYPES, dtype, "dtype"), shape
    )


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


def _read_operator(reader: _Reader) -> Operator:
    return Operator(reader.text(), reader.text())


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
