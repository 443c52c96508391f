"""A blob, optimised for this machine <-> a file in a folder of the user's, so that it is optimised once.

The file is a blob itself (`blob.py`): the optimised graph, and the weights that optimising changed; for the others the
key names the original's weight. Behind it is the SHA-256 of all of it. Its name is the SHA-256 of all that the
graph depends on: onnxruntime's version, the processor, the settings, and the original with all its weights.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import Buffer
from delegraph_cpu.blob import Blob, Weight, bytes_of, pack, unpack
from delegraph_cpu.graphs.checks import operator_of_any
from delegraph_cpu.graphs.rewriting import ExternalTensor, external_tensors, rewritten
from delegraph_cpu.runtime.ort_values import array_in, type_in_graph

__all__ = ["Optimized", "optimized_blob"]

_END: Final = ".delegraph-cpu"
_DIGEST: Final = hashlib.sha256
_GRAPH, _WEIGHTS = "graph.onnx", "weights"


@dataclass(frozen=True, slots=True)
class Optimized:
    """A fully optimised graph, and the weights that it refers to, by name."""

    graph: Buffer
    weights: Mapping[str, NDArray[Any]]


def optimized_blob(
    folder: Path,
    graph: Buffer,
    weights: Mapping[str, NDArray[Any]],
    settings: str,
    optimize: Callable[[str, str], object],
) -> Optimized | None:
    """The blob of `graph` and `weights` after onnxruntime's optimisation here: read from `folder`, or written there.

    `optimize(path, name)` writes it: the graph to `path`, its weights to the file `name` beside it. `settings` is all
    else that the result depends on. None where the file can neither be read nor written, a full disk included, or
    `optimize` raises that the graph is refused, as it then is without a cache.
    """
    file = folder / (_key(graph, weights, settings) + _END)
    with suppress(OSError, ValueError, DelegateInvalidCompatibility):  # a file that is damaged, or somebody else's
        return _opened(_read(file), weights)
    with suppress(OSError, DelegateInvalidCompatibility):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="new-", dir=folder) as new:
            optimize(str(Path(new) / _GRAPH), _WEIGHTS)
            with suppress(ValueError, DelegateInvalidCompatibility):  # an element type that blobs do not have
                content = _packed(Path(new), weights)
                finished = Path(new) / file.name
                finished.touch(mode=0o600)
                finished.write_bytes(content + _DIGEST(content).digest())
                finished.replace(file)
                return _opened(content, weights)
    return None


def _key(graph: Buffer, weights: Mapping[str, NDArray[Any]], settings: str) -> str:
    from delegraph_cpu.engine import onnxruntime

    digest = _DIGEST(repr((onnxruntime.__version__, _processor(), settings)).encode())
    digest.update(_DIGEST(graph).digest())
    for name, array in weights.items():
        digest.update(repr((name, str(array.dtype), array.shape)).encode())
        digest.update(_DIGEST(bytes_of(array)).digest())
    return digest.hexdigest()


@cache
def _processor() -> tuple[str, ...]:
    """The instruction set of this processor: Linux lists the instructions, other systems have the processor's name."""
    named = [platform.system(), platform.machine(), platform.processor()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        prefixes = ("flags", "Features", "model name", "CPU part", "isa")
        named += dict.fromkeys(line for line in lines if line.startswith(prefixes))
    return tuple(named)


def _read(file: Path) -> bytes:
    """The content of a cache file. Raises `ValueError` for a file that others may write, or whose digest is wrong."""
    with file.open("rb") as opened:
        if os.name == "posix":
            status = os.fstat(opened.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                raise ValueError("not ours alone")
        content = opened.read()
    size = _DIGEST().digest_size
    if _DIGEST(content[:-size]).digest() != content[-size:]:
        raise ValueError("damaged")
    return content[:-size]


def _opened(content: bytes, weights: Mapping[str, NDArray[Any]]) -> Optimized:
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
    """The blob of the files that onnxruntime wrote into `new`."""
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
