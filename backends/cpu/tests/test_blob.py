"""The blob's format: what is packed comes back; damage is told, never believed."""

from __future__ import annotations

import json
import random
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import BlobTensor
from delegraph_cpu.blob import ALIGNMENT, BLOB_VERSION, FORMAT, Blob, Weight, pack, unpack

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)

X = {"name": "x", "dtype": "float32", "shape": [2], "scalar": False}


def sample() -> bytes:
    blob = Blob(
        "1.2.3",
        (BlobTensor("x", "float32", (1, "s0")), BlobTensor("n", "int64", (), scalar=True)),
        (BlobTensor("y", "bool", (4,)),),
        (
            Weight("w", "float32", (2, 3), 24),
            Weight("elsewhere", "int8", (5,), 5, key="k"),
            Weight("v", "int64", (1,), 8),
        ),
        b"graph",
    )
    return pack(blob, [WEIGHT.tobytes(), np.array([7]).tobytes()])


def test_round_trip() -> None:
    blob = unpack(memoryview(sample()))
    assert blob.onnxruntime == "1.2.3"
    assert [(i.name, i.dtype, i.shape, i.scalar) for i in (*blob.inputs, *blob.outputs)] == [
        ("x", "float32", (1, "s0"), False),
        ("n", "int64", (), True),
        ("y", "bool", (4,), False),
    ]
    assert bytes(blob.graph) == b"graph"
    w, elsewhere, v = blob.weights
    assert elsewhere.key == "k"
    assert bytes(blob.data[w.offset : w.offset + w.nbytes]) == WEIGHT.tobytes()
    assert bytes(blob.data[v.offset : v.offset + v.nbytes]) == np.array([7]).tobytes()


def test_weights_are_aligned_views() -> None:
    packed = np.frombuffer(sample(), np.uint8)
    blob = unpack(packed.data)
    for weight in blob.weights:
        view = np.frombuffer(blob.data, np.uint8)[weight.offset :]
        assert (view.ctypes.data - packed.ctypes.data) % ALIGNMENT == 0
        assert np.shares_memory(view, packed)


def test_every_truncation_is_told() -> None:
    packed = sample()
    content = packed.rstrip(b"\0")  # what follows is padding
    for size in range(len(content) - 1):
        with pytest.raises(DelegateInvalidCompatibility):
            unpack(packed[:size])


def test_every_flipped_bit_before_the_weights_is_told() -> None:
    packed = sample()
    blob = unpack(packed)
    start = len(packed) - len(blob.data)
    covered = packed.index(b"graph") + len(b"graph")
    assert covered <= start
    rng = random.Random(0)
    for position in range(covered):
        if packed[position - 3 : position + 3] == bytes(6):
            continue  # padding between header and graph
        damaged = bytearray(packed)
        damaged[position] ^= 1 << rng.randrange(8)
        with pytest.raises(DelegateInvalidCompatibility):
            unpack(damaged)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [["w", "float32", [2, 3], 24, 1 << 40, None]]}, "beyond the"),
        ({"weights": [["w", "float32", [2, 3], 24, -64, None]]}, "header cannot be read"),
        ({"weights": [["w", "float32", [2, 3], 24, 4, None]]}, "not at a multiple of 64"),
        ({"weights": [["w", "float32", [2, 3], 24, "0", None]]}, "expected a size, not '0'"),
        ({"weights": [["w", "float32", [2, 3], 24, 0, 7]]}, "expected a string, not 7"),
        ({"weights": [["w", "float32", [2, 3], 24, 0, None]] * 2}, "a weight is listed twice"),
        ({"weights": [["w", "float32", [2, 4], 24, 0, None]]}, "is not 24 bytes"),
        ({"weights": [["w", "float32", [-2, -3], 24, 0, None]]}, "expected a size, not -2"),
        ({"weights": [["w", "object", [2, 3], 24, 0, None]]}, "is not 24 bytes"),
        ({"weights": 7}, "header cannot be read"),
        ({"onnxruntime": ["1"]}, "expected a string"),
        ({"inputs": [{**X, "name": 5}]}, "expected a string, not 5"),
        ({"inputs": [{**X, "dtype": "string"}]}, "describes neither a tensor nor a number"),
        ({"inputs": [{**X, "scalar": "yes"}]}, "expected true or false, not 'yes'"),
        ({"inputs": [{**X, "shape": [1.5]}]}, r"expected a size, not 1\.5"),
        ({"inputs": [{**X, "shape": 4}]}, "header cannot be read"),
        ({"outputs": [X, X]}, "an output is listed twice, or is an input"),
        ({"inputs": [X], "outputs": [X]}, "an output is listed twice, or is an input"),
        ({"inputs": [{"name": "x"}]}, "header cannot be read"),
    ],
)
def test_a_header_that_lies_is_told(change: dict[str, object], message: str) -> None:
    fields = {"onnxruntime": "1", "inputs": [], "outputs": [], "weights": [], **change}
    if isinstance(fields["weights"], list):
        names = ("name", "dtype", "shape", "nbytes", "offset", "key")
        fields["weights"] = [dict(zip(names, w, strict=True)) for w in fields["weights"]]
    with pytest.raises(DelegateInvalidCompatibility, match=message):
        unpack(FORMAT.pack(fields, {"graph": b"", "weights": bytes(256)}))


def before_sections(version: int, **header: object) -> bytes:
    """A blob of the versions before the fourth, whose graph is `graph`, with a weight of 4 bytes."""
    fields = {"onnxruntime": "1", "inputs": [], "outputs": [], "graph": 5, **header}
    fields["weights"] = [{"name": "w", "dtype": "int32", "shape": [1], "nbytes": 4, "offset": 0, "key": None}]
    text = json.dumps(fields).encode()
    prefix = struct.pack("<7sBII", b"DLGRCPU", version, len(text), zlib.crc32(b"graph", zlib.crc32(text))) + text
    return prefix + bytes(-len(prefix) % 64) + b"graph".ljust(64, b"\0") + b"\x07\0\0\0"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_versions_before_there_were_sections_are_read(version: int) -> None:
    packed = before_sections(version)
    blob = unpack(packed)
    assert (bytes(blob.graph), bytes(blob.data), blob.states, blob.unpacked) == (b"graph", b"\x07\0\0\0", (), ())
    for damaged in (packed[:12], packed[:40], packed[:70], packed.replace(b"graph\0", b"grape\0")):
        with pytest.raises(DelegateInvalidCompatibility, match="is damaged"):
            unpack(damaged)


@pytest.mark.parametrize("size", [-5, 1.5, 1 << 60, "5", None])
def test_a_graph_of_no_size_is_told(size: object) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match=r"header cannot be read|its checksum is wrong"):
        unpack(before_sections(3, graph=size))


def test_foreign_bytes_and_other_formats_are_named() -> None:
    with pytest.raises(DelegateInvalidCompatibility, match="no blob of CpuBackend: they begin with b'XNNPACK!'"):
        unpack(b"XNNPACK!" + bytes(64))
    newer = replace(FORMAT, versions=(9,)).pack({}, {})
    with pytest.raises(
        DelegateInvalidCompatibility, match=f"has format 9, this delegraph-cpu reads 1 and 2 and 3 and {BLOB_VERSION}"
    ):
        unpack(newer)
    with pytest.raises(DelegateInvalidCompatibility, match="they begin with b'DLGRCPU"):
        unpack(before_sections(4))
    with pytest.raises(DelegateInvalidCompatibility, match="it has 3 bytes"):
        unpack(b"abc")
