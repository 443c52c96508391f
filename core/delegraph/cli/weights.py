"""`delegraph inspect weights.ptd`: the keys of a file of weights, the data under each, and its origin."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delegraph.program.flat_tensor import ExternalData, FlatTensor

__all__ = ["is_weights", "print_weights"]


def is_weights(path: str) -> bool:
    """Whether the file is a `.ptd`. Raises `AccessFailed`."""
    from delegraph.program.flat_tensor import IDENTIFIER
    from delegraph.runtime.data_loader import MmapDataLoader

    source = MmapDataLoader(path)
    return source.size() >= 8 and bytes(source.load(4, 4)) == IDENTIFIER


def print_weights(path: str, as_json: bool) -> None:
    """Print the content of the `.ptd`. Raises `InvalidExternalData` and `AccessFailed`."""
    from delegraph.cli.integrity import summarize_seal, text
    from delegraph.program.flat_tensor import deserialize_flat_tensor
    from delegraph.runtime.data_loader import MmapDataLoader

    source = MmapDataLoader(path)
    weights, seal = deserialize_flat_tensor(source), summarize_seal(source)
    if as_json:
        print(json.dumps({**_to_json(weights), "integrity": seal and asdict(seal)}, indent=2))
    else:
        _print(path, weights)
        print(text(seal))


def _to_json(weights: FlatTensor) -> dict[str, Any]:
    return {
        "name": weights.name or None,
        "program": weights.origin.program if weights.origin else None,
        "nbytes": sum(_nbytes(entry) for entry in weights.named_data.values()),
        "entries": {key: _entry(entry) for key, entry in weights.named_data.items()},
        "elsewhere": _elsewhere(weights),
    }


def _entry(entry: ExternalData) -> dict[str, Any]:
    from delegraph.program.dtypes import dtype_info

    layout = entry.tensor_layout
    described = (
        {"dtype": None, "shape": None, "dim_order": None}
        if layout is None
        else {
            "dtype": dtype_info(layout.scalar_type).name,
            "shape": list(layout.sizes),
            "dim_order": list(layout.dim_order),
        }
    )
    return {**described, "nbytes": _nbytes(entry)}


def _nbytes(entry: ExternalData) -> int:
    return memoryview(entry.data).nbytes


def _elsewhere(weights: FlatTensor) -> list[str]:
    """The external weights that the lowering put into other files."""
    known = weights.origin.weights if weights.origin else {}
    return sorted(known.keys() - weights.named_data.keys())


def _shape(shape: list[int] | None) -> str:
    return "" if shape is None else str(shape)


def _print(path: str, weights: FlatTensor) -> None:
    from delegraph.errors import printable
    from delegraph.tables import Table, count, print_table

    entries = {key: _entry(entry) for key, entry in weights.named_data.items()}
    rows = [
        (
            printable(key),
            entry["dtype"] or "a blob",
            _shape(entry["shape"]),
            count(entry["nbytes"]),
        )
        for key, entry in entries.items()
    ]
    total = count(sum(entry["nbytes"] for entry in entries.values()))
    print(f"{path}: external weights, {count(len(rows))} keys, {total} bytes\n")
    print_table(Table("keys", ("key", "dtype", "shape", "bytes"), rows, frozenset({"bytes"})))
    if weights.origin is None:
        print("which program they belong to is not said: they are checked for shape and dtype alone")
    else:
        print(f"written as {printable(weights.name)!r} with the program {printable(weights.origin.program)}")
    for key in _elsewhere(weights):
        print(f"in another file: {printable(key)!r}")
