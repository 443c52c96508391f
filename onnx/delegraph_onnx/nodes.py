"""The calls of an edge graph -> ONNX operators, each through the table of converters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import onnx_ir as ir
import torch
from torch.fx import Graph, Node

from delegraph.aot.authoring import GraphConverter
from delegraph_onnx.converters import TargetTable
from delegraph_onnx.fusion import Fusion
from delegraph_onnx.graph_builder import Converted, GraphBuilder
from delegraph_onnx.node_facts import inner_shape_of

__all__ = ["CallConverter"]


class CallConverter(GraphConverter[ir.Value]):
    """Adds the calls of a graph to what `builder` makes: those of a fusion together, every other by itself."""

    def __init__(self, builder: GraphBuilder) -> None:
        super().__init__()
        self.table = TargetTable(builder.target)  # type: ignore[misc]  # a table for each target
        self.builder = builder
        self.values = builder.values
        self._fused: Mapping[Node, Fusion] = MappingProxyType({})
        self._replaced: frozenset[Node] = frozenset()

    def fuse(self, fused: Mapping[Node, Fusion]) -> None:
        """Let these be converted together, each where its root is."""
        self._fused = fused
        self._replaced = frozenset(node for fusion in fused.values() for node in fusion.replaced)

    def convert_calls(self, graph: Graph) -> None:
        self.builder.prepare(graph)
        super().convert_calls(graph)

    def convert_call(self, node: Node) -> None:
        if node in self._fused:
            with self.builder.on_behalf_of(node, *self._fused[node].replaced):
                self._fused[node].convert(self.builder)
        elif node not in self._replaced:
            with self.builder.on_behalf_of(node):
                super().convert_call(node)

    def call(self, node: Node) -> Converted:
        convert = self.table.required(node)
        value = self.builder.own(node)
        if value is None:
            value = convert(self.builder, node)
        if isinstance(value, ir.Value) and isinstance(node.meta["val"], torch.Tensor):
            self.builder.record(value, inner_shape_of(node))
        return value

    def element(self, node: Node) -> ir.Value:
        source, index = node.args
        integers = self.builder.integers.get(source)  # type: ignore[arg-type]
        if isinstance(integers, Sequence):
            self.builder.integers[node] = integers[index]  # type: ignore[index]
        return super().element(node)
