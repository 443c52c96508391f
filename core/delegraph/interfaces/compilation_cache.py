"""Compiled code of a backend <-> a folder of the user's, so that a machine compiles or packs a blob once.

    folder/SHA-256 of the key/entry.json   the key in words; size and SHA-256 of every other file
                              code, …      the files that the backend wrote

The key is the host, the driver, the blob and the options. An entry is written under another name, then renamed: it is
there whole or not at all, whoever else writes. One that others could have written, or that is not what its `entry.json`
says, is removed and made anew. Where all entries are larger together than the bound, the least recently used one goes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from delegraph.errors import InvalidArgument, RuntimeFault
from delegraph.interfaces.cache_variables import BYTES_VARIABLE, FOLDER_VARIABLE
from delegraph.lazy_dataclass import dataclass
from delegraph.logs import Logger

__all__ = ["CacheChoice", "CacheEntry", "CompilationCache", "remove"]

_log = Logger(__name__)

DEFAULT_BYTES: Final = 4 * 2**30
_RECORD: Final = "entry.json"
_NEW, _OLD = ".new-", ".old-"
_SHARED_BYTES: Final = 2**16
_SETTLED_SECONDS: Final = 24 * 3600.0
"""A folder that is half written, or half removed, for longer than this is one of a process that was killed."""


CacheChoice: TypeAlias = "CompilationCache | str | os.PathLike[str] | bool | None"
"""A caller's choice: see `CompilationCache.of`."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """An entry as it is listed. `used` is when it was last read or written, in seconds since 1970."""

    path: Path
    key: Mapping[str, Any]
    nbytes: int
    used: float


@dataclass(frozen=True, slots=True)
class CompilationCache:
    """A folder with what backends compile at load, for any number of processes of one user.

    folder: made, for its owner alone, when something is first kept.
    max_bytes: the bound on all entries together.
    """

    folder: Path
    max_bytes: int = DEFAULT_BYTES

    @classmethod
    def of(cls, choice: CacheChoice) -> CompilationCache | None:
        """The cache of a caller's choice: a folder, True for the one below the platform's folder of caches, False for
        none. None: as DELEGRAPH_CACHE says, a folder, 1 or 0; none if it is not set. DELEGRAPH_CACHE_BYTES is the
        bound. Raises `InvalidArgument` for what is neither."""
        if isinstance(choice, CompilationCache):
            return choice
        if choice is None:
            text = os.environ.get(FOLDER_VARIABLE, "")
            choice = {"": False, "0": False, "1": True}.get(text, text)
        if choice is False:
            return None
        if choice is not True and not isinstance(choice, str | os.PathLike):
            raise InvalidArgument(f"cache={choice!r:.80} is neither a folder nor True, False or None")
        folder = platform_folder() if choice is True else Path(choice).expanduser()
        return cls(folder.absolute(), _bytes_allowed())

    def entries(self) -> list[CacheEntry]:
        """All entries, the least recently used first; what is not an entry of ours is left out."""
        listed = []
        for path in self._folders():
            with suppress(OSError, ValueError):
                used = (path / _RECORD).stat().st_mtime
                listed.append(CacheEntry(path, _record(path)["key"], _nbytes(path), used))
        return sorted(listed, key=lambda entry: entry.used)

    def clear(self) -> None:
        """Remove all entries; nothing else in the folder is touched."""
        for path in self._folders():
            remove(path)

    def kept(self, key: Mapping[str, Any], write: Callable[[Path], object]) -> Path | None:
        """See `BackendCache.kept`; `key` is JSON."""
        path = self.folder / hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return self._opened(path, key) or self._written(path, key, write)

    def _opened(self, path: Path, key: Mapping[str, Any]) -> Path | None:
        """The entry at `path`, if it is there, ours, of this key and whole; else it is removed."""
        try:
            if not path.is_dir() or not _is_ours(self.folder):
                return None
            _check(path, key)
        except (OSError, ValueError) as error:
            _log.info("removed an entry that is damaged, or not ours: %s", error)
            remove(path)
            return None
        _log.debug("found a delegate of %s in %s", key.get("backend"), path)
        with suppress(OSError):  # it was prepared by somebody else, for reading
            os.utime(path / _RECORD)
        return path

    def _written(self, path: Path, key: Mapping[str, Any], write: Callable[[Path], object]) -> Path | None:
        """The entry that `write` makes now; None, with a warning, if it cannot be kept."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_ours(self.folder):
                raise PermissionError("others may write to the folder, or it is somebody else's")
            with tempfile.TemporaryDirectory(prefix=_NEW, dir=self.folder, ignore_cleanup_errors=True) as name:
                new = Path(name) / path.name
                new.mkdir(mode=0o700)
                write(new)
                self._share(new)
                _seal(new, key)
                if _nbytes(new) > self.max_bytes:
                    raise OSError(f"{_nbytes(new):,} bytes are more than its bound of {self.max_bytes:,}")
                try:
                    new.rename(path)
                except OSError as error:
                    if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                        raise
                    return self._opened(path, key)  # another process was faster
        except (OSError, ValueError, RuntimeFault) as error:
            told = f"the compilation cache {self.folder} does not keep a delegate of {key.get('backend')}: {error}"
            warnings.warn(told, RuntimeWarning, stacklevel=2)
            return None
        _log.debug("kept a delegate of %s in %s", key.get("backend"), path)
        self._make_room(path)
        return path

    def _share(self, new: Path) -> None:
        """Make files of the new entry that others have, too, further names of theirs: pages of memory are shared."""
        kept: dict[tuple[int, str], Path] = {}
        for entry in self._folders():
            with suppress(OSError, ValueError, TypeError, AttributeError):
                kept |= {(size, digest): entry / name for name, (size, digest) in _record(entry)["files"].items()}
        for path in _files(new).values():
            size = path.stat().st_size
            other = kept.get((size, _digest_of(path))) if size >= _SHARED_BYTES else None
            with suppress(OSError):  # a file system without such names, or an entry that has gone
                if other is not None and _is_ours(other) and _digest_of(other) == _digest_of(path):
                    name = new / f"{_NEW}name"
                    os.link(other, name)
                    name.replace(path)

    def _make_room(self, latest: Path) -> None:
        """Remove the least recently used entries but `latest`, until the others fit; and leftovers."""
        entries = self.entries()
        total = sum(entry.nbytes for entry in entries)
        for entry in entries:
            if total > self.max_bytes and entry.path != latest:
                _log.debug("removed the least recently used entry, %s: %d bytes", entry.path, entry.nbytes)
                remove(entry.path)
                total -= entry.nbytes
        with suppress(OSError):
            for left in [*self.folder.glob(f"{_NEW}*"), *self.folder.glob(f"{_OLD}*")]:
                if time.time() - left.lstat().st_mtime > _SETTLED_SECONDS:
                    shutil.rmtree(left, ignore_errors=True)

    def _folders(self) -> Iterator[Path]:
        with suppress(OSError):
            yield from [path for path in self.folder.iterdir() if _is_name(path.name) and (path / _RECORD).is_file()]


def platform_folder() -> Path:
    """Where `cache=True` keeps entries: in the user's folder of caches, as the platform has it."""
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "delegraph" / "Cache"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "delegraph"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "delegraph"


def _bytes_allowed() -> int:
    text = os.environ.get(BYTES_VARIABLE, "")
    if text and not text.isdecimal():
        raise InvalidArgument(f"{BYTES_VARIABLE}={text!r:.40} is not a number of bytes")
    return int(text) if text else DEFAULT_BYTES


# ---- an entry -------------------------------------------------------------------------------------------------------


def _is_name(name: str) -> bool:
    return len(name) == hashlib.sha256().digest_size * 2 and all(letter in "0123456789abcdef" for letter in name)


def _files(entry: Path) -> dict[str, Path]:
    """The files of an entry but for its record, by their names in it. Raises `ValueError` for a link and the like."""
    files = {}
    for path in sorted(entry.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            files[path.relative_to(entry).as_posix()] = path
        elif not stat.S_ISDIR(mode):
            raise ValueError(f"{path} is neither a file nor a folder")
    files.pop(_RECORD, None)
    return files


def _nbytes(entry: Path) -> int:
    """Of a file that several entries have, each counts its part."""
    statuses = [path.stat() for path in [*_files(entry).values(), entry / _RECORD]]
    return sum(status.st_size // status.st_nlink for status in statuses)


def _record(entry: Path) -> dict[str, Any]:
    """The record that an entry has of itself. Raises `OSError`, or `ValueError` if that cannot be read."""
    record = json.loads((entry / _RECORD).read_bytes())
    if not isinstance(record, dict) or not isinstance(record.get("key"), dict):
        raise ValueError(f"{entry} has no record")
    return record


def _seal(entry: Path, key: Mapping[str, Any]) -> None:
    """Write the record of an entry whose other files are there, and let nobody else write to any."""
    files = {name: [path.stat().st_size, _digest_of(path)] for name, path in _files(entry).items()}
    (entry / _RECORD).write_text(json.dumps({"key": key, "files": files}, indent=1), encoding="utf-8")
    for path in entry.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


def _check(entry: Path, key: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless the entry is ours, of this key, and whole; `OSError` if it is gone."""
    record, files = _record(entry), _files(entry)
    if record["key"] != key or record.get("files", {}).keys() != files.keys():
        raise ValueError(f"{entry} is another entry")
    if not all(map(_is_ours, [entry, entry / _RECORD, *files.values(), *(path.parent for path in files.values())])):
        raise ValueError(f"others may write to {entry}")
    for name, path in files.items():
        if record["files"][name] != [path.stat().st_size, _digest_of(path)]:
            raise ValueError(f"{path} is damaged")


def _is_ours(path: Path) -> bool:
    """Whether a file or folder is this user's, or the administrator's, and nobody else may write to it."""
    if os.name != "posix":
        return True
    status = path.lstat()
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022


_digests: Final[dict[tuple[int, ...], str]] = {}
"""Those of files that this process has read, by device, inode, size and time of change: its next load trusts them."""


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if identity not in _digests:
            _digests[identity] = hashlib.file_digest(file, "sha256").hexdigest()
    return _digests[identity]


def remove(entry: Path) -> None:
    """Remove it: first its name, so that nobody finds a part of it."""
    gone = entry.with_name(f"{_OLD}{os.urandom(8).hex()}")
    with suppress(OSError):  # on Windows, where somebody has it open
        entry.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
