"""An ONNX graph with weights of 8 bits -> the same graph with their values in float32, which MNN's reader gets right.

w: int8 ──> DequantizeLinear ──> y          y: float32, a weight
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph.interfaces import Buffer
from delegraph_cpu.graphs.checks import ELEMENT_TYPES, checked_graph, operator_of
from delegraph_cpu.graphs.messages import Message
from delegraph_cpu.graphs.rewriting import external_place
from delegraph_cpu.graphs.wire import encoded, refused

__all__ = ["with_float_weights"]

_FLOAT: Final = 1
"""The element type in ONNX (`onnx.proto`, `TensorProto.DataType`)."""
Arrays = dict[str, NDArray[Any]]


def with_float_weights(graph: Buffer, weights: Mapping[str, NDArray[Any]]) -> tuple[bytes, Arrays]:
    """A graph without DequantizeLinear, and its weights. Raises `DelegateInvalidCompatibility` for a graph that
    lowering does not write, and for one that dequantizes anything but weights."""
    model = checked_graph(graph, operator_of)
    main = model["graph"]
    known: Arrays = {**_inline(main), **weights}
    floats: Arrays = {}
    kept = []
    for node in main.get("node", ()):
        if node["op_type"] == "DequantizeLinear":
            floats[node["output"][0]] = _dequantized(node, known)
        else:
            kept.append(node)
    if not floats:
        return bytes(graph), dict(weights)
    read = {name for node in kept for name in node.get("input", ())}
    left = [tensor for tensor in main["initializer"] if tensor["name"] in read]
    initializers = [*left, *(_reference(name, array) for name, array in floats.items())]
    told = {name: array for name, array in {**weights, **floats}.items() if name in read}
    return b"".join(encoded(model | {"graph": main | {"node": kept, "initializer": initializers}})), told


def _inline(main: Message) -> Arrays:
    """The small weights, which lie in the graph."""
    return {
        tensor["name"]: np.frombuffer(tensor["raw_data"], ELEMENT_TYPES[tensor["data_type"]]).reshape(
            tensor.get("dims", ())
        )
        for tensor in main.get("initializer", ())
        if "raw_data" in tensor and ELEMENT_TYPES[tensor["data_type"]] in _READ
    }


_READ: Final = ("float32", "int8")


def _dequantized(node: Message, known: Arrays) -> NDArray[Any]:
    """A weight's values (onnx.ai, "DequantizeLinear"), with one scale, or one for each place along `axis`."""
    attributes = {attribute["name"]: attribute.get("i", 0) for attribute in node.get("attribute", ())}
    axis = attributes.pop("axis", 1)
    operands = [known[name] for name in node["input"] if name in known]
    if attributes or len(operands) < len(node["input"]) or [str(a.dtype) for a in operands[:2]] != ["int8", "float32"]:
        raise refused("it dequantizes something else than a weight of 8 bits by a scale")
    codes = operands[0]
    grid = [
        a.reshape([-1 if dim == axis % max(codes.ndim, 1) else 1 for dim in range(codes.ndim)]) for a in operands[1:]
    ]
    if any(a.size != 1 and (not -codes.ndim <= axis < codes.ndim or a.size != codes.shape[axis]) for a in grid):
        raise refused(f"a weight of {codes.shape} has scales of {operands[1].shape} along {axis}")
    zero = grid[1].astype(np.float32) if len(grid) > 1 else np.float32(0)
    values: NDArray[Any] = (codes.astype(np.float32) - zero) * grid[0]
    return values


def _reference(name: str, array: NDArray[Any]) -> Message:
    dims = {"dims": list(array.shape)} if array.ndim else {}
    return dims | {"data_type": _FLOAT, "name": name} | external_place("weights", 0, array.nbytes)
