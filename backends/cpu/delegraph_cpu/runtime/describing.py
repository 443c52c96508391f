"""A blob -> what is in it: the nodes of its ONNX graph, its weights, the small ones in the graph as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from delegraph.interfaces import BlobTensor, Buffer, DelegateDescription, DelegateNode, DelegateWeight, DescribedTensor
from delegraph_cpu.blob import Blob
from delegraph_cpu.graphs.checks import ELEMENT_TYPES, checked_graph, operator_of
from delegraph_cpu.graphs.messages import Message

__all__ = ["described", "node_names"]


def described(blob: Blob, named_data: Mapping[str, Buffer]) -> DelegateDescription:
    """The content of a blob. Raises `DelegateInvalidCompatibility` for one that is damaged."""
    graph = checked_graph(blob.graph, operator_of)["graph"]
    inline = [_inline(tensor) for tensor in graph.get("initializer", ()) if "external_data" not in tensor]
    rest = memoryview(blob.graph).nbytes - sum(weight.nbytes for weight in inline)
    return DelegateDescription(
        nodes=tuple(_nodes(graph, {weight.name: weight.sources for weight in blob.unpacked})),
        weights=(*_stored(blob, named_data), *inline),
        inputs=tuple(map(_argument, blob.inputs)),
        outputs=tuple(map(_argument, blob.outputs)),
        options={"onnxruntime": blob.onnxruntime},
        parts={"graph": rest},
    )


def node_names(blob: Blob) -> frozenset[str]:
    """The names of the nodes of its graph. Raises `DelegateInvalidCompatibility` for one that is damaged."""
    return frozenset(node.name for node in _nodes(checked_graph(blob.graph, operator_of)["graph"], {}))


def _argument(info: BlobTensor) -> DescribedTensor:
    return DescribedTensor(info.name, info.dtype, info.shape)


def _stored(blob: Blob, named_data: Mapping[str, Buffer]) -> Iterator[DelegateWeight]:
    """The weights beside the graph, and the values with which states begin, unless these are zeros."""
    for weight in blob.weights:
        data = blob.bytes_of(weight, named_data)
        yield DelegateWeight(weight.name, weight.dtype, weight.shape, weight.nbytes, weight.key, data=data)
    for state in blob.states:
        if state.initial is not None:
            data = memoryview(blob.data)[state.initial : state.initial + state.nbytes]
            yield DelegateWeight(state.name, state.dtype, state.shape, state.nbytes, names=(state.buffer,), data=data)


def _inline(tensor: Message) -> DelegateWeight:
    data: bytes = tensor.get("raw_data", b"")
    dtype, shape = ELEMENT_TYPES[tensor["data_type"]], tuple(tensor.get("dims", ()))
    return DelegateWeight(tensor["name"], dtype, shape, len(data), data=data)


def _nodes(graph: Message, unpacked: Mapping[str, Sequence[str]]) -> Iterator[DelegateNode]:
    """The nodes of a graph, those of bodies behind the node that runs them; a weight that is unpacked at load stands as
    the weights that it is made of."""
    types = {value["name"]: value for side in ("value_info", "output") for value in graph.get(side, ())}
    for node in graph.get("node", ()):
        inputs = [source for name in node.get("input", ()) for source in unpacked.get(name, (name,)) if source]
        outputs = [_value(name, types) for name in node.get("output", ()) if name]
        name = node.get("name") or outputs[0].name
        yield DelegateNode(name, node["op_type"], tuple(inputs), tuple(outputs), name)
        for attribute in node.get("attribute", ()):
            if "g" in attribute:
                yield from _nodes(attribute["g"], unpacked)


def _value(name: str, types: Mapping[str, Message]) -> DescribedTensor:
    """A value, with its type if the graph tells it: it does of its outputs, hardly of what is between."""
    kind = types.get(name, {}).get("type", {}).get("tensor_type")
    if kind is None:
        return DescribedTensor(name)
    dims = kind.get("shape", {}).get("dim", ())
    shape = tuple(dim.get("dim_value", dim.get("dim_param", "?")) for dim in dims)
    return DescribedTensor(name, ELEMENT_TYPES[kind["elem_type"]], shape)
