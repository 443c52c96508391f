"""A partition's edge program -> the blob that `delegraph_cpu.runtime` executes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from numpy.typing import NDArray
from torch.export import ExportedProgram

from delegraph.aot.backend import BackendDetails, CompileSpec, PreprocessResult
from delegraph.errors import PreprocessError
from delegraph_cpu.aot.convert import ConvertedModel, convert
from delegraph_cpu.blob import BLOB_VERSION, Blob, Weight, pack
from delegraph_cpu.sessions import create_session

__all__ = ["CpuLowering"]

INLINE_BYTES: Final = 256
"""Weights up to this size stay in the graph."""


class CpuLowering(BackendDetails):
    """Compiles partitions for onnxruntime; the backend id is `CpuBackend`."""

    blob_version: ClassVar[int] = BLOB_VERSION

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Convert the partition, optimise it with onnxruntime and pack it; see `delegraph_cpu.blob` for the format.

        Raises `UnsupportedOperator` for a node that the partitioner should not have claimed, and `PreprocessError` if
        onnxruntime refuses the graph.
        """
        return PreprocessResult(_compile(convert(edge_program)))


def _compile(converted: ConvertedModel) -> bytes:
    with tempfile.TemporaryDirectory(prefix="delegraph-cpu-", dir=_memory_directory()) as folder:
        graph, weights = _optimize(converted.model, Path(folder))
        records = tuple(Weight(n, str(a.dtype), a.shape, a.nbytes) for n, a in weights.items())
        blob = Blob(onnxruntime.__version__, converted.inputs, converted.outputs, records, graph)
        return pack(blob, [memoryview(a.reshape(-1).view(np.uint8)) for a in weights.values()])


def _optimize(model: ir.Model, folder: Path) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """onnxruntime's graph optimisations that do not depend on the machine (level EXTENDED).

    Weights go in by reference and come out as a file that is mapped: neither is serialised.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "graph.onnx")
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", str(INLINE_BYTES))
    options.add_session_config_entry("session.disable_prepacking", "1")
    arrays = _detach_weights(model)
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in arrays.values()]
    options.add_external_initializers(list(arrays), values)
    try:
        create_session(ir.to_proto(model).SerializeToString(), options)
    except Exception as error:  # pybind's exceptions have no common base
        raise PreprocessError(f"onnxruntime {onnxruntime.__version__} refuses the converted graph: {error}") from error
    return _read_optimized(folder)


def _detach_weights(model: ir.Model) -> dict[str, NDArray[Any]]:
    """Turn the large initialisers into references to a file; returns their arrays."""
    arrays = {}
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        assert tensor is not None
        if tensor.nbytes > INLINE_BYTES:
            arrays[name] = tensor.numpy()
            value.const_value = ir.ExternalTensor(
                "weights", 0, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name  # type: ignore[arg-type]
            )
    return arrays


def _read_optimized(folder: Path) -> tuple[bytes, dict[str, NDArray[Any]]]:
    model = onnx.load_model(folder / "graph.onnx", load_external_data=False)
    file = folder / "weights"
    content = np.memmap(file, np.uint8, "r") if file.exists() else np.empty(0, np.uint8)
    weights = {}
    for tensor in model.graph.initializer:
        if tensor.external_data:
            place = {entry.key: entry.value for entry in tensor.external_data}
            offset, length = int(place["offset"]), int(place["length"])
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            weights[tensor.name] = content[offset : offset + length].view(dtype).reshape(tuple(tensor.dims))
    return model.SerializeToString(), weights


def _memory_directory() -> str | None:
    """A directory in memory where there is one: the files live for milliseconds."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
