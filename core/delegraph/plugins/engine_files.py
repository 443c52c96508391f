"""A delegate's blob -> the files of its engine, as its backend makes them of it (`BackendInterface.engine_files`).

The names are the host's: a backend adds an ending, so that nothing which a file says leads to another folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from delegraph.errors import Internal, RuntimeFault, restated
from delegraph.interfaces.backend import BackendInterface
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.schema import Buffer
from delegraph.tables import printable

__all__ = ["engine_files"]

_ENDING: Final = re.compile(r"(\.[A-Za-z0-9_-]+)+")


def engine_files(
    backend_id: str, name: str, processed: Buffer, named_data: Mapping[str, Buffer], plugins: PluginRegistry
) -> Mapping[str, Sequence[Buffer]]:
    """The pieces of each file, by file name: `name` and an ending. Empty if the backend has none.

    Raises a `PluginError` if the backend is not installed or does not load, its own error for a blob that it cannot
    read, and `Internal` for exceptions that only a fault of its own explains.
    """
    backend: BackendInterface = plugins.load("delegraph.backends", backend_id)
    where = f"{name} ({printable(backend_id)})"
    try:
        files = backend.engine_files(name, processed, named_data)
    except RuntimeFault as error:
        raise restated(error, f"{where}: {error}") from error
    except Exception as error:
        raise Internal(f"{where}: {type(error).__name__} while its engine's files are made: {error}") from error
    for file in files:
        if not file.startswith(name) or not _ENDING.fullmatch(file.removeprefix(name)):
            raise Internal(f"{where}: its engine_files names a file {file!r}; it has to be {name!r} and an ending")
    return files
