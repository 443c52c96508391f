"""The `.ptd`: where its bytes lie, what reads back, and what is refused."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from delegraph.errors import InvalidExternalData, InvalidProgram
from delegraph.program import deserialize_flat_tensor, serialize_flat_tensor, write_flat_tensor
from delegraph.program.flat_tensor import ExternalData, FlatTensor, TensorLayout
from delegraph.program.schema import NamedData, Program, ScalarType
from delegraph.program.weights_origin import PROGRAM_KEY, WeightMark, WeightsOrigin, origin_of

LAYOUT = TensorLayout(ScalarType.FLOAT, (2, 3), (1, 0))
WEIGHTS = FlatTensor(
    {
        "l.weight": ExternalData(bytes(range(24)), LAYOUT),
        "tied.weight": ExternalData(bytes(range(24)), LAYOUT),
        "blob": ExternalData(b"for a delegate"),
        "empty": ExternalData(b"", TensorLayout(ScalarType.BYTE, (0,), (0,))),
    }
)


def damaged(offset: int, form: str, *values: int) -> bytes:
    data = bytearray(serialize_flat_tensor(WEIGHTS))
    struct.pack_into(form, data, offset, *values)
    return bytes(data)


def test_reads_what_was_written() -> None:
    assert deserialize_flat_tensor(serialize_flat_tensor(WEIGHTS)) == WEIGHTS


def test_the_layout_of_the_file() -> None:
    data = serialize_flat_tensor(WEIGHTS)
    magic, length, offset, size, base, data_size = struct.unpack_from("<4sIQQQQ", data, 8)
    assert (data[4:8], magic, length, offset) == (b"FT01", b"FH01", 40, 48)
    assert base == -(-(offset + size) // 128) * 128
    assert data[base : base + 24] == bytes(range(24))
    assert data[base + 128 : base + 142] == b"for a delegate"
    assert data_size == 256  # equal data lie there once; an empty segment begins at an aligned offset


def test_alignments_are_kept() -> None:
    data = serialize_flat_tensor(
        FlatTensor({"a": ExternalData(b"a"), "b": ExternalData(b"b", None, 48)}), segment_alignment=32
    )
    base = struct.unpack_from("<Q", data, 32)[0]
    assert base % 96 == 0
    assert data[base + 96 :] == b"b"


def test_a_file_without_anything() -> None:
    assert deserialize_flat_tensor(serialize_flat_tensor(FlatTensor({}))) == FlatTensor({})


def test_write_flat_tensor(tmp_path: Path) -> None:
    write_flat_tensor(WEIGHTS, tmp_path / "w.ptd")
    assert (tmp_path / "w.ptd").read_bytes() == serialize_flat_tensor(WEIGHTS)
    assert os.listdir(tmp_path) == ["w.ptd"]


def test_data_are_read_only_views_into_the_source() -> None:
    source = serialize_flat_tensor(WEIGHTS)
    data = deserialize_flat_tensor(source).named_data["l.weight"].data
    assert isinstance(data, memoryview)
    assert data.obj is source
    assert data.readonly


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"": ExternalData(b"")}, r"named_data\[''\]: is empty"),
        ({"w": ExternalData(b"", None, 0)}, r"named_data\['w'\]\.alignment: is 0, not within"),
        ({"w": ExternalData(bytes(23), LAYOUT)}, r"named_data\['w'\]\.data: has 23 bytes, its tensor_layout needs 24"),
        (
            {"w": ExternalData(b"", TensorLayout(ScalarType.INT, (-1,), (1,)))},
            r"has 2 violation\(s\):\n"
            r"  named_data\['w'\]\.tensor_layout\.sizes\[0\]: is -1, not within 0 to 2147483647\n"
            r"  named_data\['w'\]\.tensor_layout\.dim_order: is \(1,\), not a permutation",
        ),
    ],
)
def test_unsound_data_are_not_written(entries: dict[str, ExternalData], expected: str) -> None:
    with pytest.raises(InvalidExternalData, match=expected):
        serialize_flat_tensor(FlatTensor(entries))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", r"not a \.ptd: it begins with b'' at byte 4, not b'FT01FH01', or ends within its header \(0 bytes\)"),
        (serialize_flat_tensor(WEIGHTS)[:47], r"or ends within its header \(47 bytes\)"),
        (damaged(4, "4s", b"ET12"), r"not a \.ptd: it begins with b'ET12FH01'"),
        (damaged(8, "4s", b"eh00"), r"not a \.ptd: it begins with b'FT01eh00'"),
        (damaged(12, "<I", 39), r"the header \(of 39 bytes\)"),
        (damaged(24, "<Q", 2**40), r"lets the tables end at byte 1099511627824 .* was the file truncated"),
        (damaged(40, "<Q", 2**40), r"the segments at byte 1099511\d+ in a file of .* was the file truncated"),
        (damaged(0, "<I", 2**31), r"byte 2147483648: a FlatTensor table lies outside the \d+ bytes there are"),
        (serialize_flat_tensor(FlatTensor({}, version=1)), r"version is 1; .* reads \.ptd files of version 0"),
    ],
)
def test_damaged_files(data: bytes, expected: str) -> None:
    with pytest.raises(InvalidExternalData, match=expected):
        deserialize_flat_tensor(data)


def test_every_truncation_is_refused() -> None:
    data = serialize_flat_tensor(WEIGHTS)
    for size in range(len(data)):
        with pytest.raises(InvalidExternalData):
            deserialize_flat_tensor(data[:size])


# ---- where the weights came from -------------------------------------------------------------------

ORIGIN = WeightsOrigin("cafe", {"l.weight": WeightMark(str(LAYOUT), "00"), "elsewhere": WeightMark("a blob", "01")})


def test_the_origin_is_no_entry_of_the_weights() -> None:
    known = replace(WEIGHTS, origin=ORIGIN, name="base")
    read = deserialize_flat_tensor(serialize_flat_tensor(known))
    assert read == known
    assert read.named_data.keys() == WEIGHTS.named_data.keys()


def with_origin(content: bytes) -> FlatTensor:
    return FlatTensor({"delegraph.weights_of/base": ExternalData(content)})


def test_an_origin_of_a_later_version_says_nothing() -> None:
    read = deserialize_flat_tensor(serialize_flat_tensor(with_origin(b'{"version": 2, "new": 1}')))
    assert (read.origin, read.name, dict(read.named_data)) == (None, "base", {})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"version": 1}',
        b'{"version": "1"}',
        b'{"version": 1, "program": 1, "weights": {}}',
        b'{"version": 1, "program": "a", "weights": []}',
        b'{"version": 1, "program": "a", "weights": {"w": ["a", 1]}}',
        b'{"version": 1, "program": "a", "weights": {"w": ["a"]}}',
        b'{"version": 1, "program": "a", "weights": {"w": ["\\u001b[31m", "b"]}}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_origin(content: bytes) -> None:
    with pytest.raises(InvalidExternalData, match=r"the named data 'delegraph\.weights_of/base' is damaged"):
        deserialize_flat_tensor(serialize_flat_tensor(with_origin(content)))
    damaged = Program((), named_data={PROGRAM_KEY: NamedData(content)})
    with pytest.raises(InvalidProgram, match=r"the named data 'delegraph\.external_weights' is damaged"):
        origin_of(damaged)
