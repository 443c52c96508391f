"""Commands become words and come back; what is no command is refused with its word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from backends.npu.tests.cases import cases

from delegraph.errors import DelegateInvalidCompatibility
from delegraph_npu.command_stream import REGISTERS, decode, decode_at, encode
from delegraph_npu.commands import Address, Command, Conv, DmaStart, DmaWait, Region, Stop

EVERY: list[Command] = [case.command for case in cases()]
TRANSFER = DmaStart(1, Address(Region.WEIGHTS, 0x12345678), Address(Region.SRAM, 7), (2, 3, 40000), (9, 8), (7, 6), 5)


def test_commands_come_back() -> None:
    commands = [*EVERY, TRANSFER, DmaWait(1), Stop()]
    assert decode(encode(commands)) == commands


def test_only_what_changes_is_written() -> None:
    conv = next(command for command in EVERY if isinstance(command, Conv))
    first, again = encode([conv]), encode([conv, conv, replace(conv, zero_point=conv.zero_point + 1)])
    assert len(again) == len(first) + 4 + 8, "one word for the command; two where a register changes"


def test_words_are_as_documented() -> None:
    words = np.frombuffer(encode([DmaWait(3), DmaWait(-4), DmaWait(1 << 20), Stop()]), "<u4").tolist()
    channel = 64 + REGISTERS.index("channel")
    assert words == [3 << 16 | channel, 2, 0xFFFC0000 | channel, 2, 1 << 14 | channel, 1 << 20, 2, 0]


def test_a_value_of_more_than_32_bits() -> None:
    with pytest.raises(OverflowError, match="channel = 2147483648 does not fit into a register of 32 bits"):
        encode([DmaWait(1 << 31)])


REGION = 64 + REGISTERS.index("source.region")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([1 << 10], "word 0 .* 0x00000400 has bits that mean nothing"),
        ([1 << 14], "word 0 .* 0x00004000 has bits that mean nothing"),
        ([2 << 16 | 2], "word 0 .* has bits that mean nothing"),
        ([63], "word 0 .* there is no command 63"),
        ([2, 0x3FF], "word 1 .* there is no register 959"),
        ([1 << 14 | 64], "word 0 .* a register's value is missing or given twice"),
        ([1 << 16 | 1 << 14 | 64, 0], "word 0 .* a register's value is missing or given twice"),
        ([9 << 16 | REGION, 1], "word 1 .* DmaStart: 9 is not a valid Region"),
    ],
)
def test_what_is_no_command_is_refused(words: list[int], reason: str) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match=reason):
        list(decode_at(np.array(words, "<u4").tobytes()))


def test_half_a_word() -> None:
    with pytest.raises(DelegateInvalidCompatibility, match="words of 4 bytes, and this one has 6 bytes"):
        decode(bytes(6))
