"""A stranger's ONNX graph -> the same graph, written by us; and what initializers say of data that lies elsewhere.

    bytes ── checked_graph ──> messages ── references to the blob's weights ──> bytes for the engine

How a graph refers to a weight is written anew as well, so that no name of a file passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from types import MappingProxyType
from typing import TypeAlias

from delegraph.interfaces import Buffer
from delegraph.lazy_dataclass import dataclass
from delegraph_cpu.blob import ITEM_SIZES
from delegraph_cpu.graphs.checks import ELEMENT_TYPES, EXTERNAL, OperatorOf, checked_graph, operator_of
from delegraph_cpu.graphs.filed import filed_tensor, in_file
from delegraph_cpu.graphs.messages import Message
from delegraph_cpu.graphs.wire import encoded, refused

__all__ = [
    "ExternalTensor",
    "WeightType",
    "external_place",
    "external_tensors",
    "rewritten",
    "with_initializers",
    "without_data",
]

WeightType: TypeAlias = "tuple[str, tuple[int, ...]]"
"""A weight's dtype and shape, in the graph: complex numbers are pairs along one more dim."""


def rewritten(
    graph: Buffer,
    weights: Mapping[str, WeightType],
    rule: OperatorOf = operator_of,
    files: Mapping[str, int] = MappingProxyType({}),
) -> bytes:
    """The bytes of a graph for the engine. Its initializers whose data is not in it are among `weights`, or in `files`
    of these sizes.

    Raises `DelegateInvalidCompatibility` for a graph that lowering does not write.
    """
    change = partial(_referring, left=dict(weights), files=files)
    return b"".join(encoded(with_initializers(checked_graph(graph, rule), change)))


def with_initializers(model: Message, change: Callable[[Message], Message]) -> Message:
    """The model with other initializers in its main graph."""
    main = model["graph"]
    if "initializer" not in main:
        return model
    return model | {"graph": main | {"initializer": list(map(change, main["initializer"]))}}


# ---- data that lies elsewhere ---------------------------------------------------------------------------------------


def _referring(tensor: Message, left: dict[str, WeightType], files: Mapping[str, int]) -> Message:
    """An initializer of the main graph; if it is a weight of the blob, with our words for it. Each is taken once."""
    if "external_data" not in tensor and "data_location" not in tensor:
        return tensor
    name, dims = tensor.get("name", ""), tuple(tensor.get("dims", ()))
    weight = left.pop(name, None)
    if weight is None and files:
        return in_file(tensor, files)
    if weight is None:
        raise refused(f"tensor {name!r:.80} refers to a file, and is not one of its weights")
    dtype, shape = weight
    if (ELEMENT_TYPES[tensor["data_type"]], dims) != weight:
        raise refused(f"weight {name!r:.80} is {dtype} {shape}, and not what its graph reads")
    return without_data(tensor) | external_place("weights", 0, prod(shape) * ITEM_SIZES[dtype])


def without_data(tensor: Message) -> Message:
    """A tensor's type, dims and name."""
    return {field: value for field, value in tensor.items() if field in ("dims", "data_type", "name")}


def external_place(file: str, offset: int, nbytes: int) -> Message:
    """The fields of a tensor whose data lies elsewhere; an engine that was handed the weight under its name does not
    look there."""
    words = {"location": file, "offset": str(offset), "length": str(nbytes)}
    return {
        "external_data": [{"key": key, "value": value} for key, value in words.items()],
        "data_location": EXTERNAL,
    }


@dataclass(frozen=True, slots=True)
class ExternalTensor:
    """An initializer whose data lies elsewhere: `nbytes` at `offset`."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    offset: int
    nbytes: int


def external_tensors(model: Message, file: str) -> list[ExternalTensor]:
    """The initializers of a checked graph whose data lies in `file`. Raises as `rewritten`."""
    tensors = [tensor for tensor in model["graph"].get("initializer", ()) if "external_data" in tensor]
    return [_place(tensor) for tensor in tensors if filed_tensor(tensor).file == file]


def _place(tensor: Message) -> ExternalTensor:
    filed, dtype = filed_tensor(tensor), ELEMENT_TYPES[tensor["data_type"]]
    return ExternalTensor(tensor["name"], dtype, tuple(tensor.get("dims", ())), filed.offset, filed.nbytes)
