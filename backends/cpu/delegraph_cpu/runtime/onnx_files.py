"""A blob's graph and weights -> an ONNX model that onnxruntime, and viewers, open by themselves.

The graph is copied field by field, each weight into its initializer. Nothing is parsed further, and
weights are not copied: files come in pieces. Numbers of fields are those of `onnx.proto3`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from numpy.typing import NDArray

from delegraph.interfaces import Buffer
from delegraph_cpu.blob import bytes_of, damaged
from delegraph_cpu.graph_files import ELEMENT_TYPES, encoded, external_tensor, fields
from delegraph_cpu.runtime.ort_values import as_pairs

__all__ = ["onnx_files"]

_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
_TENSOR_RAW_DATA, _TENSOR_EXTERNAL_DATA, _TENSOR_DATA_LOCATION = 9, 13, 14
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_EXTERNAL: Final = 1
"""A value of `TensorProto.DataLocation`."""

_LARGEST: Final = 2**31 - 1
"""The largest size of a protobuf (protobuf.dev/programming-guides/proto-limits)."""
_PAGE: Final = 4096
"""Offsets of external data are multiples of this, so that it can be mapped (onnx.ai, "External data")."""

Place: TypeAlias = Callable[[memoryview], Iterator[Buffer]]
"""The data of a tensor -> the fields that contain it, or its place."""


def onnx_files(name: str, graph: Buffer, weights: Mapping[str, NDArray[Any]]) -> dict[str, Sequence[Buffer]]:
    """`name.onnx`; and `name.onnx.data` with the weights, if they do not fit into a protobuf.

    Raises `DelegateInvalidCompatibility` if the weights do not belong to the graph.
    """
    model = _model(graph, weights, lambda data: iter(encoded(_TENSOR_RAW_DATA, [data])))
    if sum(memoryview(piece).nbytes for piece in model) <= _LARGEST:
        return {f"{name}.onnx": model}
    beside = _Beside(f"{name}.onnx.data")
    model = _model(graph, weights, beside.place)
    return {beside.file: beside.pieces, f"{name}.onnx": model}


class _Beside:
    """A file of data that tensors refer to."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.pieces: list[Buffer] = []
        self._end = 0

    def place(self, data: memoryview) -> Iterator[Buffer]:
        for key, value in {"location": self.file, "offset": self._end, "length": data.nbytes}.items():
            entry = [*encoded(_ENTRY_KEY, [key.encode()]), *encoded(_ENTRY_VALUE, [str(value).encode()])]
            yield from encoded(_TENSOR_EXTERNAL_DATA, entry)
        yield from encoded(_TENSOR_DATA_LOCATION, _EXTERNAL)
        self.pieces += [data, bytes(-data.nbytes % _PAGE)]
        self._end += -(-data.nbytes // _PAGE) * _PAGE


# ---- messages -------------------------------------------------------------------------------------------------------


def _model(graph: Buffer, weights: Mapping[str, NDArray[Any]], place: Place) -> list[Buffer]:
    initializer = partial(_initializer, weights=weights, place=place)
    in_graph = partial(_copied, changed=_GRAPH_INITIALIZER, change=initializer)
    return list(_copied(memoryview(graph).cast("B"), _MODEL_GRAPH, in_graph))


def _copied(message: memoryview, changed: int, change: Callable[[memoryview], Iterator[Buffer]]) -> Iterator[Buffer]:
    """The fields of a message, the contents of those with the number `changed` replaced by `change`."""
    for number, content in fields(message):
        if isinstance(content, int):
            yield from encoded(number, content)
        elif content is not None:  # there are no others in these messages
            yield from encoded(number, list(change(content)) if number == changed else [content])


def _initializer(tensor: memoryview, weights: Mapping[str, NDArray[Any]], place: Place) -> Iterator[Buffer]:
    """The fields of a tensor, and its data if that is one of the weights."""
    try:
        said = external_tensor(tensor)
    except ValueError as error:
        raise damaged(f"what its graph says of a weight cannot be read: {error!s:.80}") from error
    if said is None:
        yield tensor
        return
    array = as_pairs(weights[said.name]) if said.name in weights else None
    if array is None or (str(array.dtype), array.shape) != (ELEMENT_TYPES.get(said.element_type), said.dims):
        raise damaged(f"weight {said.name!r:.80} is not what its graph reads")
    for number, content in fields(tensor):
        if content is not None and number not in _PLACES:
            yield from encoded(number, content if isinstance(content, int) else [content])
    yield from place(bytes_of(array))


_PLACES: Final = (_TENSOR_RAW_DATA, _TENSOR_EXTERNAL_DATA, _TENSOR_DATA_LOCATION)
