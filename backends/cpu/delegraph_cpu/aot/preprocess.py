"""A partition's edge program -> the blob that `delegraph_cpu.runtime` executes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from numpy.typing import NDArray
from torch.export import ExportedProgram

from delegraph.aot import NamedDataStore, ResolvedSignature
from delegraph.aot.authoring import as_array
from delegraph.errors import PreprocessError
from delegraph.interfaces import BackendDetails, CompileSpec, PlacesInfo, PreprocessResult
from delegraph_cpu.aot.body_constants import bring_out_constants, external_content
from delegraph_cpu.aot.convert import CpuModel, convert
from delegraph_cpu.aot.debug_handles import name_nodes
from delegraph_cpu.aot.half_weights import has_halves, store_halves
from delegraph_cpu.aot.in_place import changed_in_place
from delegraph_cpu.aot.joined_projections import with_joined_projections
from delegraph_cpu.aot.stored_kernels import widen_kernels
from delegraph_cpu.aot.tied_codes import read_tied_codes
from delegraph_cpu.aot.tied_tables import read_tied_tables
from delegraph_cpu.aot.unfolded import constants_again, held_back, refer_to_weights
from delegraph_cpu.aot.weight_keys import key_of
from delegraph_cpu.aot.work import multiply_adds
from delegraph_cpu.blob import (
    ALIGNMENT,
    BLOB_VERSION,
    Blob,
    StateInfo,
    TensorInfo,
    UnpackedWeight,
    Weight,
    bytes_of,
    pack,
)
from delegraph_cpu.codes import Codes
from delegraph_cpu.sessions import INLINE_BYTES, create_session, write_optimized
from delegraph_onnx import signature
from delegraph_onnx.convert import ExternalWeight
from delegraph_onnx.indexed import indexed_inputs

__all__ = ["CpuLowering"]

INT8_INPUTS: Final = "int8_inputs"
"""The compile spec for linear layers with quantized weights to round their inputs."""

INT8_PRODUCTS: Final = "int8_products"
"""And for those of 4 bits to multiply integers, which they are made of when the delegate is loaded."""

SHARED_BYTES: Final = 4096
"""Weights from this size are shared between delegates: named data begins on a page of its own."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A partition after optimisation: its ONNX graph, which of its inputs are changed in place (see `in_place.py`), and
    the weights that it only refers to; of those that are external the ones that it still reads.
    """

    converted: CpuModel
    graph: bytes
    in_place: dict[str, str]
    weights: dict[str, NDArray[Any]]
    external: tuple[ExternalWeight, ...]
    unpacked: tuple[UnpackedWeight, ...]
    multiply_adds: int | None
    places: tuple[PlacesInfo, ...]
    debug_handles: dict[str, tuple[int, ...]]


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
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """As `preprocess`, but weights that several partitions have go into the named data, once."""
        pairs = [zip(programs, compile_specs[method], strict=True) for method, programs in edge_programs.items()]
        results = iter(_preprocess([pair for of_method in pairs for pair in of_method]))
        return {method: [next(results) for _ in programs] for method, programs in edge_programs.items()}


def _preprocess(partitions: Sequence[tuple[ExportedProgram, Sequence[CompileSpec]]]) -> list[PreprocessResult]:
    """Those of partitions that are compiled together."""
    converted = with_joined_projections([_convert(*partition) for partition in partitions])
    compiled = [_compile(model, program) for model, (program, _) in zip(converted, partitions, strict=True)]
    return list(map(_pack, compiled, _shared_keys(compiled)))


def _convert(program: ExportedProgram, compile_specs: Sequence[CompileSpec]) -> CpuModel:
    asked = {spec.key for spec in compile_specs}
    converted = convert(program, int8_inputs=INT8_INPUTS in asked, int8_products=INT8_PRODUCTS in asked)
    return read_tied_codes(read_tied_tables(converted))


def _compile(converted: CpuModel, program: ExportedProgram) -> Compiled:
    with tempfile.TemporaryDirectory(prefix="delegraph-cpu-", dir=_folder_for(converted.model)) as folder:
        held = held_back(converted.model, INLINE_BYTES)
        model, weights, debug_handles = _optimize(converted, Path(folder))
    if has_halves(program):
        weights = store_halves(model, weights)
    weights, unpacked = _as_codes(widen_kernels(model, weights), converted.codes)
    sizes = {weight.info.name: weight.tensor.nbytes for weight in converted.external}
    read = constants_again(model, sizes | {name: array.nbytes for name, array in held.items()})
    external = tuple(weight for weight in converted.external if weight.info.name in read)
    weights |= {name: array for name, array in held.items() if name in read}
    in_place = changed_in_place(model.graph) if converted.states else {}
    graph = model.SerializeToString()
    resolved = ResolvedSignature.of(program)
    adds = multiply_adds(program.graph, resolved.constants)
    places = indexed_inputs(program.graph, resolved)
    return Compiled(converted, graph, in_place, weights, external, unpacked, adds, places, debug_handles)


def _as_codes(
    weights: Mapping[str, NDArray[Any]], codes: Mapping[str, Codes]
) -> tuple[dict[str, NDArray[Any]], tuple[UnpackedWeight, ...]]:
    """`weights` with what those of int8 are to be unpacked from at load in their place, and how."""
    stored: dict[str, NDArray[Any]] = {}
    unpacked = []
    for name, array in weights.items():
        row_scale = codes[name].row_scale() if name in codes else None
        if row_scale is None or not np.array_equal(array, codes[name].as_int8(row_scale)):
            stored[name] = array  # or something else by now
            continue
        of = codes[name]
        parts: dict[str, NDArray[Any]] = {"packed": of.packed, "scale": of.scale, "row_scale": row_scale}
        if of.zero_point is not None:
            parts["zero_point"] = of.zero_point
        stored |= {f"{name}.{part}": made for part, made in parts.items()}
        unpacked.append(UnpackedWeight(name, **{part: f"{name}.{part}" for part in parts}))
    return stored, tuple(unpacked)


def _pack(compiled: Compiled, shared: Mapping[str, str]) -> PreprocessResult:
    """The blob; weights that have a key in `shared` go into the named data under it."""
    store, records, chunks = NamedDataStore(), [], []
    for name, array in compiled.weights.items():
        key = shared.get(name)
        if key is not None:
            store.add_named_data(key, array.tobytes(), ALIGNMENT)
        else:
            chunks.append(bytes_of(array))
        records.append(Weight(name, str(array.dtype), array.shape, array.nbytes, key=key))
    converted = compiled.converted
    for weight in compiled.external:
        info = weight.info
        store.add_named_data(weight.key, weight.tensor, ALIGNMENT, external_tag=weight.tag)
        records.append(Weight(info.name, info.dtype, _shape(info), weight.tensor.nbytes, key=weight.key))
    states, contents = _states(compiled)
    blob = Blob(
        onnxruntime.__version__, _told(converted.inputs), _told(converted.outputs), tuple(records), compiled.graph,
        states=states, multiply_adds=compiled.multiply_adds, unpacked=compiled.unpacked, places=compiled.places,
    )  # fmt: skip
    chunks += contents
    return PreprocessResult(
        pack(blob, chunks), compiled.debug_handles, data_store_output=store.get_named_data_store_output()
    )


def _told(infos: Sequence[signature.TensorInfo]) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(*astuple(info)) for info in infos)


def _states(compiled: Compiled) -> tuple[tuple[StateInfo, ...], list[memoryview]]:
    """The records of the states, and what those hold at first that don't begin with zeros."""
    records, contents = [], []
    for state in compiled.converted.states:
        taken, given, array = state.input, state.output, as_array(state.tensor)
        zeros = not array.any()
        records.append(
            StateInfo(
                state.buffer, taken.name, given.name, taken.dtype, array.shape,
                compiled.in_place.get(taken.name) == given.name, None if zeros else 0,
            )
        )  # fmt: skip
        if not zeros:
            contents.append(bytes_of(array))
    return tuple(records), contents


def _shared_keys(compiled: Sequence[Compiled]) -> list[dict[str, str]]:
    """For each partition the keys, by name, of the weights that occur once more, in it or in another one."""
    large = [{n: a for n, a in c.weights.items() if a.nbytes >= SHARED_BYTES} for c in compiled]
    seen = Counter(_beginning(array) for own in large for array in own.values())
    keys = [{n: key_of(a) for n, a in own.items() if seen[_beginning(a)] > 1} for own in large]
    owners = Counter(key for own in keys for key in own.values())
    return [{name: key for name, key in own.items() if owners[key] > 1} for own in keys]


def _beginning(array: NDArray[Any]) -> tuple[int, bytes]:
    """What tells most weights from each other without reading all of them."""
    return array.nbytes, bytes(bytes_of(array)[:64])


def _optimize(
    converted: CpuModel, folder: Path
) -> tuple[onnx.ModelProto, dict[str, NDArray[Any]], dict[str, tuple[int, ...]]]:
    """onnxruntime's graph optimisations that do not depend on the machine (level EXTENDED): the graph, its weights, and
    the debug handles behind each of its nodes.

    Weights go in by reference and come out as a file of their own: no protobuf holds them.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 3
    write_optimized(options, str(folder / "graph.onnx"), "weights")
    arrays = _detach_weights(converted.model)
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in arrays.values()]
    options.add_external_initializers(list(arrays), values)
    try:
        create_session(ir.to_proto(converted.model).SerializeToString(), options)
    except Exception as error:  # pybind's exceptions have no common base
        raise PreprocessError(f"onnxruntime {onnxruntime.__version__} refuses the converted graph: {error}") from error
    model = onnx.load_model(folder / "graph.onnx", load_external_data=False)
    handles = name_nodes(model, converted.model, converted.debug_handles)
    weights = _take_weights(model, folder / "weights")
    return model, weights, handles


def _detach_weights(model: ir.Model) -> dict[str, NDArray[Any]]:
    """Turn the large initialisers into references to a file; returns their arrays."""
    arrays = {}
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        assert tensor is not None
        if tensor.nbytes > INLINE_BYTES:
            arrays[name] = tensor.numpy()
            value.const_value = ir.ExternalTensor(
                "weights",
                0,
                tensor.nbytes,
                tensor.dtype,
                shape=ir.Shape(arrays[name].shape),
                name=name,
            )
    return arrays


def _take_weights(model: onnx.ModelProto, file: Path) -> dict[str, NDArray[Any]]:
    """What lies in `file`, by name; those of bodies are then the main graph's."""
    content = np.fromfile(file, np.uint8) if file.exists() else np.empty(0, np.uint8)
    bring_out_constants(model.graph, content)
    weights = {t.name: external_content(t, content) for t in model.graph.initializer if t.external_data}
    return weights | _bytes_brought_out(model.graph)


def _bytes_brought_out(graph: onnx.GraphProto) -> dict[str, NDArray[Any]]:
    """Weights of int8 that are small enough to be in the graph, put beside it: loading looks at what they hold."""
    brought = {}
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.INT8 and len(tensor.dims) > 1 and not tensor.external_data:
            brought[tensor.name] = array = onnx.numpy_helper.to_array(tensor)
            for field in ("raw_data", "int32_data"):
                tensor.ClearField(field)
            refer_to_weights(tensor, array.nbytes)
    return brought


def _shape(info: signature.TensorInfo) -> tuple[int, ...]:
    return tuple(int(dim) for dim in info.shape)


def _folder_for(model: ir.Model) -> str | None:
    """A directory in memory, where there is one with room for what is optimised: its files live for milliseconds.
    In a container it often has 64 MB."""
    tensors = (value.const_value for value in model.graph.initializers.values())
    needed = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    has_room = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _FOLDED * needed
    return _MEMORY if has_room else None


_MEMORY: Final = "/dev/shm"
_FOLDED: Final = 2
"""Times its weights, for what onnxruntime computes of them ahead of time and puts beside them."""
