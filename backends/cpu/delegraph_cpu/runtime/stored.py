"""A blob and the program's named data -> its graph, written anew for the engine, and its weights where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from delegraph.interfaces import Buffer
from delegraph.lazy_dataclass import replace
from delegraph_cpu.blob import Blob, Weight
from delegraph_cpu.graphs.rewriting import rewritten
from delegraph_cpu.runtime.ort_values import array_in, type_in_graph
from delegraph_cpu.runtime.unpacking import unpacked_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["with_weights"]

_B = TypeVar("_B", bound=Blob)


def with_weights(blob: _B, named_data: Mapping[str, Buffer]) -> tuple[_B, dict[str, NDArray[Any]]]:
    """A blob, with its graph written anew for the engine; and the weights of that graph, which reads no file.

    Raises `DelegateInvalidCompatibility` for a graph that lowering does not write, and for weights that are not there.
    """
    lying = {weight.name: _array(weight, blob, named_data) for weight in blob.weights}
    elsewhere = {weight.key: weight.nbytes for weight in blob.weights if weight.key is not None}
    weights = unpacked_weights(blob.unpacked, lying, len(blob.data) + sum(elsewhere.values()))
    types = {name: type_in_graph(array) for name, array in weights.items()}
    return replace(blob, graph=rewritten(blob.graph, types)), weights


def _array(weight: Weight, blob: Blob, named_data: Mapping[str, Buffer]) -> NDArray[Any]:
    """A weight's content, where it lies."""
    return np.require(array_in(blob.bytes_of(weight, named_data), weight.dtype, weight.shape), requirements="A")
