"""A blob's graph, written by us, and its weights -> an ONNX model that onnxruntime, and viewers, open by themselves.

Each weight comes into its initializer, or into a file beside the model. Weights are not copied: files come in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from delegraph.interfaces import Buffer
from delegraph_cpu.blob import bytes_of
from delegraph_cpu.graphs.checks import checked_graph, operator_of
from delegraph_cpu.graphs.messages import Message
from delegraph_cpu.graphs.rewriting import external_place, with_initializers, without_data
from delegraph_cpu.graphs.wire import encoded
from delegraph_cpu.runtime.ort_values import as_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["onnx_files"]

_LARGEST: Final = 2**31 - 1
"""The largest size of a protobuf (protobuf.dev/programming-guides/proto-limits)."""
_PAGE: Final = 4096
"""Offsets of external data are multiples of this, so that it can be mapped (onnx.ai, "External data")."""

Place: TypeAlias = Callable[[memoryview], Message]
"""The data of a tensor -> the fields of the tensor that contain it, or its place."""


def onnx_files(name: str, graph: Buffer, weights: Mapping[str, NDArray[Any]]) -> dict[str, Sequence[Buffer]]:
    """`name.onnx`; and `name.onnx.data` with the weights, if they do not fit into a protobuf."""
    model = _model(graph, weights, lambda data: {"raw_data": data})
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

    def place(self, data: memoryview) -> Message:
        fields = external_place(self.file, self._end, data.nbytes)
        self.pieces += [data, bytes(-data.nbytes % _PAGE)]
        self._end += -(-data.nbytes // _PAGE) * _PAGE
        return fields


# ---- messages -------------------------------------------------------------------------------------------------------


def _model(graph: Buffer, weights: Mapping[str, NDArray[Any]], place: Place) -> list[Buffer]:
    """The pieces of the model whose weights are placed by `place`."""
    model = checked_graph(graph, operator_of)
    return encoded(with_initializers(model, partial(_initializer, weights=weights, place=place)))


def _initializer(tensor: Message, weights: Mapping[str, NDArray[Any]], place: Place) -> Message:
    """A tensor, with its data or the place of it if that is one of the weights."""
    if "external_data" not in tensor:
        return tensor
    return without_data(tensor) | place(bytes_of(as_pairs(weights[tensor["name"]])))
