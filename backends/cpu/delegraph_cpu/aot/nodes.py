"""The calls of an edge graph -> ONNX operators, each through the table of converters."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import onnx_ir as ir
import torch
from torch.fx import Graph, Node

from delegraph.errors import UnsupportedOperator
from delegraph_cpu.aot.converters import Converter, converter_of
from delegraph_cpu.aot.fusions import Fusion
from delegraph_cpu.aot.graph_builder import GraphBuilder, inner_shape_of
from delegraph_cpu.aot.quantized import on_integers, quantized_converter, unpacking_converter, wanted_grids

__all__ = ["convert_calls", "support"]


def support(node: Node) -> str | None:
    """None if `node` can be converted, else why not."""
    if node.target is operator.getitem:
        return _support_getitem(node)
    converter = _converter(node)
    return f"no converter for {node.target}" if converter is None else converter.support(node)


def convert_calls(builder: GraphBuilder, graph: Graph, fused: Mapping[Node, Fusion] = MappingProxyType({})) -> None:
    """Convert all calls: those of a fusion together, every other by itself."""
    builder.wanted.update(wanted_grids(graph))
    replaced = {node for fusion in fused.values() for node in fusion.replaced}
    for node in graph.nodes:
        if node in fused:
            with builder.on_behalf_of(node, *fused[node].replaced):
                fused[node].convert(builder)
        elif node.op == "call_function" and node not in replaced:
            with builder.on_behalf_of(node):
                _convert_node(builder, node)


def _convert_node(builder: GraphBuilder, node: Node) -> None:
    reason = support(node)
    if reason is not None:
        raise UnsupportedOperator(
            f"CpuBackend cannot convert {node.target}: {reason}", node=node.name, location=node.meta.get("stack_trace")
        )
    if node.target is operator.getitem:
        source, index = node.args
        results = builder.values[source]  # type: ignore[index]
        assert not isinstance(results, ir.Value)
        picked = results[index]  # type: ignore[index]
        assert picked is not None
        builder.values[node] = picked
        integers = builder.integers.get(source)  # type: ignore[arg-type]
        if isinstance(integers, Sequence):
            builder.integers[node] = integers[index]  # type: ignore[index]
    else:
        value = on_integers(builder, node)
        if value is None:
            converter = _converter(node)
            assert converter is not None
            value = converter.convert(builder, node)
        builder.values[node] = value
        if isinstance(value, ir.Value) and isinstance(node.meta["val"], torch.Tensor):
            builder.record(value, inner_shape_of(node))


def _converter(node: Node) -> Converter | None:
    return unpacking_converter(node) or converter_of(node) or quantized_converter(node)


def _support_getitem(node: Node) -> str | None:
    source = node.args[0]
    assert isinstance(source, Node)
    reason = support(source) if source.op == "call_function" else "its source is not an operator"
    return None if reason is None else f"{source.name} is left: {reason}"
