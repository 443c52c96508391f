"""Debug data <-> bytes: what is written is read again, and a stranger's is refused in words."""

from __future__ import annotations

import json
import zlib

import pytest

from delegraph.errors import InvalidProgram
from delegraph.program import DebugData, SourceNode, debug_data
from delegraph.program.debug_data import SourceWeight, read_debug_data, write_debug_data

METHODS = {
    "forward": DebugData(
        nodes={
            1: SourceNode(("aten::conv2d",), "stem.conv", "net.py:3, in forward", ("stem.conv.weight",), ("f [1]",))
        },
        instructions={0: (1, 2)},
        delegates=({"conv": (1,), 7: (1,)}, {}),
        constants={3: ("stem.conv.weight",)},
        weights={"stem.conv.weight": SourceWeight("float32", (2, 3))},
        left={4: "cpu: no float16", 2: "npu: too large", 5: "cpu: no float16"},
    ),
    "empty": DebugData(),
}


def test_what_is_written_is_read() -> None:
    assert read_debug_data(write_debug_data(METHODS)) == METHODS
    assert write_debug_data(METHODS) == write_debug_data(METHODS)


def test_a_later_version_is_not_read() -> None:
    assert read_debug_data(zlib.compress(b'{"version": 2, "methods": "of another form"}')) == {}


def _with(**fields: object) -> bytes:
    empty = {"nodes": [], "instructions": [], "delegates": [], "constants": [], "weights": []}
    return zlib.compress(json.dumps({"version": 1, "methods": {"m": {**empty, **fields}}}).encode())


def test_a_file_from_before_reasons_were_kept_is_read() -> None:
    assert read_debug_data(_with()) == {"m": DebugData()}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"not compressed", "incorrect header check"),
        (write_debug_data(METHODS)[:-3], "it is cut short, or more than 67108864 bytes long"),
        (zlib.compress(b"[]"), "list indices"),
        (zlib.compress(b"{"), "Expecting property name"),
        (_with(nodes=[["1", [], "", "", [], []]]), "expected an integer, not '1'"),
        (_with(nodes=[[1, "aten::relu", "", "", [], []]]), "expected a list, not 'aten::relu'"),
        (_with(nodes=[[1, [], 5, "", [], []]]), "expected text, not 5"),
        (_with(nodes=[[1, []]]), "missing 4 required positional arguments"),
        (_with(instructions=[[0]]), "not enough values to unpack"),
        (_with(delegates=[[[None, [1]]]]), "expected an integer, not None"),
        (_with(weights=[["w", ["float32", "2"]]]), "expected a list, not '2'"),
        (_with(left=[[1, [2]]]), "expected text, not 1"),
    ],
)
def test_what_is_damaged_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(InvalidProgram, match=r"'delegraph\.debug_data' is damaged") as caught:
        read_debug_data(data)
    assert why in str(caught.value) and "copy or lower the program again" in str(caught.value)


def test_what_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    written = write_debug_data(METHODS)
    monkeypatch.setattr(debug_data, "MOST_NBYTES", 100)
    with pytest.raises(InvalidProgram, match="more than 100 bytes"):
        read_debug_data(written)
    assert read_debug_data(write_debug_data(METHODS)) == {}, "nobody could read it"
