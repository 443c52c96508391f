"""`.ptd` files -> the weights and blobs under their keys, if they belong to the program and to each other.

    the .pte                one .ptd                   another .ptd, given behind it
    program: 9c56…          program: 9c56…             program: 9c56…
    base, adapter           base: 7c4a…                adapter: 03d5…
                            (adapter: 81fe… beside)    (base: 7c4a… beside)

A file may be swapped for that of another model whose program is the same: then nothing but these weights tells the two
models apart. It may serve another program, too, that was lowered with the same weights. Anything else would mix two
models, and is refused. Of files without an origin (ExecuTorch's, or made by hand) nothing is known: what they have is
checked when it is used, for its layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, TypeAlias

from delegraph.errors import InvalidExternalData
from delegraph.program.schema import Program
from delegraph.program.weights_origin import WeightMark, WeightsOrigin, origin_of
from delegraph.runtime.data_loader import Source, open_data_loader
from delegraph.runtime.integrity import OpenedFile, Trust, naming_file, open_file

if TYPE_CHECKING:
    from delegraph.plugins.registry import PluginRegistry
    from delegraph.program.flat_tensor import ExternalData, FlatTensor

DataSources: TypeAlias = Source | Sequence[Source]
"""One `.ptd`, or several: where two have the same key, the later one counts."""


def open_data_files(sources: DataSources, trust: Trust, plugins: PluginRegistry | None = None) -> list[OpenedFile]:
    """Open one source or several. Raises as `open_data_loader` and `open_file`."""
    listed = sources if isinstance(sources, list | tuple) else (sources,)
    return [
        open_file(_name(source, i), open_data_loader(source, plugins), trust, InvalidExternalData)
        for i, source in enumerate(listed)
    ]


def read_external_data(opened: Sequence[OpenedFile], program: Program) -> Mapping[str, ExternalData]:
    """The data of the `.ptd` files, by key.

    Raises `InvalidExternalData` for a file that is damaged, or of a model that is neither the program's nor the same
    but for its external weights; and `AccessFailed`.
    """
    files = [(file.name, _read(file)) for file in opened]
    provider = {key: i for i, (_, file) in enumerate(files) for key in file.named_data}
    merged = {key: files[i][1].named_data[key] for key, i in provider.items()}
    origin = origin_of(program)
    if origin is not None:
        _check_layouts(origin, merged, {key: files[i][0] for key, i in provider.items()})
        for position, (name, file) in enumerate(files):
            if file.origin is None:
                continue
            if file.origin.program != origin.program:
                _check_same_weights(name, file, origin, [key for key, i in provider.items() if i == position])
            else:
                _check_beside(name, file.origin, files[:position], provider)
    return merged


def _read(file: OpenedFile) -> FlatTensor:
    from delegraph.program.flat_tensor import deserialize_flat_tensor

    with naming_file(file.name):
        return deserialize_flat_tensor(file.content)


def _name(source: Source, position: int) -> str:
    if isinstance(source, str | PathLike):
        return fspath(source)
    return "the .ptd" if position == 0 else f".ptd number {position + 1}"


def _check_layouts(origin: WeightsOrigin, merged: Mapping[str, ExternalData], names: Mapping[str, str]) -> None:
    for key, mark in origin.weights.items():
        entry = merged.get(key)
        if entry is not None and str(entry.tensor_layout or "a blob") != mark.layout:
            raise InvalidExternalData(
                f"{names[key]}: {key!r} is {entry.tensor_layout or 'a blob'}, but {mark.layout} in the program; use a"
                " .ptd of the same model"
            )


def _check_same_weights(name: str, file: FlatTensor, origin: WeightsOrigin, keys: Sequence[str]) -> None:
    """A file of another program serves if it has the weights that this one was lowered with."""
    assert file.origin is not None
    theirs = file.origin.weights
    differing = [key for key in keys if key in origin.weights and theirs.get(key) != origin.weights[key]]
    if differing:
        raise InvalidExternalData(
            f"{name} was written with another program, and its {_listed(differing)} {_are(differing)} not what this one"
            " was lowered with: code or weights that lie in the .pte differ, and would be mixed with those of another"
            " model; lower both models alike, or use the .pte that was written with it"
        )


def _check_beside(
    name: str, origin: WeightsOrigin, earlier: Sequence[tuple[str, FlatTensor]], provider: Mapping[str, int]
) -> None:
    """Raise `InvalidExternalData` unless the `earlier` files have the weights that this file was written beside."""
    for position, (earlier_name, file) in enumerate(earlier):
        known: Mapping[str, WeightMark] = file.origin.weights if file.origin is not None else {}
        mine = [key for key in file.named_data if provider[key] == position and key in known]
        differing = [key for key in mine if origin.weights.get(key) != known[key]]
        if differing:
            raise InvalidExternalData(
                f"{name} was written beside another {_listed(differing)} than {_are(differing)} in"
                f" {earlier_name}; give the .ptd files of one model, the base first, then those that replace some of it"
            )


def _listed(keys: Sequence[str]) -> str:
    shown = ", ".join(map(repr, keys[:3]))
    return f"{shown} and {len(keys) - 3} more" if len(keys) > 3 else shown


def _are(keys: Sequence[str]) -> str:
    return "is" if len(keys) == 1 else "are"
