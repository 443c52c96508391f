"""Blobs of named blocks: what was written is read, and nothing else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegraph.errors import DelegateInvalidCompatibility
from delegraph_machines.blocks import read_blocks, write_blocks

names = st.text("abcdefgh_", min_size=1, max_size=16)


@given(st.dictionaries(names, st.binary(max_size=40), max_size=6))
def test_blocks_are_read_as_they_were_written(blocks: dict[str, bytes]) -> None:
    read = read_blocks(write_blocks(b"TEST", blocks), b"TEST")
    assert list(read) == list(blocks) and {name: bytes(view) for name, view in read.items()} == blocks


def test_blocks_are_aligned_views() -> None:
    blob = write_blocks(b"TEST", {"a": b"x" * 5, "b": b"y" * 3})
    view = read_blocks(blob, b"TEST")["b"]
    assert blob.index(b"yyy") % 16 == 0 and view.readonly and view.obj is blob


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda blob: blob[:10], "at byte 0, 10 bytes are too few"),
        (lambda blob: b"ELSE" + blob[4:], "at byte 0, it begins with"),
        (lambda blob: blob[:8] + b"\x02" + blob[9:], "at byte 8, its version is 2"),
        (lambda blob: blob[:12] + b"\xff\xff" + blob[14:], "at byte 12, 65535 blocks"),
        (lambda blob: blob[:16] + b"\0" * 16 + blob[32:], "at byte 16, .* is not a name of its own"),
        (lambda blob: blob[:16] + b"b" + blob[17:], "at byte 48, .* is not a name of its own"),
        (lambda blob: blob[:32] + b"\x01" + blob[33:], "at byte 32, block 'a'"),
        (lambda blob: blob[:40] + b"\xff" * 7 + blob[47:], "at byte 32, block 'a'"),
    ],
)
def test_what_is_not_a_blob_is_refused_with_its_offset(damage, message: str) -> None:  # type: ignore[no-untyped-def]
    blob = write_blocks(b"TEST", {"a": b"1", "b": b"2"})
    with pytest.raises(DelegateInvalidCompatibility, match=message):
        read_blocks(damage(blob), b"TEST")


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(DelegateInvalidCompatibility):
        read_blocks(b"DGMBTEST\x01\0\0\0" + data, b"TEST")


def test_names_and_kinds_have_their_lengths() -> None:
    with pytest.raises(ValueError, match="4 bytes"):
        write_blocks(b"LONG?", {})
    with pytest.raises(ValueError, match="1 to 16"):
        write_blocks(b"TEST", {"a name that is too long": b""})
