"""Weights that lie beside an ONNX graph in its blob: which initialisers they are while the graph is edited."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import onnx_ir as ir

from delegraph_cpu.blob import BACKEND_ID

__all__ = ["bring_out_of_bodies", "key_of", "lay_beside", "lies_beside", "reference", "taken_out"]

_BESIDE: Final = "beside"
"""The key in a value's metadata, which no file has."""


def lay_beside(value: ir.Value, content: ir.TensorProtocol | None = None) -> None:
    """Let an initialiser lie beside the graph, with `content` if there is one."""
    if content is not None:
        value.const_value = content
    value.meta[_BESIDE] = True


def lies_beside(value: ir.Value) -> bool:
    """Whether an initialiser lies beside the graph."""
    return _BESIDE in value.meta


def reference(name: str, dtype: ir.DataType, shape: Sequence[int], nbytes: int) -> ir.ExternalTensor:
    """A graph's entry for an initialiser whose content lies beside it."""
    return ir.ExternalTensor("weights", 0, nbytes, dtype, shape=ir.Shape(shape), name=name)


def taken_out(graph: ir.Graph) -> dict[str, ir.TensorProtocol]:
    """The contents of the initialisers beside `graph`, which only refers to them then."""
    taken = dict[str, ir.TensorProtocol]()
    for name, value in graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and lies_beside(value):
            taken[name] = tensor
            value.const_value = reference(name, tensor.dtype, tensor.shape.numpy(), tensor.nbytes)
    return taken


def bring_out_of_bodies(model: ir.Model) -> None:
    """Let only the main graph have weights beside it, not the bodies of its If, Loop and Scan.

        If { c = folded constant; y = x + c }            c;  If { y = x + c }

    A weight that cannot move to the main graph, because its name is taken there or it is an output of the body, becomes
    part of the body.
    """
    names = Counter(name for graph in model.graphs() for name in _defined(graph))
    for body in model.graph.subgraphs():
        for name, value in list(body.initializers.items()):
            if lies_beside(value) and (names[name] > 1 or value.is_graph_output()):
                del value.meta[_BESIDE]
            elif lies_beside(value):
                del body.initializers[name]
                model.graph.register_initializer(value)


def _defined(graph: ir.Graph) -> Iterator[str | None]:
    yield from {*graph.initializers, *(value.name for value in graph.inputs)}
    yield from (value.name for node in graph for value in node.outputs)


def key_of(content: memoryview) -> str:
    """The key of a weight's bytes in the named data: by content, since optimisation may change a weight and keep its
    name; the shape does not matter."""
    return f"{BACKEND_ID}/{hashlib.sha256(content).hexdigest()}"
