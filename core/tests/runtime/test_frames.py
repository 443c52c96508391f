"""Frames between a process and that of its isolated program: what goes in comes out, and nothing else is taken."""

from __future__ import annotations

import json
import struct
from io import BytesIO
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from delegraph.errors import InvalidType
from delegraph.runtime.isolation.frames import BadFrame, read, value_of, values_from, write


def frame(text: str, magic: bytes = b"dgf1") -> BytesIO:
    return BytesIO(struct.pack("<4sI", magic, len(text)) + text.encode())


def test_values_and_arrays_come_back() -> None:
    arrays: list[np.ndarray[Any, Any]] = []
    values = [
        np.arange(6, dtype=np.int16).reshape(2, 3).T, np.zeros((0, 4), np.bool_), np.ones(3, ml_dtypes.bfloat16),
        np.array(1 + 2j), 3, 0.5, float("inf"), "text", True, None, [np.array(1, np.float32)],
    ]  # fmt: skip
    stream = BytesIO()
    message = {"value": value_of(values, arrays)}
    write(stream, message, arrays)
    stream.seek(0)
    told, sent = read(stream)
    for value, got in zip(values, values_from(told["value"], sent), strict=True):
        np.testing.assert_array_equal(got, value)
        assert not isinstance(value, np.ndarray) or (got.dtype, got.shape) == (value.dtype, value.shape)


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (frame("{}", b"GET "), "it does not begin as a frame does"),
        (BytesIO(struct.pack("<4sI", b"dgf1", 2**31)), "it does not begin as a frame does"),
        (frame("[]"), "its JSON is not a frame's"),
        (frame("{"), "its JSON is not a frame's"),
        (frame("[" * 100_000), "its JSON is not a frame's"),
        (frame('{"arrays": [["object", [1]]]}'), "its JSON is not a frame's"),
        (frame('{"arrays": [["float32", [-1]]]}'), "an array has sizes that are none"),
        (frame('{"arrays": [["float32", [true]]]}'), "an array has sizes that are none"),
        (frame('{"arrays": [["float32", [1000, 1000]]]}'), "its arrays have 4,000,000 bytes, and may have 1,000"),
    ],
)
def test_what_is_no_frame(stream: BytesIO, why: str) -> None:
    with pytest.raises(BadFrame, match=why):
        read(stream, 1000)


@pytest.mark.parametrize(
    ("stream", "error", "why"),
    [
        (BytesIO(struct.pack("<4sI", b"dgf1", 2**26)), EOFError, None),
        (BytesIO(struct.pack("<4sI", b"dgf1", 2**26 + 1)), BadFrame, "it does not begin as a frame does"),
        (frame(json.dumps({"arrays": [["uint8", [1001] + [1] * 63]]})), BadFrame, "its arrays have 1,001 bytes"),
        (frame(json.dumps({"arrays": [["uint8", [1001] + [1] * 64]]})), BadFrame, "sizes that are none"),
        (frame('{"arrays": [["uint8", [1000]]]}'), EOFError, None),
        (frame('{"arrays": [["uint8", [1001]]]}'), BadFrame, "its arrays have 1,001 bytes"),
    ],
)
def test_the_limits(stream: BytesIO, error: type[Exception], why: str | None) -> None:
    """The last that is admitted, which ends early, and the first that is not."""
    with pytest.raises(error, match=why):
        read(stream, 1000)


def test_an_end_in_the_middle() -> None:
    for stream in (BytesIO(b"dg"), frame('{"arrays": [["float32", [8]]]}')):
        with pytest.raises(EOFError):
            read(stream)


@pytest.mark.parametrize("value", [{"array": 1}, {"array": -1}, {"array": "0"}, {}, [{"array": None}]])
def test_an_array_that_was_not_sent(value: object) -> None:
    with pytest.raises(BadFrame, match="a value is an array that was not sent"):
        values_from(json.loads(json.dumps(value)), [np.zeros(1)])


def test_what_cannot_be_sent() -> None:
    with pytest.raises(InvalidType, match="a set cannot be sent to the process of an isolated program"):
        value_of({1}, [])
