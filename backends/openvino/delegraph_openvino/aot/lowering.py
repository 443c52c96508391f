"""A partition's edge program -> the blob that `delegraph_openvino.runtime` executes.

edge program ── converters ──> ONNX ── OpenVINO's reader ──> OpenVINO's model ──> its IR, and the weights beside it
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from delegraph.aot import ResolvedSignature
from delegraph.aot.authoring import lower_sharing_weights, operator_name
from delegraph.errors import DelegateInvalidCompatibility, PreprocessError
from delegraph.interfaces import BackendDetails, BlobTensor, CompileSpec, PlacesInfo, PreprocessResult
from delegraph_onnx.convert import ConvertedModel, convert
from delegraph_onnx.indexed import indexed_inputs
from delegraph_onnx.ir_values import made_input, readers_of
from delegraph_onnx.node_facts import outer_dtype_of
from delegraph_openvino.aot.exact import EXACT_NAN, make_exact, operations_of
from delegraph_openvino.aot.graph import CODES_OF
from delegraph_openvino.aot.known_values import compute_known_values
from delegraph_openvino.aot.operators import reading_core
from delegraph_openvino.aot.rounded_values import PRODUCTS
from delegraph_openvino.aot.rows import OpenVinoConverterGraph
from delegraph_openvino.blob import (
    ALIGNMENT,
    BACKEND_ID,
    BLOB_VERSION,
    CODES,
    DTYPES,
    FORMAT,
    INPUT,
    PAIRS,
    WEIGHT,
    Blob,
    TensorInfo,
    Weight,
    pack,
)
from delegraph_openvino.engine import Output, Type, openvino
from delegraph_openvino.engine import opset15 as opset
from delegraph_openvino.ir.reading import read_ir

__all__ = ["OpenVinoLowering", "blob_of"]

INLINE_BYTES: Final = 256
"""Weights up to this size are constants of the IR; larger ones Parameters until the blob is loaded."""


class OpenVinoLowering(BackendDetails):
    """Writes partitions as OpenVINO IR; the backend id is `OpenVinoIR`.

    The IR is OpenVINO's graph before it is compiled: that happens at load, for the device that is there.
    """

    blob_version: ClassVar[int] = BLOB_VERSION

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Convert and pack the partition; see `delegraph_openvino.blob` for the format.

        Raises `UnsupportedOperator` for a node that the partitioner should not have claimed, and `PreprocessError` if
        OpenVINO refuses the graph.
        """
        return _lowered(edge_program, compile_specs, {})

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """As `preprocess`, but weights that several partitions have go into the named data, once."""
        return lower_sharing_weights(
            BACKEND_ID, edge_programs, compile_specs, _lowered, alignment=ALIGNMENT, minimum_nbytes=INLINE_BYTES + 1
        )


def _lowered(
    program: ExportedProgram, compile_specs: Sequence[CompileSpec], keys: Mapping[str, str]
) -> PreprocessResult:
    """The blob of a partition; its weights whose placeholders have a key are in the named data."""
    graph = OpenVinoConverterGraph()
    converted = convert(program, graph)
    handles = {name: ids for name, ids in graph.debug_handle_map.items() if ids}
    places = indexed_inputs(program.graph, ResolvedSignature.of(program))
    exact_nan = any(spec.key == EXACT_NAN for spec in compile_specs)
    products = [node for node in program.graph.nodes if operator_name(node).split(".")[0] in PRODUCTS]
    bfloat16 = {outer_dtype_of(node) for node in products} == {torch.bfloat16}
    blob = blob_of(converted, graph, keys, places, bfloat16, exact_nan)
    return PreprocessResult(blob, debug_handle_map=handles)


def blob_of(
    converted: ConvertedModel,
    graph: OpenVinoConverterGraph,
    keys: Mapping[str, str] = MappingProxyType({}),
    places: Sequence[PlacesInfo] = (),
    bfloat16: bool = False,
    exact_nan: bool = False,
) -> bytes:
    """The blob of `converted`, the model in `graph`: `places` are the places in tensors that inputs hold, `bfloat16`
    whether products may be computed in it, `exact_nan` whether NaN passes activations behind layers, too. Weights that
    have a key are in the named data.

    Raises `PreprocessError` if OpenVINO refuses the graph.
    """
    named = _named(converted)
    infos = [replace(info, places=tuple(of for of in places if of.input == name)) for name, info in named]
    weights = _brought_out(converted.model.graph)
    model = _read(converted, weights, exact_nan)
    read = {parameter.get_friendly_name() for parameter in model.get_parameters()}
    # of a control flow of whose result only the shape is asked, OpenVINO reads no input
    infos = [replace(info, used=info.used and f"{INPUT}{place}" in read) for place, info in enumerate(infos)]
    xml, constants = _serialized(model)
    _check_loading(xml, len(constants))
    kept = [weight for weight in weights if weight.name not in keys]
    offsets = FORMAT.places(weight.content.nbytes for weight in kept)
    blob = Blob(
        openvino.__version__,
        tuple(infos),
        tuple(_info(info) for info in converted.outputs),
        tuple(Weight(w.dtype, w.shape, 0 if w.name in keys else next(offsets), keys.get(w.name)) for w in weights),
        xml,
        constants,
        int8_products=graph.rounded > 0 and not graph.exact,
        bfloat16=bfloat16,
    )
    return pack(blob, [weight.content.tobytes() for weight in kept])


# ---- the ONNX graph -----------------------------------------------------------------------------------------------


def _named(converted: ConvertedModel) -> list[tuple[str, TensorInfo]]:
    """Name the inputs after their place, leave out those that nothing reads; their former names, and the infos."""
    graph, inputs = converted.model.graph, {value.name: value for value in converted.model.graph.inputs}
    infos = []
    for place, info in enumerate(converted.inputs):
        value = inputs.get(info.name)
        if value is None or not readers_of(value):
            known = info.dtype in (*DTYPES, PAIRS)  # an argument that nothing reads may be of any other
            unused = replace(_info(info), used=False) if known else TensorInfo("bool", (), used=False)
            infos.append((info.name, unused))
        else:
            infos.append((info.name, _info(info)))
            value.name = f"{INPUT}{place}"
    unread = [value for value in graph.inputs if not readers_of(value)]
    for value in unread:
        graph.inputs.remove(value)
    return infos


def _info(info: BlobTensor) -> TensorInfo:
    return TensorInfo(info.dtype, info.shape, info.scalar)


@dataclass(frozen=True, slots=True)
class OutsideWeight:
    """A weight outside the IR, by the name of its initialiser: its stored content, `dtype` and `shape`."""

    name: str
    content: NDArray[Any]
    dtype: str
    shape: tuple[int, ...]


def _brought_out(graph: ir.Graph) -> list[OutsideWeight]:
    """Turn large initialisers into inputs, equal ones into one."""
    weights: list[OutsideWeight] = []
    inputs: dict[tuple[object, ...], ir.Value] = {}
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        assert tensor is not None
        if tensor.nbytes <= INLINE_BYTES:
            continue
        packed = tensor.dtype == ir.DataType.UINT4
        content = np.frombuffer(tensor.tobytes(), np.uint8) if packed else np.ascontiguousarray(tensor.numpy())
        shape = tuple(tensor.shape.numpy())
        key = tensor.dtype, shape, hashlib.sha256(content.view(np.uint8).data).digest()
        if key in inputs:
            ir.convenience.replace_all_uses_with(graph.initializers.pop(name), inputs[key])
            continue
        dtype = CODES if packed else str(content.dtype)
        made_input(graph, value)
        value.name = f"{WEIGHT}{len(weights)}"
        inputs[key] = value
        weights.append(OutsideWeight(name.removesuffix(CODES_OF), content, dtype, shape))
    return weights


# ---- OpenVINO's model ---------------------------------------------------------------------------------------------


@cache
def _core() -> openvino.Core:
    return reading_core()


def _read(converted: ConvertedModel, weights: Sequence[OutsideWeight], exact_nan: bool) -> openvino.Model:
    try:
        model = _core().read_model(ir.to_proto(converted.model).SerializeToString(), b"")
        for operation in operations_of(model):
            if operation.get_type_name() == "Identity":
                operation.output(0).replace(operation.input_value(0))
            elif operation.get_type_name() == "Gather":
                _count_axis_from_behind(operation)
        make_exact(model, behind_layers=exact_nan)
        compute_known_values(_core(), model, {f"{WEIGHT}{i}": weight.content for i, weight in enumerate(weights)})
        outputs = [
            opset.result(_computed(result.input_value(0), info.dtype))
            for result, info in zip(model.get_results(), converted.outputs, strict=True)
        ]
        return openvino.Model(outputs, model.get_parameters(), "delegate")
    except RuntimeError as error:  # OpenVINO's checks of operands
        raise PreprocessError(f"OpenVINO {openvino.__version__} refuses the converted graph: {error}") from error


def _count_axis_from_behind(gather: openvino.Node) -> None:
    """OpenVINO folds a permutation of channels whose axis is counted from the front into the weights of the convolution
    behind it, and inverts the permutation there."""
    axis, rank = gather.input_value(2).get_node(), gather.input_value(0).get_partial_shape().rank
    if axis.get_type_name() == "Constant" and rank.is_static:
        behind = int(axis.get_data().item()) % rank.get_length() - rank.get_length()
        gather.input(2).replace_source_output(openvino.op.Constant(np.array(behind, np.int64)).output(0))


def _computed(output: Output, dtype: str) -> Output:
    """An input or a weight that is an output, behind an operation that changes nothing: without it OpenVINO does not
    write into the memory of the output."""
    source = output.get_node()
    while source.get_type_name() == "Convert":  # of bfloat16, the dtype of the output
        source = source.input_value(0).get_node()
    if source.get_type_name() not in ("Parameter", "Constant"):
        return output
    kind = output.get_element_type()
    if kind == Type.boolean:
        kept = opset.logical_or(output, output)
    elif kind.is_integral():
        kept = opset.bitwise_or(output, opset.constant(np.array(0), kind))
    else:
        kept = opset.select(
            opset.is_nan(output), opset.convert_like(opset.constant(np.float32(np.nan)), output), output
        )
    result: Output = kept.output(0)
    return result


def _serialized(model: openvino.Model) -> tuple[bytes, bytes]:
    """The IR's two files, which OpenVINO only writes to disk."""
    _name_by_place(model)
    with tempfile.TemporaryDirectory(prefix="delegraph-openvino-") as folder:
        xml, constants = Path(folder, "model.xml"), Path(folder, "model.bin")
        openvino.serialize(model, xml, constants)
        return xml.read_bytes(), constants.read_bytes()


def _check_loading(xml: bytes, bin_size: int) -> None:
    """Raise if loading would refuse the IR."""
    try:
        read_ir(xml, bin_size)
    except DelegateInvalidCompatibility as error:
        raise PreprocessError(f"OpenVINO's graph would be refused when it is loaded: {error}") from error


def _name_by_place(model: openvino.Model) -> None:
    """Name all operations by place but inputs and those named after a node: OpenVINO numbers them through the whole
    process, and the same graph would be another file each time. Values between have no names: one that is simplified
    away would lend its name to an input."""
    for place, operation in enumerate(model.get_ordered_ops()):
        for output in operation.outputs():
            is_input = operation.get_type_name() == "Parameter"
            output.get_tensor().set_names({operation.get_friendly_name()} if is_input else set())
        after_a_node = "/" in operation.get_friendly_name()
        if operation.get_type_name() != "Parameter" and not after_a_node:
            operation.set_friendly_name(f"{operation.get_type_name()}_{place}")
    for place, output in enumerate(model.outputs):
        output.get_tensor().set_names({f"output_{place}"})
