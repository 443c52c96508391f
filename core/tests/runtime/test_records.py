"""Records that strangers wrote: what fits its dataclass comes back, and nothing else."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from typing import Any

import pytest

from delegraph.interfaces import BlobTensor, Size, read_record


class Kind(IntEnum):
    """Of places."""

    NEAR = 0
    FAR = 3


@dataclass(frozen=True)
class Record:
    """One field of each kind."""

    name: str
    count: Size
    place: int
    flag: bool
    inputs: tuple[BlobTensor, ...]
    sizes: list[Size]
    place_kind: Kind = Kind.NEAR
    factor: float = 1.0
    key: str | None = None
    data: bytes = b""


RECORD = Record("a", 3, -1, True, (BlobTensor("x", "float32", (2, "s0")),), [1, 2])


def test_records_come_back() -> None:
    fields = asdict(RECORD)
    del fields["data"]
    entry = json.loads(json.dumps(fields))
    assert read_record(Record, entry, data=b"d") == replace(RECORD, data=b"d")
    del entry["key"], entry["inputs"][0]["scalar"]
    assert read_record(Record, entry, data=b"") == RECORD


def test_an_enum_comes_by_its_value_and_a_float_by_any_number() -> None:
    entry = {
        "name": "a",
        "count": 3,
        "place": -1,
        "flag": True,
        "inputs": [],
        "sizes": [],
        "place_kind": 3,
        "factor": 2,
    }
    record = read_record(Record, entry)
    assert record.place_kind is Kind.FAR and isinstance(record.factor, float)
    with pytest.raises(ValueError, match="4 is not a valid Kind"):
        read_record(Record, {**entry, "place_kind": 4})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 7}, "expected a string, not 7"),
        ({"count": -1}, "expected a size, not -1"),
        ({"count": True}, "expected a size, not True"),
        ({"place": 2**63}, "expected an integer"),
        ({"flag": 1}, "expected true or false, not 1"),
        ({"sizes": [1, -2]}, "expected a size, not -2"),
        ({"inputs": {}}, "expected a list, not {}"),
        ({"inputs": [7]}, "expected an object, not 7"),
        ({"inputs": [{"name": "x", "dtype": "float32", "shape": [1.5]}]}, r"expected a size, not 1\.5"),
        ({"key": 7}, "expected a string, not 7"),
        ({"place_kind": "3"}, "expected an integer, not '3'"),
        ({"factor": "1"}, "expected a number, not '1'"),
        ({"factor": True}, "expected a number, not True"),
    ],
)
def test_fields_of_another_type_are_refused(change: dict[str, Any], message: str) -> None:
    entry = {"name": "a", "count": 3, "place": -1, "flag": True, "inputs": [], "sizes": [], **change}
    with pytest.raises(TypeError, match=message):
        read_record(Record, entry)
    with pytest.raises(KeyError):
        read_record(Record, {key: value for key, value in entry.items() if key != "name"})
