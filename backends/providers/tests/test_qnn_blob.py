"""Blobs, the ONNX model that they become at load, options, and what is said where the provider is not installed."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

import delegraph
from delegraph.errors import DelegateInvalidCompatibility, InvalidArgument, PluginUnavailable
from delegraph.interfaces import BlobTensor, CompileSpec
from delegraph.runtime import EventTracer
from delegraph_providers.blob import DTYPES, Blob, CompiledNode, pack, unpack
from delegraph_providers.context_model import context_model
from delegraph_providers.options import QnnOptions
from delegraph_providers.providers import QNN
from delegraph_providers.runtime.binary_backend import QnnBackend
from delegraph_providers.runtime.qnn_profile import QnnProfile, log_nodes

BLOB = Blob(
    "onnxruntime_qnn 2.7.0, onnxruntime 1.31.1",
    "v2.51.0",
    (BlobTensor("x", "float32", (1, 300)), BlobTensor("n", "int64", (), scalar=True), BlobTensor("y", "uint8", (2,))),
    (BlobTensor("a", "float32", (1, 2, 3)), BlobTensor("b", "bool", ())),
    ("y", "x"),
    ("b", "a"),
    bytes(range(256)) * 3,
    (CompiledNode("Gemm_0_0", "Gemm", ("x",)), CompiledNode("a", "Relu", ("Gemm_0_0",))),
)


def test_a_blob_comes_back() -> None:
    read = unpack(pack(BLOB, QNN), QNN)
    assert replace(read, binary=bytes(read.binary)) == BLOB


def test_the_nodes_are_described_of_which_the_binary_was_made() -> None:
    told = QnnBackend().describe(pack(BLOB, QNN), [], {})
    assert [(node.name, node.operator, node.inputs, node.debug_id) for node in told.nodes] == [
        ("Gemm_0_0", "Gemm", ("x",), "Gemm_0_0"),
        ("a", "Relu", ("Gemm_0_0",), "a"),
    ]
    older = QnnBackend().describe(pack(replace(BLOB, nodes=()), QNN), [], {})
    assert [(node.name, node.operator) for node in older.nodes] == [("binary", "EPContext")]


PROFILE = """\
0,INIT,7159,US,BACKEND,ROOT,QNN (load binary) time
0,BACKEND,4000,CYCLES,BACKEND,ROOT,Accelerator (execute) time (cycles)
0,NODE,500,CYCLES,BACKEND,SUB-EVENT,Input OpId_2 (cycles)
0,NODE,1500,CYCLES,BACKEND,SUB-EVENT,Gemm_0_0:OpId_31 (cycles)
0,NODE,many,CYCLES,BACKEND,SUB-EVENT,damaged:OpId_32 (cycles)
0,NODE,2000,CYCLES,BACKEND,SUB-EVENT,a:OpId_33 (cycles)
0,BACKEND,8,US,BACKEND,ROOT,Accelerator (execute) time
"""


def test_the_profile_of_a_run() -> None:
    tracer = EventTracer()
    tracer.create_event_block("Method::execute")
    log_nodes(PROFILE.splitlines(), tracer, 100)
    assert [
        (event.delegate_debug_id, event.start, event.end, event.metadata) for event in tracer.blocks[-1].profile_events
    ] == [
        ("Input", 100, 1100, b'{"cycles": 500}'),
        ("Gemm_0_0", 1100, 4100, b'{"cycles": 1500}'),
        ("a", 4100, 8100, b'{"cycles": 2000}'),
    ]


def test_lines_are_read_once() -> None:
    profile = QnnProfile()
    assert profile.new_lines() == []
    path = Path(profile.options["profiling_file_path"])
    path.write_text("heading\n", "utf-8")
    assert profile.new_lines() == ["heading"]
    with path.open("a", encoding="utf-8") as file:
        file.write(PROFILE)
    assert profile.new_lines() == PROFILE.splitlines() and profile.new_lines() == []


@pytest.mark.parametrize(
    "changed",
    [
        {"inputs": (BlobTensor("x", "float64", (1,)), *BLOB.inputs[1:])},
        {"inputs": (BlobTensor("x", "float32", ("batch",)), *BLOB.inputs[1:])},
        {"read": ("x", "z")},
        {"written": ("a",)},
        {"written": ("a", "a")},
    ],
    ids=str,
)
def test_a_header_that_lowering_does_not_write_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match="its header cannot be read"):
        unpack(pack(replace(BLOB, **changed), QNN), QNN)


def test_a_changed_binary_is_found() -> None:
    data = bytearray(pack(BLOB, QNN))
    data[-10] ^= 1
    with pytest.raises(DelegateInvalidCompatibility, match=QNN.backend_id):
        unpack(bytes(data), QNN)


def test_the_model_holds_the_binary_in_one_node() -> None:
    model = onnx.load_from_string(context_model(BLOB, "SomeProvider"))
    onnx.checker.check_model(model, full_check=False)
    (node,) = model.graph.node
    settings = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    assert (node.op_type, node.domain, [*node.input], [*node.output]) == (
        "EPContext",
        "com.microsoft",
        ["y", "x"],
        ["b", "a"],
    )
    assert settings == {
        "main_context": 1,
        "embed_mode": 1,
        "ep_cache_context": BLOB.binary,
        "ep_sdk_version": b"v2.51.0",
        "partition_name": b"delegate",
        "source": b"SomeProvider",
    }
    tensors = {tensor.name: tensor for tensor in (*BLOB.inputs, *BLOB.outputs)}
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type.tensor_type
        assert kind.elem_type == DTYPES[tensors[value.name].dtype]
        assert tuple(dim.dim_value for dim in kind.shape.dim) == tensors[value.name].shape


def test_the_numbers_of_dtypes_are_those_of_onnx() -> None:
    for name, number in DTYPES.items():
        assert onnx.helper.tensor_dtype_to_np_dtype(number).name == name


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"soc_model": -1}, "soc_model is -1"),
        ({"htp_arch": "75"}, "htp_arch is '75'"),
        ({"precision": "f64"}, "precision is 'f64'; it may be f16 or f32"),
        ({"vtcm_mb": True}, "vtcm_mb is True"),
        ({"performance_mode": "fast"}, "performance_mode is 'fast'; it may be default, burst"),
    ],
)
def test_an_option_has_the_values_that_it_has(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        QnnOptions(**options)


def test_options_come_back_from_compile_specs() -> None:
    options = QnnOptions(43, 73, "f32", 8, "burst")
    specs = [*options.compile_specs(), CompileSpec("of somebody else", b"1")]
    assert QnnOptions.of_compile_specs(specs) == options
    assert options.of_provider() == {
        "soc_model": "43",
        "htp_arch": "73",
        "enable_htp_fp16_precision": "0",
        "offload_graph_io_quantization": "0",
        "vtcm_mb": "8",
        "htp_performance_mode": "burst",
    }


def test_without_the_provider_what_to_install_is_said() -> None:
    if importlib.util.find_spec("onnxruntime_qnn") is not None:
        pytest.skip("the provider is installed")
    there = QnnBackend().is_available()
    assert not there
    assert (there.reason, there.fix) == ("onnxruntime_qnn is not installed", "pip install 'delegraph-providers[qnn]'")
    with pytest.raises(PluginUnavailable, match=r"pip install 'delegraph-providers\[qnn\]'"):
        delegraph.lower(nn.ReLU(), (torch.randn(2),), backends=["qnn"])
