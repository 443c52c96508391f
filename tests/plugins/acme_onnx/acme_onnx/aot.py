"""A partition -> its ONNX model, as `delegraph-onnx` writes it for this engine."""

from __future__ import annotations

import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from delegraph.interfaces import BackendDetails, CompileSpec, Partitioner, PreprocessResult
from delegraph_onnx.convert import convert
from delegraph_onnx.converters import TargetTable
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.target import Target
from delegraph_partitioners import CapabilityBasedPartitioner

ENGINE = Target(
    "AcmeOnnx",
    dtypes=frozenset({torch.float32, torch.int64, torch.bool}),
    attention_from=1 << 30,  # always in its parts
    refuses_places=False,
    recurrent_nan=True,
)
TABLE = TargetTable(ENGINE)


def acme_onnx_partitioner() -> Partitioner:
    return CapabilityBasedPartitioner(ENGINE.name, TABLE.support, keep_whole=TABLE.kept_whole, take_scalars=True)


class AcmeOnnxLowering(BackendDetails):
    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        converted = convert(edge_program, GraphBuilder(ENGINE))
        return PreprocessResult(ir.to_proto(converted.model).SerializeToString())
