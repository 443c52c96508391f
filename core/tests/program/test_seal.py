"""The seal behind a file, and the source that finds damage with it."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from itertools import pairwise

import pytest

from delegraph.errors import InvalidProgram
from delegraph.program.buffers import byte_view
from delegraph.program.files.checked_source import CheckedSource
from delegraph.program.files.seal import CHUNK_NBYTES, Seal, Signature, pack_seal, read_seal, sealed
from delegraph.program.files.segment_source import segment_source
from delegraph.program.schema import Buffer

FOOTER_NBYTES = 28
CONTENT = random.Random(0).randbytes(3 * CHUNK_NBYTES + 1000)


class Reading:
    """A source that gives bytes of its own each time, and counts them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.loads: list[tuple[int, int]] = []

    def load(self, offset: int, size: int) -> Buffer:
        self.loads.append((offset, size))
        return bytes(bytearray(self.data[offset : offset + size]))

    def size(self) -> int:
        return len(self.data)


def seal_of(data: bytes) -> Seal:
    seal = read_seal(segment_source(data), InvalidProgram)
    assert seal is not None
    return seal


def checked(data: bytes, in_place: bool = True) -> CheckedSource:
    return CheckedSource(segment_source(data) if in_place else Reading(data), seal_of(data), in_place, InvalidProgram)


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 4
    return bytes(changed)


# ---- the format ------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [0, 1, CHUNK_NBYTES - 1, CHUNK_NBYTES, CHUNK_NBYTES + 1, len(CONTENT)])
def test_a_checksum_for_each_chunk_however_the_bytes_come(nbytes: int) -> None:
    content = CONTENT[:nbytes]
    cuts = [0, *sorted(random.Random(nbytes).randrange(nbytes + 1) for _ in range(5)), nbytes]
    pieces = [memoryview(content)[start:end] for start, end in pairwise(cuts)]
    data = b"".join(sealed(pieces))
    assert data == b"".join(sealed([content])) and data[:nbytes] == content
    chunks = [content[start : start + CHUNK_NBYTES] for start in range(0, nbytes, CHUNK_NBYTES)]
    assert seal_of(data) == Seal(nbytes, CHUNK_NBYTES, tuple(map(zlib.crc32, chunks)))


def test_the_signature_comes_back() -> None:
    seal = Seal(len(CONTENT), CHUNK_NBYTES, (1, 2, 3, 4), Signature(bytes(range(32)), bytes(range(64))))
    assert seal_of(CONTENT + pack_seal(seal)) == seal


@pytest.mark.parametrize("data", [b"", b"short", CONTENT, CONTENT + bytes(FOOTER_NBYTES)])
def test_a_file_without_a_seal(data: bytes) -> None:
    assert read_seal(segment_source(data), InvalidProgram) is None


def test_every_changed_bit_of_a_seal_is_found_or_takes_it_away() -> None:
    """Without its last eight bytes, which say what it is, the file has no seal, as ExecuTorch's have none."""
    data = CONTENT + pack_seal(Seal(len(CONTENT), CHUNK_NBYTES, (1, 2, 3, 4), Signature(bytes(32), bytes(64))))
    for at in range(len(CONTENT), len(data)):
        if at >= len(data) - 8:
            assert read_seal(segment_source(flipped(data, at)), InvalidProgram) is None
        else:
            with pytest.raises(InvalidProgram, match="the file's seal is damaged: it"):
                read_seal(segment_source(flipped(data, at)), InvalidProgram)


def test_what_is_said_of_a_damaged_seal() -> None:
    data = b"".join(sealed([CONTENT]))
    with pytest.raises(InvalidProgram, match=r"its own checksum is another; get the file again, or lower the model"):
        seal_of(flipped(data, len(CONTENT)))
    with pytest.raises(InvalidProgram, match=r"it is of 197,608 bytes, which does not fit a file of 197,651;"):
        seal_of(data[1:])


def test_a_bundled_program_that_ends_with_its_program_has_no_seal_of_its_own() -> None:
    data = b"".join(sealed([CONTENT]))
    assert read_seal(segment_source(bytes(4) + b"BP08" + data), InvalidProgram) is None


# ---- checking --------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_place", [True, False])
def test_what_is_loaded_is_the_content(in_place: bool) -> None:
    source = checked(b"".join(sealed([CONTENT])), in_place)
    assert source.size() == len(CONTENT)
    for offset, size in ((0, 8), (0, len(CONTENT)), (100, 0), (CHUNK_NBYTES - 1, 2), (len(CONTENT) - 1, 1)):
        assert bytes(source.load(offset, size)) == CONTENT[offset : offset + size]


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("size", [1, 100, CHUNK_NBYTES])
def test_damage_is_found_in_what_is_loaded_and_nowhere_else(in_place: bool, size: int) -> None:
    source = checked(flipped(b"".join(sealed([CONTENT])), CHUNK_NBYTES + 5), in_place)
    assert source.load(2 * CHUNK_NBYTES, size) == CONTENT[2 * CHUNK_NBYTES : 2 * CHUNK_NBYTES + size]
    with pytest.raises(
        InvalidProgram, match=r"the file is damaged: the checksum of its bytes 65,536 to 131,072 is another than when"
    ):
        source.load(CHUNK_NBYTES, size)


LATER: dict[str, Callable[[CheckedSource, Buffer], object]] = {
    "its data": lambda source, data: source.check(data),
    "a part of them": lambda source, data: source.check(byte_view(data)[CHUNK_NBYTES : CHUNK_NBYTES + 1]),
    "all": lambda source, data: source.check_all(),
}


@pytest.mark.parametrize("how", LATER)
def test_large_data_in_place_are_checked_when_they_are_asked_for(how: str) -> None:
    source = checked(flipped(b"".join(sealed([CONTENT])), 2 * CHUNK_NBYTES))
    data = source.load(CHUNK_NBYTES, 2 * CHUNK_NBYTES)
    assert not source.check(byte_view(data)[:CHUNK_NBYTES]) or not source.is_checked
    with pytest.raises(InvalidProgram, match=r"bytes 131,072 to 196,608"):
        LATER[how](source, data)


def test_each_chunk_in_place_is_checked_once() -> None:
    reading = Reading(b"".join(sealed([CONTENT])))
    source = CheckedSource(reading, seal_of(reading.data), True, InvalidProgram)
    source.check_all()
    source.check_all()
    assert reading.loads == [
        (start, min(CHUNK_NBYTES, len(CONTENT) - start)) for start in range(0, len(CONTENT), CHUNK_NBYTES)
    ]
    assert source.is_checked


def test_data_from_elsewhere_are_not_checked() -> None:
    source = checked(flipped(b"".join(sealed([CONTENT])), 9))
    assert not source.check(bytes(CONTENT)) and not source.check(b"")


def test_what_is_read_is_read_once_but_for_the_edges() -> None:
    reading = Reading(b"".join(sealed([CONTENT])))
    source = CheckedSource(reading, seal_of(reading.data), False, InvalidProgram)
    source.load(10, 2 * CHUNK_NBYTES)
    assert reading.loads == [(10, 2 * CHUNK_NBYTES), (0, CHUNK_NBYTES), (2 * CHUNK_NBYTES, CHUNK_NBYTES)]
    source.load(2 * CHUNK_NBYTES + 10, 20)
    assert reading.loads[3:] == [(2 * CHUNK_NBYTES + 10, 20)]
