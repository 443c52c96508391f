"""Bundled programs under ExecuTorch's old paths, and `export_util`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from delegraph.devtools import load_bundled_program
from delegraph.errors import InvalidArgument
from delegraph_executorch.devtools.bundled_program import schema
from delegraph_executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from delegraph_executorch.devtools.bundled_program.core import BundledProgram
from delegraph_executorch.devtools.bundled_program.serialize import (
    deserialize_from_flatbuffer_to_bundled_program,
    serialize_from_bundled_program_to_flatbuffer,
)
from delegraph_executorch.exir import ExecutorchBackendConfig
from delegraph_executorch.exir._serialize._cord import Cord
from delegraph_executorch.exir._serialize.data_serializer import DataEntry, DataPayload
from delegraph_executorch.exir.tensor_layout import TensorLayout
from delegraph_executorch.extension.export_util.utils import export_to_edge, export_to_exec_prog, save_pte_program
from delegraph_executorch.extension.flat_tensor.serialize import flat_tensor_schema
from delegraph_executorch.extension.flat_tensor.serialize.serialize import (
    FlatTensorConfig,
    FlatTensorSerializer,
    _deserialize_to_flat_tensor,
)
from delegraph_executorch.extension.pybindings import portable_lib
from delegraph_executorch.extension.pytree import tree_flatten, tree_unflatten


class Model(torch.nn.Module):
    """A tensor and a scalar in, one tensor out."""

    def forward(self, x: torch.Tensor, times: int) -> torch.Tensor:
        return x * times


X = torch.arange(6, dtype=torch.float32).reshape(2, 3)


def bundled(expected: torch.Tensor) -> BundledProgram:
    program = export_to_exec_prog(Model(), (X, 2))
    return BundledProgram(program, [MethodTestSuite("forward", [MethodTestCase((X, 2), (expected,))])])


def test_round_trip() -> None:
    bundle = bundled(X * 2)
    records = bundle.serialize_to_schema()
    (case,) = records.method_test_suites[0].test_cases
    data = X.numpy().tobytes()
    tensor = schema.Tensor(schema.ScalarType.FLOAT, sizes=[2, 3], data=data, dim_order=[0, 1])
    assert case.inputs == [schema.Value(tensor), schema.Value(schema.Int(2))]
    data = serialize_from_bundled_program_to_flatbuffer(bundle)
    assert deserialize_from_flatbuffer_to_bundled_program(data) == records
    assert bytes(load_bundled_program(data).buffer) == records.program


def test_verifying_through_the_bindings() -> None:
    module = portable_lib._load_bundled_program_from_buffer(
        serialize_from_bundled_program_to_flatbuffer(bundled(X * 2))
    )
    (output,) = module.verify_result_with_bundled_expected_output("forward", 0)
    assert torch.equal(output, X * 2)
    with pytest.raises(RuntimeError, match="method 'forward' has 1 bundled test cases, none 1"):
        module.verify_result_with_bundled_expected_output("forward", 1)
    wrong = portable_lib._load_bundled_program_from_buffer(serialize_from_bundled_program_to_flatbuffer(bundled(X * 3)))
    with pytest.raises(RuntimeError, match="test case 0: output 0: 5 of 6 elements differ, by up to 5"):
        wrong.verify_result_with_bundled_expected_output("forward", 0)
    assert wrong.verify_result_with_bundled_expected_output("forward", 0, rtol=1.0)


def test_a_module_of_a_bundled_program() -> None:
    data = serialize_from_bundled_program_to_flatbuffer(bundled(X * 2))
    bundle = portable_lib._load_bundled_program_from_buffer(data)
    module = portable_lib._load_for_executorch_from_bundled_program(bundle)
    assert torch.equal(module.forward([X, 2])[0], X * 2)
    with pytest.raises(RuntimeError, match="it is a bundled program"):
        portable_lib._load_program_from_buffer(data)
    with pytest.raises(RuntimeError, match="there is no such pool here"):
        portable_lib._load_bundled_program_from_buffer(data, 1)


def test_cases_without_expected_outputs() -> None:
    program = export_to_exec_prog(Model(), (X, 2))
    bundle = BundledProgram(program, [MethodTestSuite("forward", [MethodTestCase((X, 2))])])
    module = portable_lib._load_bundled_program_from_buffer(serialize_from_bundled_program_to_flatbuffer(bundle))
    with pytest.raises(RuntimeError, match="test case 0: it has no expected outputs"):
        module.verify_result_with_bundled_expected_output("forward", 0)


def test_cases_that_do_not_fit_are_assertion_errors() -> None:
    with pytest.raises(
        AssertionError, match=r"expected output 0: expected float32\[2, 3\], got dtype float64"
    ) as caught:
        bundled(X.double())
    assert isinstance(caught.value, InvalidArgument)


def test_saving_a_program(tmp_path: Path) -> None:
    program = export_to_exec_prog(Model(), (X, 2))
    path = save_pte_program(program, "model", str(tmp_path))
    assert path == str(tmp_path / "model.pte")
    assert save_pte_program(program, str(tmp_path / "other.pte"), str(tmp_path)) == str(tmp_path / "other.pte")
    for name in ("model.pte", "other.pte"):
        assert torch.equal(portable_lib._load_for_executorch(str(tmp_path / name)).forward([X, 2])[0], X * 2)
    with pytest.raises(OSError, match="none"):
        save_pte_program(program, "model", str(tmp_path / "none"))


def test_export_to_edge() -> None:
    edge = export_to_edge(Model(), (X, 2), edge_constant_methods={"version": 3}, verbose=False, generate_etrecord=True)
    record = edge.to_executorch(ExecutorchBackendConfig()).get_etrecord()
    assert record.edge_dialect_program is not None
    program = portable_lib._load_for_executorch_from_buffer(edge.to_executorch().buffer)
    assert program.run_method("version") == [3]
    with pytest.raises(ValueError, match="expected a torch"):
        export_to_edge(lambda x: x, (X,))  # type: ignore[arg-type]


def test_pytree() -> None:
    leaves, spec = tree_flatten({"a": 1, "b": [2, 3]})
    assert (leaves, tree_unflatten(leaves, spec)) == ([1, 2, 3], {"a": 1, "b": [2, 3]})


def test_flat_tensors() -> None:
    layout = TensorLayout.from_tensor(X)
    entries = {"w": DataEntry(0, 1, layout), "tied": DataEntry(0, 1, layout), "blob": DataEntry(1, 64, None)}
    serializer = FlatTensorSerializer(FlatTensorConfig(segment_alignment=256))
    data = bytes(serializer.serialize(DataPayload([X.numpy().tobytes(), b"blob"], entries)))
    assert data[4:12] == b"FT01FH01"
    read = serializer.deserialize(Cord(data))
    assert list(read.buffers) == [X.numpy().tobytes(), b"blob"]
    assert {key: (entry.buffer_index, entry.tensor_layout) for key, entry in read.named_data.items()} == {
        "w": (0, layout),
        "tied": (0, layout),
        "blob": (1, None),
    }
    tables = _deserialize_to_flat_tensor(data)
    assert tables.segments == [flat_tensor_schema.DataSegment(0, 24), flat_tensor_schema.DataSegment(256, 4)]
    assert flat_tensor_schema.NamedData("tied", 0, layout) in tables.named_data
    output = serializer.deserialize_to_named_data_store_output(data, "model")
    assert (output.pte_data, list(output.external_data)) == ({}, ["model"])


def test_quantized_operators_are_there() -> None:
    import delegraph_executorch.kernels.quantized  # noqa: F401

    assert torch.ops.quantized_decomposed.quantize_per_tensor.default is not None
