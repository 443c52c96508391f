"""Graphs in forms that lowering does not write: bytes that parsers read in two ways, and values that end an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from backends.cpu.tests.test_hostile import ADD, ONES, blob, constant, graph, in_file, load, model, run, value
from onnx import TensorProto, helper, numpy_helper

from delegraph.errors import DelegateInvalidCompatibility, PreprocessError
from delegraph_cpu.aot import preprocess
from delegraph_cpu.graphs import checks
from delegraph_cpu.graphs.rewriting import rewritten
from delegraph_cpu.graphs.wire import decoded, encoded

WEIGHT = numpy_helper.from_array(ONES, "w")
SOUND = model(graph([ADD], WEIGHT)).SerializeToString()


def varint(number: int, *, behind: int = 0) -> bytes:
    """A number as protobuf writes it, with zeros `behind` it that no parser minds."""
    groups = [number >> shift & 0x7F for shift in range(0, max(1, number.bit_length()), 7)] + [0] * behind
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def field(number: int, content: bytes, key: bytes = b"") -> bytes:
    return (key or varint(number << 3 | 2)) + varint(len(content)) + content


def test_what_an_engine_gets_is_what_was_checked() -> None:
    assert rewritten(SOUND, {}) == SOUND
    assert run(blob(SOUND)) == [2, 2]


# ---- bytes ----------------------------------------------------------------------------------------------------------

FILE = field(1, b"location") + field(2, b"secret")
TENSOR = varint(1 << 3) + b"\x02" + varint(2 << 3) + b"\x01" + field(8, b"w")
"""A tensor of two floats, w, without its data."""


def in_model(tensor: bytes) -> bytes:
    """A model with this initializer among others' fields."""
    main = model(graph([ADD])).graph
    nodes = b"".join(field(1, node.SerializeToString()) for node in main.node)
    values = field(11, main.input[0].SerializeToString()) + field(12, main.output[0].SerializeToString())
    opset = field(8, varint(2 << 3) + varint(20))
    return varint(1 << 3) + b"\x0a" + field(7, nodes + field(2, b"g") + field(5, tensor) + values) + opset


def test_the_tests_model_is_sound() -> None:
    assert run(blob(in_model(TENSOR + field(9, ONES.tobytes())))) == [2, 2]


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (TENSOR + field(13, FILE, bytes.fromhex("ea80808010")), "field 536870925 of wire type 2 that is not known"),
        (TENSOR + field(13, FILE, varint(13 << 3 | 2, behind=1)), "more bytes than it needs"),
        (TENSOR + field(9, ONES.tobytes()) + field(9, ONES.tobytes()), "has its raw_data twice"),
        (field(9, ONES.tobytes()) + TENSOR, "a field 1 of wire type 0 behind one with a higher number"),
        (TENSOR + field(4, ONES.tobytes()), "field 4 of wire type 2 that is not known"),
        (field(1, b"\x02") + TENSOR[2:], "field 1 of wire type 2 that is not known"),
        (TENSOR + b"\x73\x74", "field 14 of wire type 3 that is not known"),
        (TENSOR[:-3] + field(8, b"\xff") + field(9, ONES.tobytes()), "a text is not UTF-8"),
        (TENSOR + varint(9 << 3 | 2) + b"\x7f" + ONES.tobytes(), "a field that reaches beyond its end"),
        (b"\x08\x02\x10" + varint(2**32 + 1) + field(8, b"w") + field(9, ONES.tobytes()), "is beyond 31 bits"),
        (b"\x08" + b"\xff" * 10 + b"\x01" + TENSOR[2:], "than 64 bits take"),
    ],
    ids=[
        "a key that 32 bits cut", "a key with zeros behind", "twice", "another order", "another field", "packed",
        "a group", "not UTF-8", "beyond its end", "a number that 32 bits cut", "a number of 77 bits",
    ],
)  # fmt: skip
def test_bytes_that_parsers_read_in_two_ways(tensor: bytes, why: str) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match=why):
        load(blob(in_model(tensor), weights={"w": ONES}))


def test_messages_that_nest_without_end() -> None:
    inner = b""
    for _ in range(40):
        attribute = field(1, b"else_branch") + field(6, inner) + varint(20 << 3) + b"\x05"
        inner = field(1, field(4, b"If") + field(5, attribute))
    with pytest.raises(DelegateInvalidCompatibility, match="its messages nest too deep"):
        load(blob(field(7, inner)))


def test_a_model_that_is_cut() -> None:
    with pytest.raises(DelegateInvalidCompatibility, match="it is cut short"):
        load(blob(b"\x08"))


def test_pieces_come_in_the_order_of_their_fields() -> None:
    message = decoded(SOUND)
    assert b"".join(encoded(message)) == SOUND
    assert decoded(b"".join(encoded(message))) == message


# ---- what a graph says -----------------------------------------------------------------------------------------------


def attention(**attributes: int) -> onnx.ModelProto:
    """Three inputs of (1, 2, 4), one output."""
    node = helper.make_node("Attention", ["x", "x", "x"], ["y"], **{"q_num_heads": 2, "kv_num_heads": 2, **attributes})
    shaped = [value("x", shape=(1, 2, 4))], [value("y", shape=(1, 2, 4))]
    return model(helper.make_graph([node], "g", *shaped))


def with_node(name: str, inputs: int = 1, outputs: int = 1, domain: str = "", **attributes: Any) -> onnx.ModelProto:
    names = ["y", "z"][:outputs]
    return model(graph([helper.make_node(name, ["x"] * inputs, names, domain=domain, **attributes)], WEIGHT))


def changed(change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    made = onnx.ModelProto.FromString(SOUND)
    change(made)
    return made


def double(made: onnx.ModelProto) -> None:
    node = made.graph.node[0]
    node.op_type, node.domain = "Concat", ""
    node.attribute.extend([helper.make_attribute("axis", 0)] * 2)


WRONG_TYPE = helper.make_attribute("axis", 1.0)
CASES = {
    "no heads": (attention(q_num_heads=0), "attribute 'q_num_heads' of a node Attention is .0., beyond what"),
    "heads of keys": (attention(kv_num_heads=0), "attribute 'kv_num_heads' of a node Attention"),
    "heads below zero": (attention(kv_num_heads=-1), "attribute 'kv_num_heads' of a node Attention"),
    "heads that do not divide": (attention(q_num_heads=4, kv_num_heads=3), "is 4, no multiple of kv_num_heads"),
    "an operator": (with_node("Optional"), "an operator 'Optional' of ''"),
    "a domain": (with_node("Neg", domain="com.microsoft"), "an operator 'Neg' of 'com.microsoft'"),
    "no inputs": (with_node("MaxPool", 0, kernel_shape=[1]), "a node MaxPool has 0 inputs and 1 outputs"),
    "too many inputs": (with_node("Neg", 2), "a node Neg has 2 inputs and 1 outputs"),
    "too many outputs": (with_node("Neg", 1, 2), "a node Neg has 1 inputs and 2 outputs"),
    "an attribute": (with_node("Neg", plugin="x.so"), "a node Neg has an attribute 'plugin'"),
    "a type": (with_node("Concat", axis=1.0), "attribute 'axis' of a node Concat is not of type int"),
    "a text": (with_node("DepthToSpace", blocksize=1, mode="./x"), r"attribute 'mode' .* is \['./x'\]"),
    "a stride": (with_node("MaxPool", kernel_shape=[1], strides=[0]), r"attribute 'strides' .* is \[0\]"),
    "one that is missing": (with_node("Concat", 2), "a node Concat has an attribute twice, or lacks one of axis"),
    "one that is there twice": (changed(double), "a node Concat has an attribute twice, or lacks one of axis"),
    "an opset": (changed(lambda m: m.opset_import.add(domain="", version=12)), "imports version 12 of the"),
    "an extension": (changed(lambda m: m.opset_import.add(domain="x", version=1)), "version 1 of the operators 'x'"),
    "a format": (changed(lambda m: setattr(m, "ir_version", 99)), "its graph has version 99 of ONNX's format"),
    "no graph": (changed(lambda m: m.ClearField("graph")), "has version 10 of ONNX's format, or is missing"),
    "a tensor's type": (changed(lambda m: setattr(m.graph.initializer[0], "data_type", 8)), "has element type 8"),
    "a tensor's size": (changed(lambda m: m.graph.initializer[0].dims.append(-1)), r"or dims \[2, -1\]"),
    "a tensor's data": (changed(lambda m: m.graph.initializer[0].dims.append(2)), "has other data than its type and"),
    "a sequence": (
        changed(lambda m: m.graph.input[0].type.sequence_type.elem_type.tensor_type.SetInParent()),
        "a TypeProto has a field 4 of wire type 2 that is not known",
    ),
    "a value's type": (
        changed(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", TensorProto.STRING)),
        "value 'x' is no tensor of a type and sizes",
    ),
    "a value's size": (
        changed(lambda m: m.graph.input[0].type.tensor_type.shape.dim.add(dim_value=-1)), "value 'x' is no tensor",
    ),
    "a constant": (model(graph([constant(WEIGHT), ADD])), "an operator 'Constant' of ''"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_lowering_does_not_write(case: str) -> None:
    content, why = CASES[case]
    with pytest.raises(DelegateInvalidCompatibility, match=why):
        load(blob(content))


def test_a_weight_of_another_shape_or_dtype() -> None:
    for array in (np.ones(3, np.float32), np.ones(2, np.float64)):
        with pytest.raises(
            DelegateInvalidCompatibility, match=r"weight 'w' is \w+ \(\d,\), and not what its graph reads"
        ):
            load(blob(model(graph([ADD], in_file("weights"))), weights={"w": array}))


def test_how_a_graph_refers_to_a_weight_is_written_anew() -> None:
    content = model(graph([ADD], in_file("/etc/passwd"))).SerializeToString()
    assert b"/etc/passwd" not in rewritten(content, {"w": ("float32", (2,))})


def test_lowering_refuses_what_loading_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "operator", lambda domain, name: None)
    with pytest.raises(PreprocessError, match=r"the converted graph would be refused when it is loaded: .*'Add'"):
        preprocess._as_loaded(SOUND)
