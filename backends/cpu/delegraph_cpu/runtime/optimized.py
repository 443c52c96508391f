"""A blob, optimised for this machine <-> an entry of the user's cache, so that it is optimised once.

The entry's one file is a blob itself (`blob.py`): the optimised graph, and the weights that optimising changed; for the
others the key names the original's weight.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import BackendCache, Buffer
from delegraph_cpu.blob import Blob, Weight, bytes_of, pack, unpack
from delegraph_cpu.graphs.checks import operator_of_any
from delegraph_cpu.graphs.rewriting import ExternalTensor, external_tensors, rewritten
from delegraph_cpu.runtime.ort_values import array_in, type_in_graph

__all__ = ["Optimized", "optimized_blob"]

_REVISION: Final = 1
"""Of what this module writes; another one makes entries anew."""
_FILE, _GRAPH, _WEIGHTS = "optimized.blob", "graph.onnx", "weights"
_NOT_OURS: Final = (ValueError, DelegateInvalidCompatibility)


@dataclass(frozen=True, slots=True)
class Optimized:
    """A fully optimised graph, and the weights that it refers to, by name."""

    graph: Buffer
    weights: Mapping[str, NDArray[Any]]
    entry: Path | None = None
    """Where it lies in the cache, if it does."""


def optimized_blob(
    cache: BackendCache,
    graph: Buffer,
    weights: Mapping[str, NDArray[Any]],
    settings: str,
    optimize: Callable[[str, str], object],
) -> Optimized | None:
    """The blob of `graph` and `weights` after onnxruntime's optimisation here: out of the cache, or put there.

    `optimize(path, name)` writes it: the graph to `path`, its weights to the file `name` beside it. `settings` is all
    else that the result depends on. None where it cannot be kept, or `optimize` raises that the graph is refused, as it
    then is without a cache.
    """
    from delegraph_cpu.engine import onnxruntime

    def write(folder: Path) -> None:
        optimize(str(folder / _GRAPH), _WEIGHTS)
        content = _packed(folder, weights)
        for name in (_GRAPH, _WEIGHTS):
            (folder / name).unlink(missing_ok=True)
        (folder / _FILE).write_bytes(content)

    tensors = [(name, str(array.dtype), array.shape) for name, array in weights.items()]
    folder = cache.kept(
        write,
        driver=f"onnxruntime {onnxruntime.__version__}, delegraph-cpu {_REVISION}",
        blob=[graph, *map(bytes_of, weights.values())],
        options=repr((settings, tensors)),
    )
    if folder is None:
        return None
    try:
        with (folder / _FILE).open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return replace(_opened(memoryview(content), weights), entry=folder)
    except (OSError, *_NOT_OURS):
        cache.discard(folder)
        return None


def _opened(content: Buffer, weights: Mapping[str, NDArray[Any]]) -> Optimized:
    blob = unpack(content)
    contents = {weight.name: _weight(weight, blob, weights) for weight in blob.weights}
    types = {name: type_in_graph(array) for name, array in contents.items()}
    return Optimized(rewritten(blob.graph, types, operator_of_any), contents)


def _weight(weight: Weight, blob: Blob, originals: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    if weight.key is None:
        data = memoryview(blob.data)[weight.offset : weight.offset + weight.nbytes]
        return array_in(data, weight.dtype, weight.shape)
    original = originals.get(weight.key)
    if original is None or (str(original.dtype), original.shape) != (weight.dtype, weight.shape):
        raise ValueError("a weight of another blob")
    return original


def _packed(new: Path, originals: Mapping[str, NDArray[Any]]) -> bytes:
    """The blob of the files that onnxruntime wrote into `new`. Raises `DelegateInvalidCompatibility` for an element
    type that blobs do not have."""
    from delegraph_cpu.engine import onnxruntime

    graph, file = (new / _GRAPH).read_bytes(), new / _WEIGHTS
    data = memoryview(file.read_bytes() if file.exists() else b"")
    records, chunks = [], []
    for tensor in external_tensors(graph, operator_of_any):
        content = data[tensor.offset : tensor.offset + tensor.nbytes]
        record = _record(tensor, content, originals.get(tensor.name))
        records.append(record)
        if record.key is None:
            chunks.append(content)
    return pack(Blob(onnxruntime.__version__, (), (), tuple(records), graph), chunks)


def _record(tensor: ExternalTensor, content: memoryview, original: NDArray[Any] | None) -> Weight:
    """The record of a weight: the original of its name, if its content is the same."""
    same = original is not None and original.shape == tensor.dims and str(original.dtype) == tensor.dtype
    kept = same and original is not None and bytes_of(original) == content
    return Weight(tensor.name, tensor.dtype, tensor.dims, tensor.nbytes, key=tensor.name if kept else None)
