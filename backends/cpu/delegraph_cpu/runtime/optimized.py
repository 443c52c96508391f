"""A blob, optimised for this machine <-> an entry of the user's cache, so that it is optimised once.

    optimized.blob   a blob itself (`blob.py`): the optimised graph, and the weights that optimising changed; for others
                     the key names the original's weight
    weight-0, …      a large weight; if onnxruntime packs it for this processor, as it is and packed (`graphs/filed.py`)

onnxruntime maps these files: methods of a program, its loads and other processes have their pages once.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import BackendCache, Buffer
from delegraph.lazy_dataclass import dataclass
from delegraph_cpu.blob import Blob, Weight, bytes_of, pack, unpack
from delegraph_cpu.graphs.checks import checked_graph, operator_of_any
from delegraph_cpu.graphs.filed import filed_tensor
from delegraph_cpu.graphs.messages import Message
from delegraph_cpu.graphs.rewriting import (
    ExternalTensor,
    external_tensors,
    rewritten,
    with_initializers,
    without_data,
)
from delegraph_cpu.graphs.wire import encoded
from delegraph_cpu.runtime.ort_values import array_in, type_in_graph

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["Optimized", "optimized_blob"]

_REVISION: Final = 2
"""Of what this module writes; another one makes entries anew."""
_FILE, _LARGE, _GRAPH, _WEIGHTS = "optimized.blob", "weight-", "graph.onnx", "weights"
_LARGE_BYTES: Final = 2**16
_NOT_OURS: Final = (ValueError, DelegateInvalidCompatibility)


@dataclass(frozen=True, slots=True)
class Optimized:
    """A fully optimised graph, and the weights that it refers to, by name."""

    graph: Buffer
    weights: Mapping[str, NDArray[Any]]
    entry: Path | None = None
    """Where it lies in the cache, if it does: the folder of the files that the graph names."""


def optimized_blob(
    cache: BackendCache,
    made_of: Sequence[Buffer],
    weights: Mapping[str, NDArray[Any]],
    settings: str,
    optimize: Callable[[str, str], object],
) -> Optimized | None:
    """A blob after onnxruntime's optimisation here: out of the cache, or put there. `made_of` are its bytes, and those
    of named data, which are `weights` in its graph.

    `optimize(path, name)` writes it: the graph to `path`, its weights to the file `name` beside it. `settings` is all
    else that the result depends on. None where it cannot be kept, or `optimize` raises that the graph is refused, as it
    then is without a cache.
    """
    from delegraph_cpu.engine import onnxruntime

    def write(folder: Path) -> None:
        optimize(str(folder / _GRAPH), _WEIGHTS)
        _write(folder, weights)
        for name in (_GRAPH, _WEIGHTS):
            (folder / name).unlink(missing_ok=True)

    folder = cache.kept(
        write,
        driver=f"onnxruntime {onnxruntime.__version__}, delegraph-cpu {_REVISION}",
        blob=made_of,
        options=settings,
    )
    if folder is None:
        return None
    try:
        with (folder / _FILE).open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _opened(memoryview(content), weights, folder)
    except (OSError, *_NOT_OURS):
        cache.discard(folder)
        return None


def _opened(content: Buffer, weights: Mapping[str, NDArray[Any]], folder: Path) -> Optimized:
    blob, files = unpack(content), {path.name: path.stat().st_size for path in folder.glob(f"{_LARGE}*")}
    contents = {weight.name: _weight(weight, blob, weights) for weight in blob.weights}
    types = {name: type_in_graph(array) for name, array in contents.items()}
    return Optimized(rewritten(blob.graph, types, operator_of_any, files), contents, folder)


def _weight(weight: Weight, blob: Blob, originals: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    if weight.key is None:
        data = memoryview(blob.data)[weight.offset : weight.offset + weight.nbytes]
        return array_in(data, weight.dtype, weight.shape)
    original = originals.get(weight.key)
    if original is None or (str(original.dtype), original.shape) != (weight.dtype, weight.shape):
        raise ValueError("a weight of another blob")
    return original


def _write(new: Path, originals: Mapping[str, NDArray[Any]]) -> None:
    """Make the entry's files of those that onnxruntime wrote into `new`. Raises `DelegateInvalidCompatibility` for an
    element type that blobs do not have."""
    from delegraph_cpu.engine import onnxruntime

    model, file = checked_graph((new / _GRAPH).read_bytes(), operator_of_any), new / _WEIGHTS
    data: Any = np.memmap(file, np.uint8, "r") if file.exists() and file.stat().st_size else np.empty(0, np.uint8)
    names = (f"{_LARGE}{number}" for number in count())
    model = with_initializers(model, lambda tensor: _apart(tensor, data, new, names))
    graph = b"".join(encoded(model))
    records, chunks = [], []
    for tensor in external_tensors(model, _WEIGHTS):
        content = data[tensor.offset : tensor.offset + tensor.nbytes].data
        record = _record(tensor, content, originals.get(tensor.name))
        records.append(record)
        if record.key is None:
            chunks.append(content)
    (new / _FILE).write_bytes(pack(Blob(onnxruntime.__version__, (), (), tuple(records), graph), chunks))


def _apart(tensor: Message, data: NDArray[np.uint8], folder: Path, names: Iterator[str]) -> Message:
    """The tensor, its data in a file of its own if it is large or has a packed form."""
    if "external_data" not in tensor:
        return tensor
    filed = filed_tensor(tensor)
    if filed.nbytes < _LARGE_BYTES and not filed.key:
        return tensor
    moved = filed.moved(next(names))
    with (folder / moved.file).open("wb") as file:
        for (start, nbytes), (place, _) in zip(filed.places(), moved.places(), strict=True):
            file.seek(place)
            file.write(data[start : start + nbytes].data)
    return without_data(tensor) | moved.fields()


def _record(tensor: ExternalTensor, content: memoryview, original: NDArray[Any] | None) -> Weight:
    """The record of a weight: the original of its name, if its content is the same."""
    same = original is not None and original.shape == tensor.dims and str(original.dtype) == tensor.dtype
    kept = same and original is not None and bytes_of(original) == content
    return Weight(tensor.name, tensor.dtype, tensor.dims, tensor.nbytes, key=tensor.name if kept else None)
