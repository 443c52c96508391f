"""The limits of what a blob may say: the last that is admitted, and the first that is not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import onnx
import pytest
from backends.cpu.tests.test_hostile import X, Y, graph, model, value
from backends.cpu.tests.test_strict_graphs import field, varint
from onnx import TensorProto, helper

from delegraph.errors import DelegateInvalidCompatibility
from delegraph_cpu.blob import Blob, StateInfo, Weight, pack, unpack
from delegraph_cpu.graphs.attributes import allowed_integers
from delegraph_cpu.graphs.checks import checked_graph, operator_of
from delegraph_cpu.graphs.wire import decoded


def expect(admitted: bool) -> Any:
    return nullcontext() if admitted else pytest.raises(DelegateInvalidCompatibility)


# ---- bytes ----------------------------------------------------------------------------------------------------------


def nested(levels: int) -> bytes:
    """A model with so many messages in one another: a graph, a node, its attribute, its body, a node, …"""
    data = b""
    for level in reversed(range(levels)):
        data = field((7, 1, 5, 6)[level if level == 0 else 1 + (level - 1) % 3], data)
    return data


@pytest.mark.parametrize(("levels", "admitted"), [(99, True), (100, False)])
def test_messages_in_messages(levels: int, admitted: bool) -> None:
    with expect(admitted):
        decoded(nested(levels))


DIMS, DATA_TYPE = varint(1 << 3), varint(2 << 3)


@pytest.mark.parametrize(
    ("key", "number", "admitted"),
    [
        (DIMS, 2**64 - 1, True),
        (DIMS, 2**64, False),
        (DATA_TYPE, 2**31 - 1, True),
        (DATA_TYPE, 2**31, False),
    ],
)
def test_numbers(key: bytes, number: int, admitted: bool) -> None:
    with expect(admitted):
        assert decoded(key + varint(number), "TensorProto") in ({"dims": [-1]}, {"data_type": number})


# ---- what a graph says ----------------------------------------------------------------------------------------------


def versions(ir: int = 10, onnx_opset: int = 23, others: int = 1) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", onnx_opset), helper.make_opsetid("com.microsoft", others)]
    return helper.make_model(graph([]), opset_imports=opsets, ir_version=ir)


def tensor(*dims: int) -> onnx.ModelProto:
    return model(graph([], TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=bytes(4))))


def border(*dims: int) -> onnx.ModelProto:
    made = model(graph([]))
    made.graph.input[0].CopyFrom(value("x", shape=dims))
    return made


@pytest.mark.parametrize(
    ("made", "admitted"),
    [
        *((versions(ir=ir), ir in (8, 12)) for ir in (7, 8, 12, 13)),
        *((versions(onnx_opset=opset), opset in (20, 23)) for opset in (19, 20, 23, 24)),
        *((versions(others=opset), opset in (1, 5)) for opset in (0, 1, 5, 6)),
        *((make(*[1] * rank), rank == 64) for make in (tensor, border) for rank in (64, 65)),
        (border(2**59 - 1, 0), True),
        (border(2**59, 0), False),
        (border(-1), False),
    ],
)
def test_graphs(made: onnx.ModelProto, admitted: bool) -> None:
    with expect(admitted):
        checked_graph(made.SerializeToString(), operator_of)


@pytest.mark.parametrize(
    ("operator", "attribute", "least", "most"),
    [
        ("MaxPool", "kernel_shape", 1, 2**31 - 1),
        ("Shape", "end", -(2**31) + 1, 2**31 - 1),
        ("Pad", "pads", -(2**31) + 1, 2**31 - 1),
        ("GroupQueryAttention", "local_window_size", -1, 2**31 - 1),
        ("RotaryEmbedding", "num_heads", 0, 2**31 - 1),
        ("MatMulNBits", "block_size", 16, 2**31 - 1),
        ("Softmax", "axis", -64, 64),
        ("Transpose", "perm", 0, 64),
        ("MatMulNBits", "bits", 2, 8),
        ("Cast", "to", 1, 16),
        ("Softmax", "stash_type", 0, 16),
        ("Gemm", "transA", 0, 1),
    ],
)
def test_attributes(operator: str, attribute: str, least: int, most: int) -> None:
    allowed = allowed_integers(operator, attribute)
    assert [number in allowed for number in (least - 1, least, most, most + 1)] == [False, True, True, False]


# ---- what a blob says -----------------------------------------------------------------------------------------------


def with_weight(blob: Blob, shape: tuple[int, ...]) -> Blob:
    return replace(blob, weights=(Weight("w", "uint8", shape, 0),))


def with_state(blob: Blob, shape: tuple[int, ...]) -> Blob:
    return replace(blob, states=(StateInfo("b", "s", "t", "uint8", shape, in_place=False),))


@pytest.mark.parametrize("change", [with_weight, with_state])
@pytest.mark.parametrize(
    ("shape", "admitted"),
    [((0,) * 32, True), ((0,) * 33, False), ((0, 2**59 - 1), True), ((0, 2**59), False)],
)
def test_shapes(change: Callable[[Blob, tuple[int, ...]], Blob], shape: tuple[int, ...], admitted: bool) -> None:
    blob = change(Blob("1.0", (X,), (Y,), (), b""), shape)
    with expect(admitted):
        unpack(pack(blob, [b""] * len(blob.weights)))
