"""A run -> what has to be the same for another one to go on where it stopped."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from delegraph.mapping.row_mapper import RowMapper
from delegraph.mapping.sources import Source
from delegraph.version import __version__

__all__ = ["identity"]


def identity(mapper: RowMapper, source: Source, settings: dict[str, Any]) -> dict[str, Any]:
    """Each thing in words: the program and the functions by what is in them, the files by size and time of change."""
    return {
        "program": _program(mapper),
        "input": hashlib.sha256(repr([_stamp(file) for file in source.files]).encode()).hexdigest(),
        "prepare": _function(mapper.prepare),
        "finish": _function(mapper.finish),
        "settings": {
            "methods": [method.name for method in mapper.mapped],
            "inputs": dict(mapper.inputs),
            "outputs": dict(mapper.outputs),
            "batch_size": mapper.batch_size,
            **settings,
        },
        "delegraph": __version__,
    }


def _program(mapper: RowMapper) -> str:
    program, options = mapper.module.program, mapper.module.__reduce__()[1][2]
    return f"{program.content_digest()} {options!r} {program.environment.kernels!r}"


def _stamp(file: Path) -> tuple[str, int, int]:
    status = file.stat()
    return str(file.resolve()), status.st_size, status.st_mtime_ns


def _function(function: Callable[..., Any] | None) -> str | None:
    """The name of a function, and a digest of the file that it is in."""
    if function is None:
        return None
    named = inspect.unwrap(getattr(function, "func", function))  # of a partial, the function
    file = inspect.getsourcefile(named if inspect.isroutine(named) else type(named))
    content = Path(file).read_bytes() if file is not None and Path(file).is_file() else b""
    digest = hashlib.sha256(content or getattr(named, "__code__", type(named)).co_code)
    return f"{getattr(named, '__qualname__', type(named).__qualname__)} {digest.hexdigest()}"
