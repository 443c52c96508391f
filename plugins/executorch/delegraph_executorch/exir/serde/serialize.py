"""Programs of any dialect <-> files (ExecuTorch `exir/serde/serialize.py`), a zip that either package reads:

    version                             of the JSON
    serialized_exported_program.json    the graph, with metadata, debug handles, and delegates as JSON in it
    serialized_state_dict.pt, …_constants.pt, …_example_inputs.pt
    extra_files/<name>                  the caller's own texts

A finished program (`to_executorch().exported_program()`) is saved as the edge program that it was made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import BinaryIO, Final
from zipfile import ZipFile

from torch.export import ExportedProgram

from delegraph.aot import SerializedExportedProgram as SerializedArtifact
from delegraph.aot import deserialize_exported_program, read_zip_members, serialize_exported_program
from delegraph.errors import ETRecordError, LoweringError
from delegraph_executorch.exir._execution import source_of
from delegraph_executorch.exir.serde.delegates import with_delegates_as_text, with_text_as_delegates

__all__ = ["deserialize", "load", "save", "serialize"]

_VERSION: Final = "5.4"
"""Of ExecuTorch's `exir/serde/schema.py`, which its reader compares."""
_FILES: Final = (
    "serialized_exported_program.json",
    "serialized_state_dict.pt",
    "serialized_constants.pt",
    "serialized_example_inputs.pt",
)
_EXTRA: Final = "extra_files/"


def save(
    ep_save: ExportedProgram,
    f: str | PathLike[str] | BinaryIO,
    *,
    extra_files: Mapping[str, str] | None = None,
    opset_version: Mapping[str, int] | None = None,
) -> None:
    """Write a program, and texts of the caller's. Raises `LoweringError` for `opset_version`."""
    artifact = serialize(ep_save, opset_version)
    with ZipFile(f, "w") as file:
        for name, data in zip(_FILES, artifact, strict=True):
            file.writestr(name, data)
        file.writestr("version", _VERSION)
        for name, text in (extra_files or {}).items():
            file.writestr(_EXTRA + name, text)


def load(f: str | PathLike[str] | BinaryIO, *, extra_files: dict[str, str] | None = None) -> ExportedProgram:
    """Read what `save` wrote, here or there; the caller's texts go into `extra_files`.

    Raises `LoweringError` for another file, and as `deserialize`.
    """
    try:
        held = read_zip_members(f, f"{f} is not a program that exir.save wrote")
        texts = {name.removeprefix(_EXTRA): data.decode() for name, data in held.items() if name.startswith(_EXTRA)}
    except (ETRecordError, UnicodeDecodeError) as error:
        raise LoweringError(f"{error}; save the program again") from error
    missing = [name for name in _FILES if name not in held]
    if missing:
        raise LoweringError(
            f"{f} is not a program that exir.save wrote: it has no {missing[0]}; torch.export.load reads what"
            " torch.export.save wrote"
        )
    if extra_files is not None:
        extra_files.update(texts)
    return deserialize(SerializedArtifact(*(held[name] for name in _FILES)))


def serialize(exported_program: ExportedProgram, opset_version: Mapping[str, int] | None = None) -> SerializedArtifact:
    """The files of a program, in memory. Raises `LoweringError` for `opset_version`."""
    if opset_version:
        raise LoweringError("opset_version: torch writes the versions of its own operators; leave the argument out")
    return serialize_exported_program(with_delegates_as_text(source_of(exported_program), serialize))


def deserialize(artifact: SerializedArtifact) -> ExportedProgram:
    """The program in such files. Raises `ETRecordError` if they hold none; nothing in them is evaluated."""
    program = deserialize_exported_program(artifact)
    with_text_as_delegates(program, deserialize)
    return program
