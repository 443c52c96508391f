"""Blobs that were made to harm: their graphs name files, lie about their borders, or never end."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from backends.cpu.tests.harness import Context
from onnx import TensorProto, helper, numpy_helper

from delegraph.errors import DelegateInvalidCompatibility, Internal
from delegraph.interfaces import BackendInitContext, BlobTensor
from delegraph_cpu.blob import Blob, UnpackedWeight, Weight, pack
from delegraph_cpu.runtime.backend import CpuBackend
from delegraph_cpu.runtime.unpacking import unpacked_weights

X, Y = BlobTensor("x", "float32", (2,)), BlobTensor("y", "float32", (2,))
ONES = np.ones(2, np.float32)


def value(name: str, kind: int = TensorProto.FLOAT, shape: Sequence[int] = (2,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def graph(nodes: Sequence[onnx.NodeProto], *initializers: onnx.TensorProto, **fields: Any) -> onnx.GraphProto:
    return helper.make_graph(nodes, "g", [value("x")], [value("y")], initializers, **fields)


def model(content: onnx.GraphProto, **fields: Any) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(content, opset_imports=opsets, ir_version=10, **fields)


def blob(content: onnx.ModelProto | bytes, *, weights: dict[str, Any] | None = None, **fields: Any) -> bytes:
    arrays = weights or {}
    records = tuple(Weight(name, str(array.dtype), array.shape, array.nbytes) for name, array in arrays.items())
    data = content if isinstance(content, bytes) else content.SerializeToString()
    parts = {"inputs": (X,), "outputs": (Y,), **fields}
    return pack(Blob("1.0", weights=records, graph=data, **parts), [array.tobytes() for array in arrays.values()])


def load(packed: bytes) -> Any:
    return CpuBackend().init(BackendInitContext("forward"), packed, [])


def run(packed: bytes) -> Any:
    out = np.zeros(2, np.float32)
    CpuBackend().execute(Context(), load(packed), [ONES, out])
    return out.tolist()


def in_file(path: object, name: str = "w") -> onnx.TensorProto:
    """A tensor of two numbers that are in a file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, text in (("location", str(path)), ("offset", "0"), ("length", "8")):
        tensor.external_data.add(key=key, value=text)
    return tensor


ADD = helper.make_node("Add", ["x", "w"], ["y"])


def constant(tensor: onnx.TensorProto) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [tensor.name], value=tensor)


def filled(tensor: onnx.TensorProto) -> onnx.NodeProto:
    return helper.make_node("ConstantOfShape", ["x"], ["w"], value=tensor)


def branch(tensor: onnx.TensorProto) -> onnx.GraphProto:
    return helper.make_graph([helper.make_node("Add", ["x", "w"], ["z"])], "b", [], [value("z")], [tensor])


def in_subgraph(tensor: onnx.TensorProto) -> onnx.ModelProto:
    condition = numpy_helper.from_array(np.array(True), "c")
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch(tensor), else_branch=branch(tensor))
    return model(graph([node], condition))


def in_function(tensor: onnx.TensorProto) -> onnx.ModelProto:
    body = [constant(tensor), ADD]
    function = helper.make_function("f", "F", ["x"], ["y"], body, [helper.make_opsetid("", 23)])
    return model(graph([helper.make_node("F", ["x"], ["y"], domain="f")]), functions=[function])


def in_sparse(tensor: onnx.TensorProto) -> onnx.ModelProto:
    indices = numpy_helper.from_array(np.array([0, 1]), "i")
    sparse = onnx.SparseTensorProto(values=tensor, indices=indices, dims=[2])
    return model(graph([ADD], sparse_initializer=[sparse]))


def in_training(tensor: onnx.TensorProto) -> onnx.ModelProto:
    made = model(graph([helper.make_node("Neg", ["x"], ["y"])]))
    made.training_info.add().algorithm.CopyFrom(branch(tensor))
    return made


REFERS = "tensor 'w' refers to a file, and is not one of its weights"
PLACES = {
    "initializer": (lambda tensor: model(graph([ADD], tensor)), REFERS),
    "attribute": (lambda tensor: model(graph([filled(tensor), ADD])), REFERS),
    "constant": (lambda tensor: model(graph([constant(tensor), ADD])), "an operator 'Constant' of ''"),
    "subgraph": (in_subgraph, REFERS),
    "function": (in_function, "a ModelProto has a field 25 of wire type 2 that is not known"),
    "sparse": (in_sparse, "a GraphProto has a field 15 of wire type 2 that is not known"),
    "training": (in_training, "a ModelProto has a field 20 of wire type 2 that is not known"),
}
"""Where a graph may have a tensor, and why it is refused there."""


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "secret").write_bytes(np.float32([41, 42]).tobytes())
    monkeypatch.chdir(tmp_path)
    return "secret"


@pytest.mark.parametrize("place", PLACES)
def test_a_graph_names_no_file(secret: str, place: str) -> None:
    make, why = PLACES[place]
    with pytest.raises(DelegateInvalidCompatibility, match=why):
        load(blob(make(in_file(secret))))


@pytest.mark.parametrize("place", [place for place in PLACES if place != "initializer"])
def test_nor_under_the_name_of_a_weight(secret: str, place: str) -> None:
    make, why = PLACES[place]
    with pytest.raises(DelegateInvalidCompatibility, match=why):
        load(blob(make(in_file(secret)), weights={"w": ONES}))


def test_nor_twice(secret: str) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match="tensor 'w' refers to a file"):
        load(blob(model(graph([ADD], in_file(secret), in_file(secret))), weights={"w": ONES}))


def test_nor_an_address(secret: str) -> None:
    tensor = in_file("*/_ORT_MEM_ADDR_/*")
    with pytest.raises(DelegateInvalidCompatibility, match="tensor 'w' refers to a file"):
        load(blob(model(graph([ADD], tensor))))


def test_nor_the_context_of_an_engine(secret: str) -> None:
    node = helper.make_node("EPContext", ["x"], ["y"], domain="com.microsoft", ep_cache_context=secret)
    with pytest.raises(DelegateInvalidCompatibility, match=r"an operator 'EPContext' of 'com.microsoft'"):
        load(blob(model(graph([node]))))


def test_its_own_weights_may_be_left_out(secret: str) -> None:
    assert run(blob(model(graph([ADD], in_file(secret))), weights={"w": ONES * 3})) == [4, 4]


def test_another_format_of_graphs_is_not_read() -> None:
    with pytest.raises(DelegateInvalidCompatibility, match="its graph is not a protobuf"):
        load(blob(b"\x18\0\0\0ORTM" + bytes(64)))


@pytest.mark.parametrize(
    "damage", [b"\x0b", b"\x3a\x7f", b"\x3a" + b"\xff" * 10, b"\x09\0", b"\x00\x00", b"\x3a\x80"], ids=bytes.hex
)
def test_bytes_that_are_no_graph(damage: bytes) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match="its graph is not a protobuf"):
        load(blob(damage))


def test_borders_are_those_of_the_header() -> None:
    negative = model(graph([helper.make_node("Neg", ["x"], ["y"])]))
    assert run(blob(negative)) == [-1, -1]
    for fields in (
        {"inputs": ()},
        {"outputs": (BlobTensor("z", "float32", (2,)),)},
        {"outputs": (BlobTensor("y", "int32", (2,)),)},
        {"inputs": (X, BlobTensor("n", "int64", (), scalar=True))},
    ):
        with pytest.raises(DelegateInvalidCompatibility, match="other inputs or outputs than its header says"):
            load(blob(negative, **fields))


def test_an_output_that_is_an_input() -> None:
    same = model(helper.make_graph([], "g", [value("x")], [value("x")]))
    with pytest.raises(DelegateInvalidCompatibility, match="an output is listed twice, or is an input"):
        load(blob(same, outputs=(X,)))


def test_outputs_that_are_not_as_large_as_the_graph_makes_them() -> None:
    grown = model(graph([helper.make_node("Concat", ["x", "x"], ["y"], axis=0)]))
    grown.graph.output[0].CopyFrom(value("y", shape=["n"]))
    memory = np.zeros(8, np.float32)
    with pytest.raises(Internal, match="onnxruntime failed"):
        CpuBackend().execute(Context(), load(blob(grown)), [ONES, memory[:2]])
    assert not memory.any()


def test_a_loop_that_never_ends_is_stopped() -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Neg", ["v"], ["v2"])],
        "body",
        [value("i", TensorProto.INT64, ()), value("c", TensorProto.BOOL, ()), value("v")],
        [value("c2", TensorProto.BOOL, ()), value("v2")],
    )
    count, condition = numpy_helper.from_array(np.array(2**62), "n"), numpy_helper.from_array(np.array(True), "t")
    loop = helper.make_node("Loop", ["n", "t", "x"], ["y"], body=body)
    backend, handle = CpuBackend(), load(blob(model(graph([loop], count, condition))))

    def stop() -> None:
        time.sleep(0.05)
        backend.cancel(handle, True)

    out = np.zeros(2, np.float32)
    for _ in range(2):
        thread = threading.Thread(target=stop)
        thread.start()
        with pytest.raises(Internal, match="terminate flag"):
            backend.execute(Context(), handle, [ONES, out])
        thread.join()
        backend.cancel(handle, False)


CODES = {
    "p": np.zeros((2, 4), np.uint8),
    "s": np.ones((2, 2), np.float32),
    "r": np.ones(2, np.float32),
    "z": np.zeros((2, 2), np.uint8),
}
UNPACKED = UnpackedWeight("w", "p", "s", "r", "z")


def test_a_weight_that_is_unpacked() -> None:
    """Into twice the bytes that lie in the blob: nothing in a header says how large it is."""
    taken = unpacked_weights([UNPACKED], CODES | {"other": ONES}, 8)
    assert {name: array.shape for name, array in taken.items()} == {"w": (2, 8), "other": (2,)}


@pytest.mark.parametrize(
    "lie",
    [
        {"p": np.zeros((2, 4), np.int8)},
        {"p": np.zeros(8, np.uint8)},
        {"p": np.zeros((3, 4), np.uint8)},
        {"s": np.ones((2, 3), np.float32)},
        {"s": np.ones((2, 0), np.float32)},
        {"s": np.ones((2, 2), np.float64)},
        {"r": np.ones(3, np.float32)},
        {"r": np.ones((2, 2), np.float32)},
        {"z": np.zeros((1, 2), np.uint8)},
    ],
)
def test_a_weight_that_is_unpacked_from_what_does_not_belong_together(lie: dict[str, Any]) -> None:
    packed = blob(b"", weights=CODES | lie, unpacked=(UNPACKED,))
    with pytest.raises(DelegateInvalidCompatibility, match="weight 'w' cannot be made of what the header names"):
        load(packed)


def test_weights_that_are_unpacked_from_more_bytes_than_there_are() -> None:
    """Parts that overlap: each would take memory of its own, and a blob could name a thousand."""
    beside = UnpackedWeight("v", "beside", "s", "r", "z")
    with pytest.raises(DelegateInvalidCompatibility, match=r"weights cannot be made .*: they share bytes that differ"):
        unpacked_weights([UNPACKED, beside], CODES | {"beside": CODES["p"].copy()}, 8)


def test_a_weight_that_is_unpacked_from_nothing() -> None:
    with pytest.raises(DelegateInvalidCompatibility, match="cannot be made"):
        load(blob(b"", unpacked=(UNPACKED,)))


def test_a_weight_that_is_unpacked_twice() -> None:
    with pytest.raises(DelegateInvalidCompatibility, match="listed twice"):
        load(blob(b"", weights=CODES, unpacked=(UNPACKED, UNPACKED)))


def test_scales_that_are_no_numbers() -> None:
    """They make weights that mean nothing, and no warning."""
    lie = {"s": np.array([[np.nan, np.inf], [0, -1]], np.float32), "r": np.zeros(2, np.float32)}
    assert unpacked_weights([UNPACKED], CODES | lie, 8)["w"].dtype == np.int8


def test_weights_that_are_unpacked_from_the_same_bytes_are_one() -> None:
    again = replace(UNPACKED, name="v")
    taken = unpacked_weights([UNPACKED, again], CODES, 8)
    assert taken["v"] is taken["w"]


def test_a_thousand_weights_of_the_same_bytes() -> None:
    """Each with scales of its own: a small file would take much memory."""
    scales = {f"s{i}": np.ones((2, 2), np.float32) for i in range(1000)}
    weights = [replace(UNPACKED, name=f"w{i}", scale=f"s{i}") for i in range(1000)]
    with pytest.raises(DelegateInvalidCompatibility, match="share bytes"):
        unpacked_weights(weights, CODES | scales, 5000)
