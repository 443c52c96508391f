"""Blobs in a backend's own format: what is packed comes back, and what strangers wrote is refused."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import pytest

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import BlobFormat, BlobTensor, Size, read_record

FORMAT = BlobFormat("Mine", "delegraph-mine", b"DLGMINE", (1, 2), ("graph",))


@dataclass(frozen=True)
class Record:
    """One field of each kind."""

    name: str
    count: Size
    place: int
    flag: bool
    inputs: tuple[BlobTensor, ...]
    key: str | None = None
    data: bytes = b""


RECORD = Record("a", 3, -1, True, (BlobTensor("x", "float32", (2, "s0")),))


def packed(header: dict[str, Any] | None = None, graph: bytes = b"graph") -> bytes:
    return FORMAT.pack({"graph": len(graph), **(header or {})}, [graph], [b"weights", b"more"])


def test_what_is_packed_comes_back_aligned() -> None:
    blob = FORMAT.unpack(packed({"n": 1}))
    assert (blob.version, blob.header) == (2, {"graph": 5, "n": 1})
    assert [bytes(part) for part in blob.parts] == [b"graph"]
    first, second = FORMAT.places([7, 4])
    assert bytes(blob.data[first : first + 7]) == b"weights"
    assert bytes(blob.data[second : second + 4]) == b"more" and second % FORMAT.alignment == 0


def test_an_older_version_is_read_and_a_newer_one_named() -> None:
    older = replace(FORMAT, versions=(1,))
    assert FORMAT.unpack(older.pack({"graph": 0}, [b""])).version == 1
    with pytest.raises(DelegateInvalidCompatibility, match="has format 2, this delegraph-mine reads 1; lower"):
        older.unpack(packed())
    with pytest.raises(DelegateInvalidCompatibility, match="no blob of Mine: they begin with b'DLGMINX"):
        FORMAT.unpack(b"DLGMINX" + packed()[7:])


def test_damage_is_told() -> None:
    blob = packed()
    start = blob.index(b"graph", FORMAT.alignment)
    for damaged, message in (
        (blob[:5], "it has 5 bytes"),
        (blob[: start + 2], "cut short"),
        (blob[:start] + b"G" + blob[start + 1 :], "checksum is wrong"),
        (blob[:16] + b"!" + blob[17:], "header cannot be read"),
    ):
        with pytest.raises(DelegateInvalidCompatibility, match=message):
            FORMAT.unpack(damaged)


def test_records_come_back() -> None:
    entry = {**asdict(RECORD), "inputs": [{**asdict(RECORD.inputs[0]), "shape": [2, "s0"]}]}
    del entry["data"]
    assert read_record(Record, entry, data=b"d") == replace(RECORD, data=b"d")
    del entry["key"], entry["inputs"][0]["scalar"]
    assert read_record(Record, entry, data=b"") == RECORD


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 7}, "expected a string, not 7"),
        ({"count": -1}, "expected a size, not -1"),
        ({"count": True}, "expected a size, not True"),
        ({"place": 2**63}, "expected an integer"),
        ({"flag": 1}, "expected true or false, not 1"),
        ({"inputs": {}}, "expected a list, not {}"),
        ({"inputs": [7]}, "expected an object, not 7"),
        ({"inputs": [{"name": "x", "dtype": "float32", "shape": [1.5]}]}, r"expected a size, not 1\.5"),
        ({"key": 7}, "expected a string, not 7"),
    ],
)
def test_fields_of_another_type_are_refused(change: dict[str, Any], message: str) -> None:
    entry = {"name": "a", "count": 3, "place": -1, "flag": True, "inputs": [], **change}
    with pytest.raises(TypeError, match=message):
        read_record(Record, entry)
    with pytest.raises(KeyError):
        read_record(Record, {key: value for key, value in entry.items() if key != "name"})
