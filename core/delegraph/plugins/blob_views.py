"""A delegate's blob -> what its backend shows of it, without loading it: its engine's files, and what is in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from delegraph.errors import Internal, RuntimeFault, printable, restated
from delegraph.interfaces.backend import BackendInterface
from delegraph.interfaces.description import DelegateDescription
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.schema import Buffer, CompileSpec

__all__ = ["describe", "engine_files"]

_ENDING: Final = re.compile(r"(\.[A-Za-z0-9_-]+)+")


def engine_files(
    backend_id: str, name: str, processed: Buffer, named_data: Mapping[str, Buffer], plugins: PluginRegistry
) -> Mapping[str, Sequence[Buffer]]:
    """The pieces of each file of its engine's format, by file name: `name` and an ending, so that nothing which a file
    says leads to another folder. Empty if the backend has none (`BackendInterface.engine_files`).

    Raises a `PluginError` if the backend is not installed or does not load, its own error for a blob that it cannot
    read, and `Internal` for exceptions that only a fault of its own explains.
    """
    backend: BackendInterface = plugins.load("delegraph.backends", backend_id)
    where = f"{name} ({printable(backend_id)})"
    with _asking(where, "while its engine's files are made"):
        files = backend.engine_files(name, processed, named_data)
    for file in files:
        if not file.startswith(name) or not _ENDING.fullmatch(file.removeprefix(name)):
            raise Internal(f"{where}: its engine_files names a file {file!r}; it has to be {name!r} and an ending")
    return files


def describe(
    backend_id: str,
    name: str,
    processed: Buffer,
    compile_specs: Sequence[CompileSpec],
    named_data: Mapping[str, Buffer],
    plugins: PluginRegistry,
) -> DelegateDescription | None:
    """The content of the blob; None if the backend does not tell (`BackendInterface.describe`). `name` is the
    delegate's in messages. Raises as `engine_files`, and `Internal` also for a description that cannot be of this blob.
    """
    backend: BackendInterface = plugins.load("delegraph.backends", backend_id)
    where = f"{name} ({printable(backend_id)})"
    with _asking(where, "while it describes its blob"):
        described = backend.describe(processed, compile_specs, named_data)
    if described is not None:
        sizes = {key: memoryview(data).nbytes for key, data in named_data.items()}
        for fault in described.faults(memoryview(processed).nbytes, sizes):
            raise Internal(f"{where}: its describe contradicts its blob: {fault}")
    return described


@contextmanager
def _asking(where: str, doing: str) -> Iterator[None]:
    """Within, errors say which delegate they are about."""
    try:
        yield
    except RuntimeFault as error:
        raise restated(error, f"{where}: {error}") from error
    except Exception as error:
        raise Internal(f"{where}: {type(error).__name__} {doing}: {error}") from error
