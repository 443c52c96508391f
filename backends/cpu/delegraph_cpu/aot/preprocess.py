"""A partition's edge program -> the blob that `delegraph_cpu.runtime` executes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot import ResolvedSignature
from delegraph.aot.authoring import has_fallback, operator_name
from delegraph.errors import DelegateInvalidCompatibility, PreprocessError
from delegraph.interfaces import BackendDetails, CompileSpec, PreprocessResult
from delegraph_cpu.aot.compiled.beside import bring_out_of_bodies, lay_beside, taken_out
from delegraph_cpu.aot.compiled.debug_handles import name_nodes
from delegraph_cpu.aot.compiled.in_place import changed_in_place
from delegraph_cpu.aot.compiled.joined_projections import with_joined_projections
from delegraph_cpu.aot.compiled.narrow_weights import has_halves, store_halves, widen_kernels
from delegraph_cpu.aot.compiled.packing import Compiled, laid_beside, packed, state_records
from delegraph_cpu.aot.compiled.shared_contents import content_bytes
from delegraph_cpu.aot.compiled.tied_tables import read_tied_codes, read_tied_tables
from delegraph_cpu.aot.compiled.unfolded import constants_again, held_back
from delegraph_cpu.aot.compiled.work import multiply_adds
from delegraph_cpu.aot.convert import CpuModel, convert
from delegraph_cpu.blob import (
    BLOB_VERSION,
    SUBMIT,
    Blob,
    UnpackedWeight,
    bytes_of,
)
from delegraph_cpu.codes import Codes
from delegraph_cpu.engine import onnxruntime
from delegraph_cpu.graphs.checks import checked_graph, operator_of
from delegraph_cpu.sessions import INLINE_BYTES, create_session, write_optimized
from delegraph_onnx.indexed import indexed_inputs
from delegraph_onnx.ir_values import content_of

__all__ = ["CpuLowering"]

INT8_INPUTS: Final = "int8_inputs"
"""The compile spec that lets linear layers with quantized weights round their inputs."""

INT8_PRODUCTS: Final = "int8_products"
"""The compile spec that lets linear layers with weights of 4 bits multiply int8, to which they are unpacked at load."""

_ROUNDED: Final = (INT8_INPUTS, INT8_PRODUCTS)
_CACHE_NDIM: Final = 4  # batch, heads, places, size
_LAYERS: Final = ("aten::linear", "aten::addmm", "aten::mm")


class CpuLowering(BackendDetails):
    """Compiles partitions for onnxruntime; the backend id is `CpuBackend`."""

    blob_version: ClassVar[int] = BLOB_VERSION
    takes_external_weights: ClassVar[bool] = True
    shares_state: ClassVar[bool] = True

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Convert the partition, optimise it with onnxruntime and pack it; see `delegraph_cpu.blob` for the format.

        Raises `UnsupportedOperator` for a node that the partitioner should not have claimed, and `PreprocessError` if
        onnxruntime refuses the graph.
        """
        [result] = _preprocess([(edge_program, compile_specs)])
        return result

    @classmethod
    def submits(cls, compile_specs: Sequence[CompileSpec]) -> bool:
        """Those whose partitioner was asked for it."""
        return any(spec.key == SUBMIT for spec in compile_specs)

    @classmethod
    def serves_fixed_sizes(cls, edge_program: ExportedProgram, compile_specs: Sequence[CompileSpec]) -> bool:
        """All but those that are other operators at their sizes: products with quantized weights of several rows, or of
        rounded inputs and packed weights (`quantized/packed.py`), and attention to the caches of a batch
        (`fusions/cached_attention.py`)."""
        signature = ResolvedSignature.of(edge_program)
        caches = [stored.tensor for stored in signature.states.values() if stored.tensor.ndim == _CACHE_NDIM]
        if any(cache.shape[0] > 1 for cache in caches):
            return False
        dtypes = {stored.tensor.dtype for stored in signature.constants.values() if stored.tensor.ndim > 1}
        if dtypes.isdisjoint((torch.int8, torch.uint8)):
            return True
        calls = [node for node in edge_program.graph.nodes if node.op == "call_function"]
        if any(_has_several_rows(node) for node in calls if operator_name(node) in _LAYERS):
            return False
        rounds = any("choose_qparams" in operator_name(node) for node in calls)
        return torch.uint8 not in dtypes or not (rounds or any(spec.key in _ROUNDED for spec in compile_specs))

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """As `preprocess`, but weights that several partitions have go into the named data, once."""
        pairs = [zip(programs, compile_specs[method], strict=True) for method, programs in edge_programs.items()]
        results = iter(_preprocess([pair for of_method in pairs for pair in of_method]))
        return {method: [next(results) for _ in programs] for method, programs in edge_programs.items()}


def _has_several_rows(layer: Node) -> bool:
    *rows, _ = layer.meta["val"].shape
    return any(not isinstance(size, int) or size > 1 for size in rows)


def _preprocess(partitions: Sequence[tuple[ExportedProgram, Sequence[CompileSpec]]]) -> list[PreprocessResult]:
    """The results of partitions that are compiled together."""
    converted = with_joined_projections([_convert(*partition) for partition in partitions])
    compiled = [_compile(model, program) for model, (program, _) in zip(converted, partitions, strict=True)]
    return packed(compiled, [program for program, _ in partitions])


def _convert(program: ExportedProgram, compile_specs: Sequence[CompileSpec]) -> CpuModel:
    asked = {spec.key for spec in compile_specs}
    converted = convert(program, int8_inputs=INT8_INPUTS in asked, int8_products=INT8_PRODUCTS in asked)
    return read_tied_codes(read_tied_tables(converted))


def _compile(converted: CpuModel, program: ExportedProgram) -> Compiled:
    with tempfile.TemporaryDirectory(prefix="delegraph-cpu-", dir=_folder_for(converted.model)) as folder:
        contents = held_back(converted.model, INLINE_BYTES, has_fallback(program))
        model, debug_handles = _optimize(converted, Path(folder))
    for name in constants_again(model.graph, contents):
        lay_beside(model.graph.initializers[name])
    if has_halves(program):
        store_halves(model.graph)
    widen_kernels(model.graph)
    external = laid_beside(model, converted.external)
    weights, unpacked = _as_codes(taken_out(model.graph), converted.codes)
    graph = _as_loaded(ir.to_proto(model).SerializeToString())
    in_place = changed_in_place(model.graph) if converted.states else {}
    states, initial = state_records(converted.states, in_place)
    resolved = ResolvedSignature.of(program)
    blob = Blob(
        onnxruntime.__version__, converted.inputs, converted.outputs, (), graph,
        states=states, multiply_adds=multiply_adds(program.graph, resolved.constants), unpacked=unpacked,
        places=indexed_inputs(program.graph, resolved),
    )  # fmt: skip
    return Compiled(blob, weights, external, initial, debug_handles)


def _as_loaded(graph: bytes) -> bytes:
    """`graph`, which loading must not refuse."""
    try:
        checked_graph(graph, operator_of)
    except DelegateInvalidCompatibility as error:
        raise PreprocessError(f"the converted graph would be refused when it is loaded: {error}") from error
    return graph


def _as_codes(
    weights: Mapping[str, ir.TensorProtocol], codes: Mapping[str, Codes]
) -> tuple[dict[str, ir.TensorProtocol], tuple[UnpackedWeight, ...]]:
    """`weights`, with int8 weights replaced by the codes that they are unpacked from at load; and how."""
    stored: dict[str, ir.TensorProtocol] = {}
    unpacked = []
    for name, tensor in weights.items():
        row_scale = codes[name].row_scale() if name in codes else None
        if row_scale is None or not np.array_equal(tensor.numpy(), codes[name].as_int8(row_scale)):
            stored[name] = tensor  # no codes, or an optimisation has changed the weight
            continue
        of = codes[name]
        parts: dict[str, NDArray[Any]] = {"packed": of.packed, "scale": of.scale, "row_scale": row_scale}
        if of.zero_point is not None:
            parts["zero_point"] = of.zero_point
        stored |= {f"{name}.{part}": ir.Tensor(content) for part, content in parts.items()}
        unpacked.append(UnpackedWeight(name, **{part: f"{name}.{part}" for part in parts}))
    return stored, tuple(unpacked)


def _optimize(converted: CpuModel, folder: Path) -> tuple[ir.Model, dict[str, tuple[int, ...]]]:
    """onnxruntime's graph optimisations that do not depend on the machine (level EXTENDED): the graph, and the debug
    handles behind each of its nodes.

    Weights go in by reference and come out as a file of their own: no protobuf holds them.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 3
    write_optimized(options, str(folder / "graph.onnx"), "weights")
    for value in converted.model.graph.initializers.values():
        if value.const_value is not None and value.const_value.nbytes > INLINE_BYTES:
            lay_beside(value)
    tensors = taken_out(converted.model.graph)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in arrays.values()]
    options.add_external_initializers(list(arrays), values)
    try:
        create_session(
            ir.to_proto(converted.model).SerializeToString(), options, (*converted.inputs, *converted.outputs)
        )
    except Exception as error:  # pybind's exceptions have no common base
        raise PreprocessError(f"onnxruntime {onnxruntime.__version__} refuses the converted graph: {error}") from error
    model = ir.load(folder / "graph.onnx")
    handles = name_nodes(model, converted.model, converted.debug_handles)
    _find_weights(model, tensors)
    return model, handles


def _find_weights(model: ir.Model, before: Mapping[str, ir.TensorProtocol]) -> None:
    """Lay the weights beside the graph that onnxruntime wrote into a file, whose content is read unless it is as
    `before`; and int8 weights that are small enough for the graph: loading looks at their values."""
    for graph in model.graphs():
        for name, value in graph.initializers.items():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                lay_beside(value, _unless_same(tensor, before.get(name)))
                tensor.release()
    bring_out_of_bodies(model)
    for value in model.graph.initializers.values():
        if value.dtype == ir.DataType.INT8 and content_of(value).ndim > 1:
            lay_beside(value)


def _unless_same(written: ir.ExternalTensor, before: ir.TensorProtocol | None) -> ir.TensorProtocol:
    """The tensor that onnxruntime has written, without its file; `before` if that has the same bytes."""
    array = written.numpy()
    if before is not None and before.dtype == written.dtype and before.nbytes == written.nbytes:
        same = np.array_equal(np.asarray(bytes_of(array)), np.asarray(content_bytes(before)))
        if same and before.shape == written.shape:
            return before
    return ir.Tensor(np.array(array), name=written.name)


def _folder_for(model: ir.Model) -> str | None:
    """A directory in memory with room for the optimised files, which live for milliseconds, or None. In a container it
    often has 64 MB."""
    tensors = (value.const_value for value in model.graph.initializers.values())
    needed = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    has_room = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _FOLDED * needed
    return _MEMORY if has_room else None


_MEMORY: Final = "/dev/shm"
_FOLDED: Final = 2
"""The factor for values that onnxruntime computes from weights ahead of time and puts beside them."""
