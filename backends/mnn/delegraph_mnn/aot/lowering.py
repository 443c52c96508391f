"""A partition's edge program -> the blob that `delegraph_mnn.runtime` executes: an ONNX graph that MNN has converted.

The graph is converted here once, so that one which MNN refuses is left to others. The file gets the ONNX graph: its
form is checked at load, and that of MNN's own could not be.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx_ir as ir
from torch.export import ExportedProgram

from delegraph.aot import ResolvedSignature
from delegraph.aot.authoring import as_array
from delegraph.errors import DelegateInvalidCompatibility, PreprocessError
from delegraph.interfaces import BackendDetails, CompileSpec, PreprocessResult
from delegraph_cpu.aot.compiled.beside import lay_beside, taken_out
from delegraph_cpu.aot.compiled.packing import Compiled, laid_beside, packed
from delegraph_cpu.blob import Blob
from delegraph_cpu.sessions import INLINE_BYTES
from delegraph_mnn.aot.target import MNN
from delegraph_mnn.blob import FORMAT
from delegraph_mnn.engine import ConversionFailed, version
from delegraph_mnn.runtime.conversion import convert_into
from delegraph_onnx.convert import convert
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.indexed import indexed_inputs

__all__ = ["MnnLowering"]

_FLOATS = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


class MnnLowering(BackendDetails):
    """Writes partitions as ONNX graphs; the backend id is `MnnBackend`."""

    blob_version: ClassVar[int] = FORMAT.version
    takes_external_weights: ClassVar[bool] = True

    @classmethod
    def preprocess(cls, edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Convert and pack the partition.

        Raises `UnsupportedOperator` for a node that the partitioner should not have claimed, and `PreprocessError` if
        MNN refuses the graph.
        """
        return cls.preprocess_multimethod({"": [edge_program]}, {"": [compile_specs]})[""][0]

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """As `preprocess`, but weights that several partitions have go into the named data, once."""
        programs = [program for of_method in edge_programs.values() for program in of_method]
        results = iter(packed([_compiled(program) for program in programs], programs, FORMAT))
        return {name: [next(results) for _ in of_method] for name, of_method in edge_programs.items()}


def _compiled(program: ExportedProgram) -> Compiled:
    converted = convert(program, GraphBuilder(MNN))
    graph = converted.model.graph
    _compute_in_float32(converted.model)
    external = laid_beside(converted.model, converted.external)
    for value in graph.initializers.values():
        tensor = value.const_value  # one that is elsewhere already is a weight of another file
        if tensor is not None and tensor.nbytes > INLINE_BYTES and not isinstance(tensor, ir.ExternalTensor):
            lay_beside(value)
    weights = taken_out(graph)
    blob = Blob(
        version(), converted.inputs, converted.outputs, (), ir.to_proto(converted.model).SerializeToString(),
        places=indexed_inputs(program.graph, ResolvedSignature.of(program)),
    )  # fmt: skip
    arrays = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in weights.items()}
    arrays |= {weight.info.name: as_array(weight.tensor) for weight in external}
    with tempfile.TemporaryDirectory(prefix="delegraph-mnn-") as folder:
        try:
            convert_into(Path(folder), blob.graph, arrays)
        except (ConversionFailed, DelegateInvalidCompatibility) as error:
            raise PreprocessError(f"MNN {version()} refuses the converted graph: {error}") from error
    return Compiled(blob, weights, external, [], dict(converted.debug_handles))


def _compute_in_float32(model: ir.Model) -> None:
    """Let a graph read, cast to and give float32 in the place of halves, which the running half casts."""
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.dtype in _FLOATS:
            value.dtype = ir.DataType.FLOAT
    for graph in model.graphs():
        for node in graph:
            node.name = node.outputs[0].name  # by which debug handles are found
            if node.op_type == "Cast" and node.attributes["to"].as_int() in _FLOATS:
                node.attributes["to"] = ir.AttrInt64("to", ir.DataType.FLOAT)
