"""The container for blobs, whole and damaged, and what a backend makes of a stamp that does not judge it itself."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import BackendInterface, BlobFormat, BlobStamp, BlobTensor, UnpackedBlob

FORMAT = BlobFormat("Mine", "delegraph-mine", (1, 2))
X = BlobTensor("x", "float32", (2, "s0"))


def packed() -> bytes:
    return FORMAT.pack({"inputs": [X], "n": 1}, {"graph": b"graph", "none": b"", "weights": [b"weights", b"more"]})


def resealed(**changes: Any) -> bytes:
    """The blob with another stored header, and its checksum."""
    blob = packed()
    (size,) = struct.unpack_from("<I", blob, 8)
    head = {**json.loads(blob[16 : 16 + size]), **changes}
    text = json.dumps(head, separators=(",", ":")).encode()
    prefix = struct.pack("<8sII", blob[:8], len(text), zlib.crc32(text)) + text
    return prefix + bytes(-len(prefix) % 64) + blob[FORMAT.aligned(16 + size) :]


def sections(**changes: Any) -> dict[str, Any]:
    rest = {"name": "none", "offset": 64, "nbytes": 0, "crc32": 0}
    return {"sections": [{"name": "graph", "offset": 0, "nbytes": 5, "crc32": zlib.crc32(b"graph"), **changes}, rest]}


def test_what_goes_in_comes_out() -> None:
    blob = FORMAT.unpack(packed())
    tensor = {"name": "x", "dtype": "float32", "shape": [2, "s0"], "scalar": False}
    assert (blob.version, blob.header) == (2, {"inputs": [tensor], "n": 1})
    assert blob.names == ("graph", "none", "weights")
    assert (blob.read("graph"), blob.read("none")) == (b"graph", b"")
    first, second = FORMAT.places([7, 4])
    assert blob.read("weights")[first : first + 7] == b"weights" and blob.read("weights")[second:] == b"more"
    blob.verify()
    assert packed() == packed()


@pytest.mark.parametrize("alignment", [1, 16, 64, 4096])
def test_sections_stay_where_they_are(alignment: int) -> None:
    form = replace(FORMAT, alignment=alignment)
    stored = form.pack(None, {"a": b"12345", "b": [b"1", b"23"]})
    blob = form.unpack(stored)
    whole = np.frombuffer(stored, np.uint8)
    for name in blob.names:
        view = np.frombuffer(blob.view(name), np.uint8)
        assert np.shares_memory(view, whole) and not view.flags.writeable
        assert (view.ctypes.data - whole.ctypes.data) % alignment == 0
    assert blob.view("b").nbytes == alignment + 2 and blob.view("b")[alignment:] == b"23"
    assert form.unpack(bytearray(stored)).view("a").readonly


def test_no_sections_and_no_header() -> None:
    blob = FORMAT.unpack(FORMAT.pack(None, {}))
    assert (blob.header, blob.names) == (None, ())


def test_an_older_version_is_read_and_a_newer_one_named() -> None:
    older = replace(FORMAT, versions=(1,))
    assert FORMAT.unpack(older.pack(None, {})).version == 1
    with pytest.raises(DelegateInvalidCompatibility, match="has format 2, this delegraph-mine reads 1; lower"):
        older.unpack(packed())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: b"", "is damaged: it has 0 bytes"),
        (lambda: b"XNNPACK!" + bytes(64), "no blob of Mine: they begin with b'XNNPACK!'"),
        (lambda: packed().replace(b"BLOB\x01", b"BLOB\x02"), "they begin with b'DLGBLOB.x02', not b'DLGBLOB.x01'"),
        (lambda: replace(FORMAT, backend_id="Other").pack(None, {}), "no blob of Mine: they are one of 'Other'"),
        (lambda: packed()[:100], "it is cut short: its header has"),
        (lambda: packed()[:-1], "it is cut short: it has .* bytes, and a section ends at"),
        (lambda: packed().replace(b'"n":1', b'"n":2'), "the checksum of its header is wrong"),
        (lambda: resealed(version=-1), "expected a size, not -1"),
        (lambda: resealed(version=True), "expected a size, not True"),
        (lambda: resealed(backend=None), "expected a string, not None"),
        (lambda: resealed(sections={}), "expected a list, not {}"),
        (lambda: resealed(sections=[[]]), r"expected an object, not \[\]"),
        (lambda: resealed(**sections(offset=32)), "its section 'graph', at .* has no name or place of its own"),
        (lambda: resealed(**sections(nbytes=65)), "its section 'none', at .* has no name or place of its own"),
        (lambda: resealed(**sections(name="none")), "its section 'none', at .* has no name or place of its own"),
        (lambda: resealed(**sections(nbytes=2**62)), "it is cut short"),
        (lambda: resealed(**sections(crc32=1.5)), r"expected a size, not 1\.5"),
    ],
)
def test_a_damaged_one_is_refused(change: Callable[[], bytes], message: str) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match=message):
        FORMAT.unpack(change())


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"{", b"[" * 10**5, b"\xff", b'{"header": 1}'])
def test_a_header_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match="its header cannot be read"):
        FORMAT.unpack(struct.pack("<8sII", b"DLGBLOB\x01", len(text), zlib.crc32(text)) + text)


def test_a_section_is_summed_when_it_is_read() -> None:
    stored = bytearray(packed())
    stored[stored.rindex(b"more")] ^= 1
    blob = FORMAT.unpack(stored)
    assert blob.view("weights")[-3:] == b"ore"
    refused: list[Callable[[UnpackedBlob], object]] = [lambda blob: blob.read("weights"), lambda blob: blob.verify()]
    for read in refused:
        with pytest.raises(DelegateInvalidCompatibility, match="the checksum of its section 'weights' is wrong"):
            read(blob)
    with pytest.raises(DelegateInvalidCompatibility, match="it has no section 'weight'"):
        blob.view("weight")


def test_no_byte_makes_another_error() -> None:
    whole, draw = packed(), random.Random(0)
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            FORMAT.unpack(damaged).verify()
        except DelegateInvalidCompatibility:
            continue


class Versioned(BackendInterface):
    """Reads two versions of its blobs."""

    blob_version = 4
    oldest_blob_version = 3

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any: ...

    def execute(self, context: Any, handle: Any, args: Any) -> None: ...


class Unversioned(Versioned):
    """Reads whatever comes."""

    blob_version = 0
    oldest_blob_version = 0


@pytest.mark.parametrize(
    ("version", "verdict", "reason"),
    [
        (5, "refuse", "blob version 4 is read here: install a newer release of the backend"),
        (4, "ok", ""),
        (3, "ok", ""),
        (2, "recompile", "Npu blob version 2, made by acme 1.0; blob version 4 is needed: lower the model again"),
    ],
)
def test_a_stamp_is_judged_by_its_version(version: int, verdict: str, reason: str) -> None:
    stamp = BlobStamp("Npu", "acme", "1.0", version)
    answer = Versioned().check(stamp)
    assert answer.verdict.value == verdict
    assert reason in answer.reason
    assert Unversioned().check(stamp).verdict.value == Versioned().check(None).verdict.value == "ok"
