"""A run -> what has to be the same for another one to go on where it stopped."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType
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
    """The name of a function, what is bound to it, and a digest of the file that it is in, or of its code."""
    if function is None:
        return None
    if isinstance(function, partial):
        return f"{_function(function.func)} {function.args!r} {function.keywords!r}"
    named: Any = inspect.unwrap(function)
    named = named if inspect.isroutine(named) else type(named)
    try:
        content = Path(inspect.getsourcefile(named) or "").read_bytes()
    except (OSError, TypeError):  # written in a notebook, or built in
        code = getattr(named, "__code__", None)
        content = b"" if code is None else repr(_words(code)).encode()
    return f"{named.__qualname__} {hashlib.sha256(content).hexdigest()}"


def _words(code: CodeType) -> tuple[Any, ...]:
    """The code without its place, which is another one in each session."""
    constants = [_words(item) if isinstance(item, CodeType) else item for item in code.co_consts]
    return code.co_code, code.co_names, constants
