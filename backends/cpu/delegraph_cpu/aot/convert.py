"""Edge program -> ONNX model for onnxruntime: its own operators and integer kernels where they apply, else the table's.

Each kind of fused calls has a module, which finds all occurrences. Values that were computed for these
calls alone (a mask, a rotation) is converted too, and left out with all that no output needs (`GraphBuilder.model`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import onnx_ir as ir
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from delegraph.aot import ResolvedSignature
from delegraph_cpu.aot.fusions.cached_attention import cached_attentions
from delegraph_cpu.aot.fusions.rms_norm import rms_norms
from delegraph_cpu.aot.fusions.rotary_embedding import rotary_embeddings
from delegraph_cpu.aot.fusions.scaled_products import part_scales
from delegraph_cpu.aot.fusions.skip_norms import norms_of_sums
from delegraph_cpu.aot.graph import CpuGraph
from delegraph_cpu.aot.quantized import on_integers, wanted_grids
from delegraph_cpu.aot.quantized.packed import products_of_experts
from delegraph_cpu.codes import Codes
from delegraph_onnx import convert as onnx_convert
from delegraph_onnx.convert import ConvertedModel
from delegraph_onnx.graph_builder import Fusion

__all__ = ["CpuModel", "FusingGraph", "convert"]


@dataclass(frozen=True, slots=True)
class CpuModel(ConvertedModel):
    """The ONNX model of a partition; `codes` maps the names of weights to the codes that they are stored as."""

    codes: Mapping[str, Codes] = field(default_factory=dict)


def convert(program: ExportedProgram, *, int8_inputs: bool = False, int8_products: bool = False) -> CpuModel:
    """The ONNX model of `program`. Raises `UnsupportedOperator` for a node that the table declines.

    `int8_inputs`, `int8_products`: see `cpu_partitioner`.
    """
    graph = FusingGraph(int8_inputs=int8_inputs, int8_products=int8_products)
    converted = onnx_convert.convert(program, graph)
    parts = {part.name: getattr(converted, part.name) for part in fields(converted)}
    return CpuModel(**parts, codes=graph.codes)


class FusingGraph(CpuGraph):
    """Adds onnxruntime's operators for several calls, for integers, and for experts."""

    def prepare(self, graph: Graph) -> None:
        self.wanted.update(wanted_grids(graph))

    def fusions(self, graph: Graph, signature: ResolvedSignature) -> Mapping[Node, Fusion]:
        fused: list[Fusion] = [
            *rotary_embeddings(graph),  # of which attention to a cache needs none
            *cached_attentions(graph, signature),
            *rms_norms(graph, signature),
        ]
        return {fusion.root: fusion for fusion in fused}

    own = on_integers
    products_of_experts = products_of_experts

    def finished(self, nodes: Sequence[ir.Node], outputs: Sequence[ir.Value]) -> Sequence[ir.Node]:
        part_scales(nodes, self.constant)
        return norms_of_sums(nodes, outputs, self.shape_of)
