"""Pieces of bytes -> a file that is there whole or not at all, also after a crash."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import BinaryIO, Final

from delegraph.program.schema import Buffer

_HAS_NO_UNNAMED_FILES: Final = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}
"""What opening with O_TMPFILE says where the file system or the kernel does not know it (open(2))."""


def write_atomically(path: str | os.PathLike[str], pieces: Iterable[Buffer]) -> None:
    """Write `pieces` to a new file in the folder of `path`, then give it that name; on any failure nothing is left.

    The new file has the mode of the one that it replaces, and is on the disk when this returns. A link is followed; a
    device or a pipe, which cannot be replaced, is written in place.

    Raises `OSError`: `PermissionError` for a file that is read-only, and others that name the folder or the file.
    """
    target = os.path.realpath(path)
    old = _mode(target)
    if old is not None and not stat.S_ISREG(old):
        with open(target, "wb") as device:
            device.writelines(pieces)
        return
    if old is not None and not (old & 0o222 and os.access(target, os.W_OK)):
        raise PermissionError(errno.EACCES, "this file is read-only; remove it or make it writable", target)
    folder = os.path.dirname(target)
    file, name = _create(folder, 0o666 if old is None else 0o600)
    place = name or f"/proc/self/fd/{file.fileno()}"
    try:
        with file:
            file.writelines(pieces)
            file.flush()
            if old is not None:
                os.chmod(place, stat.S_IMODE(old))
            os.fsync(file.fileno())
            if name is None:
                name = _unused_name(folder)
                # a given src_dir_fd, of no use to an absolute path, makes this linkat(2), which follows the link
                os.link(place, name, src_dir_fd=file.fileno(), follow_symlinks=True)
        os.replace(name, target)
    except BaseException as error:
        if name is not None:
            with suppress(OSError):
                os.unlink(name)
        if isinstance(error, OSError) and error.errno and error.filename in (None, name):
            raise OSError(error.errno, error.strerror, target) from error
        raise
    _sync(folder)


def _mode(path: str) -> int | None:
    """Type and mode of what is at `path`; None if nothing is."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _create(folder: str, mode: int) -> tuple[BinaryIO, str | None]:
    """A new file in `folder`, and its name.

    It has none where the system has such files: those of a process that is killed vanish with it. Elsewhere (NFS,
    macOS) such a process leaves a `.delegraph-….tmp`. Raises `OSError` that names the folder.
    """
    try:
        if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
            try:
                return open(os.open(folder, os.O_TMPFILE | os.O_WRONLY, mode), "wb"), None
            except OSError as error:
                if error.errno not in _HAS_NO_UNNAMED_FILES:
                    raise
        name = _unused_name(folder)
        return open(name, "xb", opener=partial(os.open, mode=mode)), name
    except OSError as error:
        raise OSError(error.errno, error.strerror, folder) from error


def _unused_name(folder: str) -> str:
    """Short whatever the target is called: names end at 255 bytes."""
    return os.path.join(folder, f".delegraph-{os.urandom(8).hex()}.tmp")


def _sync(folder: str) -> None:
    """Have the folder's entries on the disk; where a file system cannot promise it, the file is there anyway."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
