"""Small programs of every kind -> their files, from which mutations start: kernels, loops, state, delegates, lists."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
from core.tests.aot import record_files
from core.tests.program.test_etdump import FILLED
from core.tests.runtime.conftest import PlanBuilder
from core.tests.runtime.test_control_flow import loop_over_rows
from core.tests.runtime.test_module import LEAF, arguments, node, text
from onnx import TensorProto, helper

from delegraph.devtools import BundledProgram, MethodTestCase, MethodTestSuite, serialize_bundled_program
from delegraph.interfaces import BlobStamp, BlobTensor, PlacesInfo
from delegraph.program import serialize_flat_tensor, serialize_program
from delegraph.program.contract import CONTRACT_KEY, DimRange, MethodContract, write_contracts
from delegraph.program.etdump import serialize_etdump
from delegraph.program.files.seal import sealed
from delegraph.program.flat_tensor import ExternalData, FlatTensor, TensorLayout
from delegraph.program.raw_tables import read_tables, write_tables
from delegraph.program.schema import NamedData, OptionalTensorList, Program, ScalarType
from delegraph_cpu.blob import Blob, StateInfo, Weight, pack
from delegraph_dsp.device import device_named
from delegraph_dsp.device import device_text as dsp_text
from delegraph_mnn.blob import FORMAT as MNN
from delegraph_npu.device import device_text as npu_text
from delegraph_providers.blob import Blob as CompiledBlob
from delegraph_providers.blob import CompiledNode, format_of
from delegraph_providers.blob import pack as pack_binary
from delegraph_providers.graph_blob import GraphBlob
from delegraph_providers.providers import QNN, WEBGPU

__all__ = ["SEEDS"]


def _kernels() -> Program:
    build = PlanBuilder()
    x, dynamic = build.tensor(2, 3), build.tensor(4, 3, dynamic=True)
    weight = build.constant(np.ones((2, 3), np.float32))
    total = build.call("aten::add.out", x, weight, build.int(1), build.tensor(2, 3))
    parts = [build.tensor(1, 3), build.tensor(1, 3)]
    outs = build.tensors(*parts)
    build.prim("aten::split_copy.Tensor_out", total, build.int(1), build.int(0), outs, outs)
    joined = build.call("aten::cat.out", build.tensors(*parts, x), build.int(0), dynamic)
    picked = build.call(
        "aten::index.Tensor_out",
        joined,
        build.value(OptionalTensorList((build.constant(np.array([0, 1])),))),
        build.tensor(2, 3),
    )
    shape = build.ints(build.int(3), build.int(-1))
    view = build.tensor(3, 2, dynamic=True)
    build.prim("executorch_prim::et_view.default", picked, shape, view)
    trees = (arguments(LEAF), text(node("builtins.dict", ["a", "b"], LEAF, LEAF)))
    plan = build.plan([x], [joined, view], trees=trees)
    contract = MethodContract(("x",), ((2, 3),), ((DimRange("rows", 0, 4), 3), (3, 2)))
    return build.program(plan, named_data={CONTRACT_KEY: NamedData(write_contracts({"forward": contract}))})


def _loop() -> Program:
    build = PlanBuilder()
    return build.program(loop_over_rows(build, 3))


def _scalars() -> Program:
    build = PlanBuilder()
    x = build.tensor(3, dtype="int64", dynamic=True)
    size, half, flag = build.int(0), build.double(0.0), build.bool(False)
    build.prim("aten::sym_size.int", x, build.int(0), size)
    build.prim("executorch_prim::truediv.Scalar", size, build.int(2), half)
    build.prim("executorch_prim::mul.Scalar", size, size, size)
    build.prim("executorch_prim::ge.Scalar", half, size, flag)
    jump = build.jump_false(flag, 0)
    build.move(build.int(7), size)
    build.land(jump)
    full = build.call("aten::full.out", build.ints(size), build.double(1.5), build.tensor(16, dynamic=True))
    return build.program(build.plan([x], [size, full]))


def _delegate() -> Program:
    build = PlanBuilder()
    x, y = build.tensor(2), build.tensor(2)
    stamp = BlobStamp("CpuBackend", "delegraph-cpu", "0.1.0", 1).to_compile_spec()
    build.delegate("CpuBackend", x, y, blob=blob(), specs=[stamp])
    out = build.call("aten::mul.out", y, build.constant(np.float32([3, 4])), build.tensor(2, planned=False))
    return build.program(build.plan([x], [out, x]))


def blob() -> bytes:
    """A blob of the cpu backend: (x + w) in a branch, with a weight of its own and one in the graph."""
    own = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "weights"), ("offset", "0"), ("length", "8")):
        own.external_data.add(key=key, value=value)
    inner = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["z"])], "b", [], [helper.make_tensor_value_info("z", 1, [2])]
    )
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
        "g",
        [helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info("y", 1, [2])],
        [own, helper.make_tensor("c", TensorProto.BOOL, [], b"\x01", raw=True)],
    )
    borders = (BlobTensor("x", "float32", (2,)),), (BlobTensor("y", "float32", (2,)),)
    weights = (Weight("w", "float32", (2,), 8),)
    return pack(Blob("1.23.0", *borders, weights, _model_of(graph)), [np.float32([1, 2]).tobytes()])


def _device_blobs() -> list[bytes]:
    """Blobs of WebGPU (a state, a place, a node of the CPU's), of MNN (a weight of 8 bits) and of QNN (a binary)."""
    x, y, places = (BlobTensor("x", "float32", (2,)), BlobTensor("y", "float32", (2,)), BlobTensor("p", "int64", (1,)))
    info = helper.make_tensor_value_info
    codes = (helper.make_tensor("c", TensorProto.INT8, [2], b"\1\2", raw=True), _float_tensor("s", [], 2.0))
    takes = [
        helper.make_node("Cast", ["p"], ["i"], name="i", to=TensorProto.INT32),
        helper.make_node("Gather", ["k", "i"], ["g"], name="g"),
        helper.make_node("Add", ["x", "g"], ["y"], name="y"),
        helper.make_node("Add", ["k", "w"], ["n"], name="n"),
    ]
    dequantizes = [
        helper.make_node("DequantizeLinear", ["c", "s"], ["f"], name="f"),
        helper.make_node("Add", ["x", "f"], ["y"], name="y"),
    ]
    inputs = [info("x", 1, [2]), info("p", TensorProto.INT64, [1]), info("k", 1, [2])]
    stateful = helper.make_graph(
        takes, "g", inputs, [info("y", 1, [2]), info("n", 1, [2])], [_float_tensor("w", [2], [1, 2])]
    )
    plain = helper.make_graph(dequantizes, "g", [info("x", 1, [2])], [info("y", 1, [2])], codes)
    gpu = GraphBlob(
        *("onnxruntime-webgpu 1.27.0", (x, places), (y,), (), _model_of(stateful)),
        states=(StateInfo("kept", "k", "n", "float32", (2,), False, 0),),
        places=(PlacesInfo("p", "places", 2),),
        on_host=("i",),
    )
    mnn = Blob("MNN 3.6.1", (x,), (y,), (), _model_of(plain))
    node = CompiledNode("y", "Relu", ("x",))
    return [
        pack(gpu, [np.float32([1, 2]).tobytes()], format_of(WEBGPU)),
        pack(mnn, [], MNN),
        pack_binary(CompiledBlob("2.7.0", "2.48", (x,), (y,), ("x",), ("y",), b"binary", (node,)), QNN),
    ]


def _float_tensor(name: str, dims: list[int], values: float | list[float]) -> TensorProto:
    return helper.make_tensor(name, TensorProto.FLOAT, dims, np.float32(values).tobytes(), raw=True)


def _model_of(graph: onnx.GraphProto) -> bytes:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    content: bytes = model.SerializeToString()
    return content


def _without_segments(program: Program) -> bytes:
    """The program with all of its data in the flatbuffer, which is what mutations of tables can rebuild."""
    tables: dict[str, Any] = read_tables(serialize_program(program))
    tables["constant_buffer"] = [{"storage": bytes(data)} for data in program.constants]
    tables["backend_delegate_data"] = [{"data": bytes(data)} for data in program.delegate_data]
    for plan in tables["execution_plan"]:
        for index, delegate in enumerate(plan["delegates"] or ()):
            delegate["processed"] = {"location": 0, "index": index}
    return write_tables({**tables, "constant_segment": None, "segments": None, "named_data": None})


def _record() -> bytes:
    """An ETRecord of one program, whose nodes do not tell where they come from."""
    members = record_files.members()
    document = json.loads(members[record_files.PROGRAM])
    for call in document["graph_module"]["graph"]["nodes"]:
        call["metadata"] = {"torch_fn": "a;b"}
    kept = {name: data for name, data in members.items() if name.startswith(("ETRECORD", record_files.PROGRAM))}
    return record_files.zipped({**kept, record_files.PROGRAM: json.dumps(document).encode()})


def _bundled() -> BundledProgram:
    """The loop, and a case of it."""
    x = np.ones((3, 2), np.float32)
    return BundledProgram(serialize_program(_loop()), [MethodTestSuite("forward", [MethodTestCase((x, x[0]), (x,))])])


_MEMORIES = b"""# memories
policy = "fastest_first"
[[memory]]
name = "sram"
size = "256 KiB"
alignment = 64
speed = 4.0
[[memory]]
name = "dram"
device = "cpu"
[place]
"weight*" = "dram"
"""


def _seeds() -> list[bytes]:
    programs = (_kernels(), _loop(), _scalars(), _delegate())
    layout = TensorLayout(ScalarType.FLOAT, (2, 3), (1, 0))
    external = FlatTensor({"w": ExternalData(bytes(24), layout), "blob": ExternalData(b"x")})
    return [
        *map(serialize_program, programs),
        *map(_without_segments, programs),
        serialize_flat_tensor(external),
        b"".join(sealed([serialize_program(_kernels())])),
        blob(),
        *_device_blobs(),
        _record(),
        serialize_bundled_program(_bundled()),
        serialize_etdump(FILLED),
        b"# dsp\n" + dsp_text(device_named("hvx-4mb")).encode(),
        b"# npu\n" + npu_text("ethos-u55-128")[0].encode(),
        _MEMORIES,
    ]


SEEDS = _seeds()
"""Files: `.pte`, `.ptd`, blobs of cpu, webgpu, mnn and qnn by themselves, an ETRecord, `.bpte`, an ETDump, and TOML."""
