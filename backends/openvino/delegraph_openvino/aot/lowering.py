"""A partition's edge program -> the blob that `delegraph_openvino.runtime` executes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import openvino
import torch
from openvino import Output, Type
from openvino import opset15 as opset
from torch.export import ExportedProgram
from torch.fx import Graph

from delegraph.aot.authoring import lower_sharing_weights, operator_name
from delegraph.errors import PreprocessError
from delegraph.interfaces import BackendDetails, CompileSpec, PreprocessResult
from delegraph_openvino.aot.graph_builder import INLINE_BYTES, GraphBuilder, dtype_of, tensor_info
from delegraph_openvino.aot.rounded_values import PRODUCTS
from delegraph_openvino.aot.table_places import places_of_inputs
from delegraph_openvino.blob import ALIGNMENT, BACKEND_ID, BLOB_VERSION, Blob, TensorInfo, Weight, pack, places
from delegraph_openvino.ir_check import check_ir

__all__ = ["OpenVinoLowering"]


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
    builder = GraphBuilder()
    try:
        outputs = builder.convert_program(program)
        results = builder.signature.outputs
        given = [_computed(builder.cast(output, dtype_of(node))) for output, node in zip(outputs, results, strict=True)]
        typed = [_narrowed(output, dtype_of(node)) for output, node in zip(given, results, strict=True)]
        parameters = [*builder.parameters, *(weight.parameter for weight in builder.weights.values())]
        model = openvino.Model([opset.result(output) for output in typed], parameters, "delegate")
    except RuntimeError as error:  # OpenVINO's checks of operands
        raise PreprocessError(f"OpenVINO {openvino.__version__} refuses the converted graph: {error}") from error
    xml, constants = _serialized(model)
    check_ir(xml, len(constants))
    kept = {name: weight.content for name, weight in builder.weights.items() if name not in keys}
    offsets = dict(zip(kept, places([array.nbytes for array in kept.values()]), strict=True))
    blob = Blob(
        openvino.__version__,
        _with_places(builder, program.graph),
        tuple(tensor_info(node) for node in results),
        tuple(
            Weight(weight.dtype, weight.shape, offsets.get(name, 0), keys.get(name))
            for name, weight in builder.weights.items()
        ),
        xml,
        constants,
        int8_products=builder.rounded > 0 and not builder.exact,
        bfloat16=_multiplies_bfloat16(program.graph),
    )
    handles = {name: found for name, found in builder.debug_handle_map.items() if found}
    return PreprocessResult(pack(blob, [array.tobytes() for array in kept.values()]), debug_handle_map=handles)


def _with_places(builder: GraphBuilder, graph: Graph) -> tuple[TensorInfo, ...]:
    """The inputs, and which places their elements pick."""
    found = places_of_inputs(graph)
    given = zip(builder.signature.inputs, builder.inputs, strict=True)
    return tuple(replace(info, places=found.get(node)) for node, info in given)


def _serialized(model: openvino.Model) -> tuple[bytes, bytes]:
    """The IR's two files; OpenVINO writes them nowhere but to files."""
    _name_by_place(model)
    with tempfile.TemporaryDirectory(prefix="delegraph-openvino-") as folder:
        xml, constants = Path(folder, "model.xml"), Path(folder, "model.bin")
        openvino.serialize(model, xml, constants)
        return xml.read_bytes(), constants.read_bytes()


def _name_by_place(model: openvino.Model) -> None:
    """Name by its place what is neither an input nor named after a node: OpenVINO numbers it by all that the process
    has ever made, and the same graph would be another file each time."""
    for place, operation in enumerate(model.get_ordered_ops()):
        after_a_node = "/" in operation.get_friendly_name()
        if operation.get_type_name() != "Parameter" and not after_a_node:
            operation.set_friendly_name(f"{operation.get_type_name()}_{place}")
    for place, output in enumerate(model.outputs):
        output.get_tensor().set_names({f"output_{place}"})


def _computed(output: Output) -> Output:
    """What is an input or a weight as it is, behind an operation that changes nothing: without one OpenVINO leaves the
    memory that it is given for the output as it was."""
    source = output.get_node()
    if source.get_type_name() == "Convert":  # of bfloat16, which the output is again
        source = source.input_value(0).get_node()
    if source.get_type_name() != "Parameter":
        return output
    keep = opset.reduce_logical_or if output.get_element_type() == Type.boolean else opset.reduce_max
    result: Output = keep(output, np.array([], np.int64), keep_dims=True).output(0)
    return result


def _narrowed(output: Output, dtype: torch.dtype) -> Output:
    """bfloat16 where the program's output is that: within the graph it is float32."""
    if dtype != torch.bfloat16:
        return output
    narrow: Output = opset.convert(output, "bf16").output(0)
    return narrow


def _multiplies_bfloat16(graph: Graph) -> bool:
    """Whether there are products (of matrices, convolutions, attention), and all of bfloat16."""
    dtypes = {dtype_of(node) for node in graph.nodes if operator_name(node).split(".")[0] in PRODUCTS}
    return dtypes == {torch.bfloat16}
