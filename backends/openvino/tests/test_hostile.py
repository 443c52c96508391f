"""Blobs that lowering did not write: each is refused with an error of ours, and no file is read."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from delegraph.aot import edge_program
from delegraph.errors import DelegateInvalidCompatibility, DelegraphError, PreprocessError
from delegraph.interfaces import BackendInitContext, BlobFormat
from delegraph_openvino.aot.lowering import OpenVinoLowering, _check_loading
from delegraph_openvino.aot.partitioner import openvino_partitioner
from delegraph_openvino.blob import BLOB_VERSION, FORMAT, Blob, pack, unpack
from delegraph_openvino.ir.reading import read_ir, written_ir
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


WITH_INPUTS = rb'(?s)<input>.*?</input>\s*<output>\s*<port id="2"'
PARAMETER = rb'(?s)type="Parameter" version="opset1">\s*<data [^>]*>'
RELU = b'type="ReLU" version="opset1">'

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
    "a constant of strings": (in_xml('="f32" shape="16"', '="string" shape="16"'), "of a Const is 'string'"),
    "an edge to nowhere": (in_xml('from-layer="0"', 'from-layer="77"'), "to layer 2 leads back, or nowhere"),
    "an edge back": (in_xml('to-layer="2"', 'to-layer="0"'), "to layer 0 leads back, or nowhere"),
    "an edge from no port": (in_xml('from-port="0"', 'from-port="7"'), "is one of two, or one of its ports is none"),
    "an edge twice": (in_xml('to-port="1"', 'to-port="0"'), "is one of two, or one of its ports is none"),
    "an edge of words": (in_xml('from-layer="0"', 'from-layer="x"'), "from-layer of <edge> is 'x', and not a number"),
    "no edges": (lambda b: repacked(b, lambda c: replace(c, xml=re.sub(b"<edge .*>", b"", c.xml))), "reads nothing"),
    "a Parameter that pools": (
        in_xml('type="Parameter" version="opset1"', 'type="MaxPool" version="opset8"'),
        "a MaxPool has attributes ['element_type', 'shape'], not ['auto_pad', 'axis'",
    ),
    "a Parameter that adds": (
        in_xml('type="Parameter" version="opset1">', 'type="Elu" version="opset1"><data alpha="1" />'),
        "has an element twice",
    ),
    "a ReLU of nothing": (in_xml("<input>", "<ins>"), "cannot be read"),
    "a layer without inputs": (
        lambda b: repacked(b, lambda c: replace(c, xml=re.sub(WITH_INPUTS, b'<output><port id="0"', c.xml, count=1))),
        "a MatMul, has 0 inputs and 1 outputs",
    ),
    "a Parameter that is a ReLU": (
        lambda b: repacked(b, lambda c: replace(c, xml=re.sub(PARAMETER, RELU, c.xml, count=1))),
        "its layer 0, a ReLU, has 0 inputs and 1 outputs",
    ),
    "a layer in a layer": (
        in_xml('<data element_type="f32" shape="16"', '<layer id="9" name="x" type="ReLU" version="opset1" />'
               '<data element_type="f32" shape="16"'), "a Const, has an element 'layer'",
    ),
    "data in data": (in_xml('size="64" />', 'size="64"><data offset="9" /></data>'), "a Const has attributes"),
    "another element": (in_xml("<layers>", "<layers><plugin />"), "an operation ''"),
    "another attribute": (in_xml('version="11"', 'version="11" path="x"'), "where <net> should be"),
    "another version": (in_xml('version="11"', 'version="10"'), "its xml has version '10', not 11"),
    "another list": (in_xml("<rt_info />", "<rt_info /><meta_data />"), "has other elements in <net>"),
    "a list with attributes": (in_xml("<layers>", '<layers path="x">'), "or its lists have attributes"),
    "another id": (in_xml('id="1"', 'id="7"'), "its layer 1 is <layer"),
    "another port": (in_xml('<port id="0"', '<port id="3"'), "where port 0 should be"),
    "a port that names a file": (in_xml('<port id="0"', '<port path="x" id="0"'), "its port 0 has other attributes"),
    "a size of words": (in_xml("<dim>2</dim>", "<dim>two</dim>"), "or other elements than the sizes of dims"),
    "a list of ports with attributes": (in_xml("<input>", '<input path="x">'), "has attributes of a list of ports"),
    "a truth that is none": (in_xml('transpose_b="true"', 'transpose_b="1"'), "transpose_b of a MatMul is '1', beyond"),
    "a comment": (in_xml("<layers>", "<!-- --><layers>"), "a document type, a comment or an instruction"),
    "an instruction": (in_xml("<layers>", "<?x y?><layers>"), "a document type, a comment or an instruction"),
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


# ---- bodies ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def branches() -> bytes:
    """An If with two bodies, which read a value around them."""

    class Branches(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v * 2, (x,))

    program = edge_program(torch.export.export(Branches(), (torch.randn(3),)), openvino_partitioner())
    return OpenVinoLowering.preprocess(program, []).processed_bytes


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("then_body>", "loop_body>", "an If has no then_body, or no then_port_map"),
        ("<then_port_map>", '<then_port_map path="x">', "the port map of its then_body has attributes"),
        ("<then_body>", '<then_body path="x">', "where <then_body> should be"),
        ('external_port_id="1"', 'external_port_id="9"', "joins port 9 and layer 0, which do not belong together"),
        ('internal_layer_id="0"', 'internal_layer_id="1"', "and layer 1, which do not belong together"),
        ('<layer id="0" name="Parameter_', '<layer id="4" name="Parameter_', "its layer 0 is <layer"),
    ],
)
def test_bodies(branches: bytes, old: str, new: str, message: str) -> None:
    init(branches)
    text = bytes(unpack(branches).xml).decode()
    assert old in text
    with pytest.raises(DelegateInvalidCompatibility) as caught:
        init(repacked(branches, lambda blob: replace(blob, xml=text.replace(old, new).encode())))
    assert message in str(caught.value)


def test_bodies_that_nest_without_end() -> None:
    """Each would take some of the stack of whoever reads them."""
    port = '<port id="0" precision="BOOL" />'
    parameter = '<layer id="0" name="p" type="Parameter" version="opset1"><data shape="" element_type="boolean" />'
    edge = '<edge from-layer="0" from-port="0" to-layer="1" to-port="0" />'
    nothing = body = "<layers /><edges /><rt_info />"
    for _ in range(20):
        bodies = f"<then_port_map /><else_port_map /><then_body>{body}</then_body><else_body>{nothing}</else_body>"
        outputs = '<output><port id="1" precision="BOOL" /></output>'
        layer = f'<layer id="1" name="i" type="If" version="opset8"><input>{port}</input>{outputs}{bodies}</layer>'
        layers = f"<layers>{parameter}<output>{port}</output></layer>{layer}</layers>"
        body = f"{layers}<edges>{edge}</edges><rt_info />"
    with pytest.raises(DelegateInvalidCompatibility, match="its bodies nest too deep"):
        read_ir(f'<?xml version="1.0"?><net name="x" version="11">{body}</net>'.encode(), 0)


def test_lowering_refuses_what_loading_would() -> None:
    with pytest.raises(PreprocessError, match=r"graph would be refused when it is loaded: .* cannot be read"):
        _check_loading(b'<?xml version="1.0"?><net', 0)


def test_what_an_engine_gets_is_written_by_us(good: bytes) -> None:
    blob = unpack(good)
    written = written_ir(read_ir(blob.xml, len(blob.bin)))
    assert written_ir(read_ir(written, len(blob.bin))) == written
    assert b"<dim>" in bytes(blob.xml) and b"<dim>" not in written
