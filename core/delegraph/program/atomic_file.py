"""Pieces of bytes -> a file that is there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from delegraph.program.schema import Buffer


def write_atomically(path: str | os.PathLike[str], pieces: Iterable[Buffer]) -> None:
    """Write `pieces` to a temporary file beside `path`, then rename it; on any failure nothing is left behind.

    A link is followed; a device or a pipe, which cannot be replaced, is written in place. Raises `OSError`.
    """
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        with open(target, "wb") as file:
            file.writelines(pieces)
        return
    directory, name = os.path.split(target)
    temporary = os.path.join(directory, f".{name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.writelines(pieces)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
