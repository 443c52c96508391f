"""Blobs that lowering does not write: each ends in an error that says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from delegraph.aot import to_edge
from delegraph.errors import DelegateInvalidCompatibility, Internal
from delegraph.interfaces import BackendInitContext, BlobTensor
from delegraph_cpu.blob import Blob, pack
from delegraph_mnn.aot.lowering import MnnLowering
from delegraph_mnn.blob import FORMAT, unpack
from delegraph_mnn.engine import ConversionFailed, converted
from delegraph_mnn.runtime.backend import MnnBackend
from delegraph_mnn.runtime.float_weights import with_float_weights

FLOAT = TensorProto.FLOAT


def blob_of(model: nn.Module, *args: torch.Tensor) -> Blob:
    program = to_edge(torch.export.export(model.eval(), args)).exported_program()
    return unpack(MnnLowering.preprocess(program, []).processed_bytes)


def opened(blob: Blob) -> Any:
    return MnnBackend().init(BackendInitContext("forward"), pack(blob, [], FORMAT), [])


def test_an_operator_that_its_converter_has_not() -> None:
    blob = blob_of(nn.ReLU(), torch.randn(4))
    other = replace(blob, graph=bytes(blob.graph).replace(b"\x22\x04Relu", b"\x22\x04Mish", 1))  # the field `op_type`
    with pytest.raises(DelegateInvalidCompatibility, match=r"MNN .* refuses a graph that was lowered with MNN .*Mish"):
        opened(other)


def test_sizes_that_its_graph_has_not() -> None:
    blob = blob_of(nn.ReLU(), torch.randn(4))
    handle = opened(replace(blob, outputs=(BlobTensor("output_0", "float32", (5,)),)))
    args = (np.zeros(4, np.float32), np.zeros(5, np.float32))
    context: Any = None
    with pytest.raises(
        Internal, match=r"MNN gives 'output_0' of a delegate of MnnBackend the sizes \(4,\), not \(5,\)"
    ):
        MnnBackend().execute(context, handle, args)


def test_what_its_converter_does_not_read(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(ConversionFailed):
        converted(tmp_path / "model.onnx", tmp_path / "model.mnn")


CODES = np.arange(-3, 3, dtype=np.int8).reshape(2, 3)


def dequantizing(scale: Any, codes: Any = CODES, **attributes: int) -> bytes:
    node = helper.make_node("DequantizeLinear", ["w", "s"], ["f"], **attributes)
    weights = [
        helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True)
        for name, kind, array in (("w", helper.np_dtype_to_tensor_dtype(codes.dtype), codes), ("s", FLOAT, scale))
    ]
    value = helper.make_tensor_value_info
    nodes = [node, helper.make_node("Add", ["x", "f"], ["y"])]
    graph = helper.make_graph(nodes, "g", [value("x", FLOAT, [2, 3])], [value("y", FLOAT, [2, 3])], weights)
    opsets = [helper.make_opsetid("", 20)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return content


def test_weights_are_dequantized_by_channel() -> None:
    graph, weights = with_float_weights(dequantizing(np.array([2, 10], np.float32), axis=0), {})
    assert list(weights) == ["f"]
    np.testing.assert_array_equal(weights["f"], [[-6, -4, -2], [0, 10, 20]])
    assert [node.op_type for node in onnx.load_from_string(graph).graph.node] == ["Add"]


@pytest.mark.parametrize(
    ("graph", "told"),
    [
        (dequantizing(np.ones(3, np.float32), axis=0), r"a weight of \(2, 3\) has scales of \(3,\) along 0"),
        (dequantizing(np.ones(2, np.float32), axis=5), "along 5"),
        (dequantizing(np.ones((2, 3), np.float32), axis=0, block_size=1), "something else than a weight of 8 bits"),
        (dequantizing(np.ones((), np.float32), CODES.astype(np.int32)), "something else than a weight of 8 bits"),
    ],
    ids=["other scales", "no axis", "blocks", "no bytes"],
)
def test_what_is_no_weight_of_8_bits(graph: bytes, told: str) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match=told):
        with_float_weights(graph, {})
