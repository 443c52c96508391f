"""Pieces of bytes -> files that are there whole or not at all, also after a crash: one, or several together.

    written beside the targets, synced ──> names swapped, in the order given ──> the old files forgotten
                                            └ one fails: the names go back

A process that is killed may leave `.delegraph-….tmp` behind, at most; the next one that saves there removes it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import BinaryIO, Final

from delegraph.program.schema import Buffer

try:
    import fcntl
except ImportError:  # Windows: a file that is open gets no other name, and is not removed, with a lock or without
    fcntl = None  # type: ignore[assignment]

__all__ = ["write_atomically", "write_together"]

_HAS_NO_UNNAMED_FILES: Final = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}
"""The errors of an open with O_TMPFILE where the file system or the kernel does not know it (open(2))."""

_TEMPORARY: Final = re.compile(r"\.delegraph-[0-9a-f]{16}\.tmp")
_SETTLED_SECONDS: Final = 60.0
"""Between a temporary file's creation and its lock lie microseconds: an older one without a lock is a leftover."""


def write_atomically(path: str | os.PathLike[str], pieces: Iterable[Buffer]) -> None:
    """Write `pieces` to a new file in the folder of `path`, then give it that name; on any failure nothing is left.

    The new file has the mode of the one that it replaces, its owner and group as far as the system allows it, and is on
    the disk when this returns. A link is followed; a device or a pipe, which cannot be replaced, is written in place.

    Raises `OSError`: `PermissionError` for a file that is read-only, and others that name the folder or the file.
    """
    write_together([(path, pieces)])


def write_together(files: Sequence[tuple[str | os.PathLike[str], Iterable[Buffer]]]) -> None:
    """Write several files, each as `write_atomically` does. They get their names in the order given, all or none.

    Who reads while the names change may see a new file beside an old one. Where a file system has no hard links, a
    failure in that moment cannot be undone. Raises as `write_atomically`.
    """
    with ExitStack() as cleanup:
        written = [(target, _write(target, pieces, cleanup)) for target, pieces in map(_resolved, files)]
        replaced = [(target, file) for target, file in written if file is not None]
        _swap(replaced, cleanup)
    for folder in {os.path.dirname(target) for target, _ in replaced}:
        _sync(folder)
        _remove_left_behind(folder)


def _resolved(file: tuple[str | os.PathLike[str], Iterable[Buffer]]) -> tuple[str, Iterable[Buffer]]:
    return os.path.realpath(file[0]), file[1]


# ---- writing ---------------------------------------------------------------------------------------


class _Temporary:
    """A file that is written and has no name yet, or one of ours: see `_create`."""

    def __init__(self, file: BinaryIO, name: str | None) -> None:
        self.file = file
        self.name = name

    @property
    def place(self) -> str:
        """A path at which the system finds it."""
        return self.name or f"/proc/self/fd/{self.file.fileno()}"

    def remove(self) -> None:
        """Close it, and remove its name unless that has become the target's."""
        with suppress(OSError):  # a full disk refuses again what is left in the buffer, without the file's name
            self.file.close()
        if self.name is not None:
            with suppress(OSError):
                os.unlink(self.name)

    def move_to(self, target: str) -> None:
        """Give it the name `target`, in one step."""
        if self.name is None:
            name = _unused_name(os.path.dirname(target))
            # a given src_dir_fd, of no use to an absolute path, makes this linkat(2), which follows the link
            os.link(self.place, name, src_dir_fd=self.file.fileno(), follow_symlinks=True)
            self.name = name
        if fcntl is None:
            self.file.close()
        try:
            os.replace(self.name, target)
        except PermissionError as error:
            raise PermissionError(error.errno, _told(error), target) from error
        self.name = None


def _write(target: str, pieces: Iterable[Buffer], cleanup: ExitStack) -> _Temporary | None:
    """The file that is to get the name `target`, on the disk; None for a device, which is written itself."""
    old = _status(target)
    if old is not None and stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, "this is a folder; name a file in it", target)
    if old is not None and not stat.S_ISREG(old.st_mode):
        _write_in_place(target, pieces)
        return None
    if old is not None and not (old.st_mode & 0o222 and os.access(target, os.W_OK)):
        raise PermissionError(errno.EACCES, "this file is read-only; remove it or make it writable", target)
    folder = os.path.dirname(target)
    if not os.path.exists(folder):
        name = os.path.basename(target)
        raise FileNotFoundError(errno.ENOENT, f"there is no such folder to save {name!r} in; make it first", folder)
    temporary = _create(folder, 0o666 if old is None else 0o600)
    cleanup.callback(temporary.remove)
    try:
        temporary.file.writelines(pieces)
        temporary.file.flush()
        if old is not None:
            _take_over(old, temporary.place)
        os.fsync(temporary.file.fileno())
    except OSError as error:
        raise _naming(target, error, temporary.name) from error
    return temporary


def _told(error: PermissionError) -> str:
    if fcntl is not None:
        return str(error.strerror)
    return f"{error.strerror}; Windows replaces no file that somebody has open, or loaded: end that first"


def _write_in_place(device: str, pieces: Iterable[Buffer]) -> None:
    try:
        with open(device, "wb") as file:
            file.writelines(pieces)
    except OSError as error:
        raise _naming(device, error, None) from error


def _status(path: str) -> os.stat_result | None:
    """The status of the file at `path`; None if there is none."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _take_over(old: os.stat_result, place: str) -> None:
    """Give the file at `place` the owner and group of the old one, as far as the system lets us, and its mode."""
    new = os.stat(place)
    for uid, gid in ((-1, old.st_gid), (old.st_uid, -1)):
        if uid not in (-1, new.st_uid) or gid not in (-1, new.st_gid):
            with suppress(OSError):
                os.chown(place, uid, gid)
    os.chmod(place, stat.S_IMODE(old.st_mode))  # last: chown takes the set-user-id bits away


def _create(folder: str, mode: int) -> _Temporary:
    """A new file in `folder`, locked as long as it is open.

    It has no name where the system has such files: those of a process that is killed vanish with it. Elsewhere (NFS,
    macOS) such a process leaves a `.delegraph-….tmp`. Raises `OSError` that names the folder.
    """
    try:
        if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
            try:
                return _locked(open(os.open(folder, os.O_TMPFILE | os.O_WRONLY, mode), "wb"), None)
            except OSError as error:
                if error.errno not in _HAS_NO_UNNAMED_FILES:
                    raise
        name = _unused_name(folder)
        return _locked(open(name, "xb", opener=partial(os.open, mode=mode)), name)
    except OSError as error:
        raise OSError(error.errno, error.strerror, folder) from error


def _locked(file: BinaryIO, name: str | None) -> _Temporary:
    _lock(file.fileno())
    return _Temporary(file, name)


def _naming(target: str, error: OSError, temporary: str | None) -> OSError:
    """`error` about the file that the user named."""
    if error.errno and error.filename in (None, temporary):
        return OSError(error.errno, error.strerror, target)
    return error


def _unused_name(folder: str) -> str:
    """Short whatever the target is called: names end at 255 bytes."""
    return os.path.join(folder, f".delegraph-{os.urandom(8).hex()}.tmp")


# ---- names -----------------------------------------------------------------------------------------


def _swap(files: Sequence[tuple[str, _Temporary]], cleanup: ExitStack) -> None:
    """Give all files their names. If that fails for one, those before it get their old content back."""
    with ExitStack() as undo:
        for target, temporary in files:
            restore = _keep_old(target, cleanup) if len(files) > 1 else None
            try:
                temporary.move_to(target)
            except OSError as error:
                raise _naming(target, error, temporary.name) from error
            if restore is not None:
                undo.callback(restore)
        undo.pop_all()


def _keep_old(target: str, cleanup: ExitStack) -> partial[None]:
    """A call that brings back the present file at `target`: a second name keeps it until then."""
    if _status(target) is None:
        return partial(_unlink, target)
    kept = _unused_name(os.path.dirname(target))
    try:
        os.link(target, kept)
    except OSError:  # a file system without hard links
        return partial(_nothing)
    cleanup.callback(_unlink, kept)
    if fcntl is not None:
        with suppress(OSError):
            cleanup.callback(os.close, descriptor := os.open(kept, os.O_RDONLY))
            _lock(descriptor)
    return partial(os.replace, kept, target)


def _unlink(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _nothing() -> None:
    """There is nothing that could be done."""


def _sync(folder: str) -> None:
    """Have the folder's entries on the disk; where a file system cannot promise it, the file is there anyway."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ---- leftovers of killed processes -------------------------------------------------------------------


def _lock(descriptor: int) -> bool:
    """Whether the open file is ours now; a lock ends with the process, however that ends."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_left_behind(folder: str) -> None:
    """Remove the temporary files of processes that are not any more."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in [entry for entry in entries if _TEMPORARY.fullmatch(entry.name)]:
            with suppress(OSError):
                if time.time() - entry.stat().st_ctime > _SETTLED_SECONDS:
                    _remove_unlocked(entry.path)


def _remove_unlocked(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if _lock(descriptor):
            os.unlink(path)
    finally:
        os.close(descriptor)
