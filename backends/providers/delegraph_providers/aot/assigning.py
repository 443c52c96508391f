"""An ONNX graph -> the nodes that a provider leaves to the CPU: told by the provider where it is here, else by the
table of its row.

Of these, nodes that compute sizes and places, in few integers of 64 bits, are the CPU's in every provider: shaders have
no such integers, and shapes are asked for on the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from delegraph_cpu.aot.compiled.beside import lay_beside, taken_out
from delegraph_cpu.sessions import INLINE_BYTES
from delegraph_providers.aot.targets import Taken
from delegraph_providers.engine import ProviderFailed, left_to_the_cpu, require_precision, session
from delegraph_providers.options import GraphOptions
from delegraph_providers.providers import Provider

__all__ = ["ASSIGNMENT", "Assigned", "Graph", "assigned", "assigned_by_table", "graph_of"]

ASSIGNMENT: Final = {"session.record_ep_graph_assignment_info": "1"}
MOST_PLACES: Final = 4096
"""The most integers, in more than one dim, of a node that the CPU computes within a delegate."""
_INT64, _BOOL = onnx.TensorProto.INT64, onnx.TensorProto.BOOL


@dataclass(frozen=True, slots=True)
class Graph:
    """A model without its larger weights, which are beside it."""

    content: bytes
    weights: Mapping[str, ir.TensorProtocol]


@dataclass(frozen=True, slots=True)
class Assigned:
    """The values that left nodes give, with these nodes' operators; and the names of the nodes that the CPU has anyway.
    A node has the name of its first result."""

    left: Mapping[str, str]
    on_host: tuple[str, ...]


def graph_of(model: ir.Model, inline: int = INLINE_BYTES) -> Graph:
    """Take the weights of more than `inline` bytes out of a model, and name its nodes; changes it."""
    for inner in model.graphs():
        for node in inner:
            node.name = node.outputs[0].name
    for value in model.graph.initializers.values():
        tensor = value.const_value  # one that is elsewhere already is a weight of another file
        if tensor is not None and tensor.nbytes > inline and not isinstance(tensor, ir.ExternalTensor):
            lay_beside(value)
    weights = taken_out(model.graph)
    return Graph(ir.to_proto(model).SerializeToString(), weights)


def assigned(provider: Provider, graph: Graph, options: GraphOptions) -> Assigned:
    """The answer of the provider. Raises `NotSupported` where it is not here, or its device does not compute in the
    precision, and `ProviderFailed` for a graph that it refuses."""
    model = onnx.load_from_string(graph.content)
    require_precision(provider, options, ["float16"] if _has_float16(model.graph) else [])
    weights: dict[str, NDArray[Any]] = {name: np.ascontiguousarray(t.numpy()) for name, t in graph.weights.items()}
    made = session(provider, graph.content, {}, ASSIGNMENT, weights=weights, kind=options.device)
    named = {node.name: node for node in model.graph.node}
    left = dict(left_to_the_cpu(made))
    for name, op_type in left.items():
        if name not in named:
            raise ProviderFailed(f"it makes {op_type} {name} of the graph, and leaves that to the CPU")
    return _answer({name: named[name] for name in left}, _types(model) if left else {})


def _has_float16(graph: onnx.GraphProto) -> bool:
    """Whether the graph takes or gives float16, or has weights in it."""
    borders = {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    return onnx.TensorProto.FLOAT16 in borders | {tensor.data_type for tensor in graph.initializer}


def assigned_by_table(graph: Graph, taken: Taken) -> Assigned:
    """The answer of a row's table: a node is taken if its operator is, of the dtypes that it reads and gives."""
    model = onnx.load_from_string(graph.content)
    types = _types(model)
    elements = {name: kind.elem_type for name, kind in types.items()}
    left = {node.name: node for node in model.graph.node if not _is_taken(node, elements, taken)}
    return _answer(left, types)


def _is_taken(node: onnx.NodeProto, elements: Mapping[str, int], taken: Taken) -> bool:
    """Of the first operand and the result, or what is chosen: places and sizes are read beside these."""
    operand = node.input[1] if node.op_type == "Where" else next(iter(node.input), node.output[0])
    tensors = {operand, node.output[0]}
    return not node.domain and all(taken.has(node.op_type, elements.get(name, 0)) for name in tensors)


def _answer(left: Mapping[str, onnx.NodeProto], types: Mapping[str, Any]) -> Assigned:
    """Of the nodes that are left, those that compute few integers of 64 bits, compare, or cast them are the CPU's."""
    on_host = tuple(name for name, node in left.items() if _is_of_places(node, types))
    others = {name: node for name, node in left.items() if name not in on_host}
    return Assigned({value: node.op_type for node in others.values() for value in node.output}, on_host)


def _is_of_places(node: onnx.NodeProto, types: Mapping[str, Any]) -> bool:
    inputs, results = ([types.get(name) for name in names if name] for names in (node.input, node.output))
    elements = {kind.elem_type if kind is not None else 0 for kind in (*inputs, *results)}
    integers = _INT64 in elements and (elements <= {_INT64, _BOOL} or node.op_type in ("Cast", "Shape"))
    return integers and all(map(_is_few, results))


def _is_few(kind: Any) -> bool:
    if kind is None or not kind.HasField("shape"):
        return False
    sizes = [dim.dim_value for dim in kind.shape.dim]  # 0 for a dynamic one
    return len(sizes) <= 1 or 0 < prod(sizes) <= MOST_PLACES


def _types(model: onnx.ModelProto) -> dict[str, Any]:
    """The types of values, by ONNX's own inference."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    known = {value.name: value.type.tensor_type for value in (*graph.input, *graph.value_info, *graph.output)}
    for tensor in graph.initializer:
        kind = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims).tensor_type
        known.setdefault(tensor.name, kind)
    return known
