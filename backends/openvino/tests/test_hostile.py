"""Blobs that lowering did not write: each is refused with an error of ours, and no file is read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from delegraph.aot import edge_program
from delegraph.errors import DelegateInvalidCompatibility, DelegraphError
from delegraph.interfaces import BackendInitContext, BlobFormat
from delegraph_openvino.aot.lowering import OpenVinoLowering
from delegraph_openvino.aot.partitioner import openvino_partitioner
from delegraph_openvino.blob import BLOB_VERSION, FORMAT, Blob, pack, unpack
from delegraph_openvino.runtime.backend import OpenVinoBackend


@pytest.fixture(scope="module")
def good() -> bytes:
    """A matrix product with a weight that is stored beside the IR, and a constant in it."""
    model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU())
    program = edge_program(torch.export.export(model.eval(), (torch.randn(2, 20),)), openvino_partitioner())
    return OpenVinoLowering.preprocess(program, []).processed_bytes


def init(blob: bytes) -> Any:
    return OpenVinoBackend().init(BackendInitContext("forward", {}, {"num_threads": 1}), blob, [])


def repacked(blob: bytes, change: Callable[[Blob], Blob]) -> bytes:
    """The blob with something else in it, and the right checksum."""
    changed = change(unpack(blob))
    return pack(changed, [bytes(changed.data)])


def with_header(blob: bytes, change: Callable[[dict[str, Any]], None], form: BlobFormat = FORMAT) -> bytes:
    """The blob with another header, and the right checksum."""
    content = FORMAT.unpack(blob)
    change(content.header)
    return form.pack(content.header, {name: content.view(name) for name in content.names})


def in_xml(old: str, new: str) -> Callable[[bytes], bytes]:
    def change(blob: bytes) -> bytes:
        def replaced(content: Blob) -> Blob:
            text = bytes(content.xml).decode()
            assert old in text
            return replace(content, xml=text.replace(old, new, 1).encode())

        return repacked(blob, replaced)

    return change


def in_header(key: str, value: Any) -> Callable[[bytes], bytes]:
    return lambda blob: with_header(blob, lambda fields: fields.__setitem__(key, value))


CASES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "nothing": (lambda b: b"", "it has 0 bytes"),
    "another backend's": (lambda b: b"DLGRCPU\x02" + b[8:], "these bytes are no blob of OpenVinoIR"),
    "newer": (
        lambda b: with_header(b, lambda f: None, replace(FORMAT, versions=(9,))),
        f"has format 9, this delegraph-openvino reads {BLOB_VERSION}",
    ),
    "cut": (lambda b: b[:400], "it is cut short"),
    "a bit": (lambda b: b[:700] + bytes([b[700] ^ 1]) + b[701:], "the checksum of its section 'xml' is wrong"),
    "no header": (lambda b: b[:8] + bytes(8) + b[16:], "its header cannot be read"),
    "a huge header": (lambda b: b[:8] + b"\xff" * 8 + b[16:], "it is cut short: its header has 4294967295"),
    "a field that is missing": (lambda b: with_header(b, lambda f: f.pop("weights")), "cannot be read, KeyError"),
    "a field of another type": (in_header("inputs", {}), "expected a list, not {}"),
    "a size below zero": (
        lambda b: with_header(b, lambda f: f["weights"][0].__setitem__("offset", -64)), "expected a size, not -64",
    ),
    "no xml": (lambda b: FORMAT.pack(FORMAT.unpack(b).header, {"bin": b""}), "it has no section 'xml'"),
    "an input too many": (
        lambda b: with_header(b, lambda f: f["inputs"].append(f["inputs"][0])), "has other inputs or outputs",
    ),
    "no outputs": (in_header("outputs", []), "has other inputs or outputs"),
    "a weight that is elsewhere": (
        lambda b: with_header(b, lambda f: f["weights"][0].__setitem__("offset", 2**40)), "lies at 1099511627776 of",
    ),
    "a weight between": (lambda b: with_header(b, lambda f: f["weights"][0].__setitem__("offset", 4)), "lies at 4 of"),
    "a weight of another shape": (
        lambda b: with_header(b, lambda f: f["weights"][0].__setitem__("shape", [1, 20])), "has shape (1, 20)",
    ),
    "a weight of another dtype": (
        lambda b: with_header(b, lambda f: f["weights"][0].__setitem__("dtype", "int32")), "or as another type",
    ),
    "codes where there are floats": (
        lambda b: with_header(b, lambda f: f["weights"][0].__setitem__("dtype", "uint4")), "or as another type",
    ),
    "an input of codes": (
        lambda b: with_header(b, lambda f: f["inputs"][0].__setitem__("dtype", "uint4")), "no dtype 'uint4'",
    ),
    "rounding that is a number": (in_header("int8_products", 1), "expected true or false, not 1"),
    "a dtype that is not": (
        lambda b: with_header(b, lambda f: f["weights"][0].__setitem__("dtype", "object")), "no dtype 'object'",
    ),
    "named data that is not there": (
        lambda b: with_header(b, lambda f: f["weights"][0].__setitem__("key", "OpenVinoIR//etc/passwd")),
        "needs 1280 bytes of named data 'OpenVinoIR//etc/passwd', and the program has none",
    ),
    "not xml": (in_xml("<net", "<<net"), "its xml cannot be read"),
    "entities": (
        in_xml("<net", '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><net'), "has a document type",
    ),
    "an operation that reads state": (in_xml('"ReLU"', '"ReadValue"'), "operation 'ReadValue'"),
    "an extension": (
        in_xml('type="ReLU" version="opset1"', 'type="ReLU" version="extension"'), "'ReLU' of 'extension'",
    ),
    "a constant that is elsewhere": (in_xml('offset="0" size="64"', 'offset="64" size="64"'), "does not lie in"),
    "a constant's size": (in_xml('size="64"', 'size="4"'), "is not of its shape"),
    "a constant before": (in_xml('offset="0" size="64"', 'offset="-8" size="64"'), "does not lie in"),
    "a constant of strings": (in_xml('="f32" shape="16"', '="string" shape="16"'), "a constant's"),
    "an edge to nowhere": (in_xml('from-layer="0"', 'from-layer="77"'), "cannot read a graph"),
    "shapes that do not fit": (in_xml('shape="2,20"', 'shape="2,21"'), "OpenVINO"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_refused(good: bytes, case: str) -> None:
    change, message = CASES[case]
    with pytest.raises(DelegateInvalidCompatibility) as caught:
        init(change(good))
    assert message in str(caught.value)


def test_every_cut_and_flip_of_the_start(good: bytes) -> None:
    """Whatever is missing or changed in the header and the graph is refused, as ours; padding may be anything."""
    for place in range(0, 600, 7):
        with pytest.raises(DelegraphError):
            init(good[:place])
        with contextlib.suppress(DelegraphError):
            init(good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1 :])


def test_the_good_one(good: bytes) -> None:
    init(good)
    assert repacked(good, lambda blob: blob) == good
