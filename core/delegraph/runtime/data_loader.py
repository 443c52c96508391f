"""A source -> bytes: where the runtime reads a `.pte` or `.ptd` from; also of your own making, a `DataLoader`.

A loader is thread-safe and serves the program for its whole life. `MmapDataLoader`, the default for paths, touches
no page before somebody reads it. Raises `AccessFailed` for a file that is missing, unreadable or too short.
"""

from __future__ import annotations

import os
import stat
from _thread import allocate_lock as Lock
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

from delegraph.errors import AccessFailed, DelegraphError, MemoryAllocationFailed, cause_of
from delegraph.interfaces.data_loader import DataLoader
from delegraph.program.schema import Buffer
from delegraph.runtime.file_state import FileState
from delegraph.runtime.lacking import lacking

if TYPE_CHECKING:
    from delegraph.plugins.registry import PluginRegistry
    from delegraph.runtime.mapped_file import MappedFile

_MEMORY: Final = "the buffer"


Source: TypeAlias = Buffer | BinaryIO | str | os.PathLike[str] | DataLoader
"""A source of bytes: bytes, a binary file object, a path (which is mapped), a URL (through the data loader
that is installed for its scheme, else through fsspec), a `DataLoader`."""


class BufferDataLoader(DataLoader):
    """Bytes that are already in memory; ranges are views, never copies."""

    def __reduce__(self) -> tuple[type[BufferDataLoader], tuple[bytes]]:
        return BufferDataLoader, (bytes(self._view),)

    def __init__(self, data: Buffer) -> None:
        self._view = memoryview(data).cast("B").toreadonly()

    def load(self, offset: int, size: int) -> Buffer:
        _check_range(_MEMORY, offset, size, len(self._view))
        return self._view[offset : offset + size]

    def size(self) -> int:
        return len(self._view)


class FileDataLoader(DataLoader):
    """A file that is read range by range into memory of its own: loaded bytes outlive the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._file = _open(self._path)
        self._lock = Lock()  # one file position for all threads

    def load(self, offset: int, size: int) -> Buffer:
        length = self.size()
        _check_range(self._path, offset, size, length)
        with self._lock:
            try:
                self._file.seek(offset)
                data = self._file.read(size)
            except OSError as error:
                raise AccessFailed(f"{self._path}: cannot be read: {error.strerror or error}") from error
        _check_range(self._path, offset, size, offset + len(data))
        return memoryview(data)

    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def __reduce__(self) -> tuple[type[FileDataLoader], tuple[str]]:
        return FileDataLoader, (os.path.abspath(self._path),)

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # not if opening it failed
            self._file.close()


COPIED_BYTES: Final = 2**24
"""Up to 16 MiB a file is copied: in 4 ms, an eighth of what its checksums take, and whatever becomes of the file."""


class MmapDataLoader(DataLoader):
    """A file whose bytes stay those that it had when it was opened, or `load` raises `AccessFailed`.

    Up to 16 MiB it is copied. A larger one is mapped read-only: ranges are views into the mapping, paged in when they
    are read. On Linux, whoever writes to it, or cuts it, waits until it was copied as well, which takes as much memory
    as the file has bytes. Elsewhere, for other users' files and on most network file systems, `require_unchanged` says
    that it was changed, and the system ends a process that reads what was cut off. `FileDataLoader` is safe from that,
    and so is replacing a file by renaming another one over it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        file = _open(self._path)
        state = FileState.of(file)
        self._file: MappedFile | None = None
        if state.size > COPIED_BYTES:
            from delegraph.runtime.mapped_file import map_file

            self._file = map_file(self._path, file, state)
            self._view = self._file.view
            return
        with file:
            if not state.size:
                raise AccessFailed(f"{self._path}: cannot be mapped: the file is empty")
            self._view = self._copied(file, state.size)
            state.require(file, self._path)

    @property
    def is_mapped(self) -> bool:
        """Whether what `load` gives is, or was, the file's own memory."""
        return self._file is not None

    def require_unchanged(self) -> None:
        """Raise `AccessFailed` if what was loaded may have changed, because somebody wrote to the file or cut it."""
        if self._file is not None:
            self._file.require_unchanged()

    def _copied(self, file: BinaryIO, size: int) -> memoryview:
        from mmap import mmap  # no array: reading a file's records needs no NumPy

        try:
            copy = mmap(-1, size)
        except OSError as error:
            raise MemoryAllocationFailed(f"the system did not give {size:,} bytes: {error}") from error
        try:
            _check_range(self._path, 0, size, file.readinto(copy))  # type: ignore[attr-defined]
        except OSError as error:
            raise AccessFailed(f"{self._path}: cannot be read: {error.strerror or error}") from error
        return memoryview(copy).toreadonly()

    def load(self, offset: int, size: int) -> Buffer:
        self.require_unchanged()
        _check_range(self._path, offset, size, len(self._view))
        return self._view[offset : offset + size]

    def size(self) -> int:
        return len(self._view)

    def release(self, data: Buffer) -> None:
        if self._file is None:
            return
        import numpy as np

        address = np.frombuffer(data, np.uint8).ctypes.data
        start, nbytes = address - np.frombuffer(self._view, np.uint8).ctypes.data, memoryview(data).nbytes
        if start >= 0 and start + nbytes <= len(self._view):
            self._file.release(start, nbytes)

    def __reduce__(self) -> tuple[type[MmapDataLoader], tuple[str]]:
        return MmapDataLoader, (os.path.abspath(self._path),)


class UrlDataLoader(DataLoader):
    """Whatever fsspec has a file system for: `s3://…`, `https://…`, `memory://…`. Ranges are fetched as they are asked
    for, each once by whoever loads the program.

    Needs fsspec (the extra `url`); other file systems are plug-ins of fsspec. Raises `AccessFailed`.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise AccessFailed(f"{url}: fsspec, which reads URLs, is missing: `pip install fsspec`") from None
        with self._told():
            self._files, self._path = url_to_fs(url)
            self._size = int(self._files.size(self._path))

    def load(self, offset: int, size: int) -> Buffer:
        _check_range(self._url, offset, size, self._size)
        with self._told():
            data: bytes = self._files.cat_file(self._path, start=offset, end=offset + size) if size else b""
        _check_range(self._url, offset, size, offset + len(data))
        return memoryview(data)

    def size(self) -> int:
        return self._size

    def __reduce__(self) -> tuple[type[UrlDataLoader], tuple[str]]:
        return UrlDataLoader, (self._url,)

    def _told(self) -> AbstractContextManager[None]:
        """Any exception becomes `AccessFailed`: those of file systems have no common base."""
        return _faults_as_access_failed(f"{self._url}: cannot be read")


_OURS: Final = (BufferDataLoader, FileDataLoader, MmapDataLoader, UrlDataLoader)


class _Guarded(DataLoader):
    """Somebody else's loader: its exceptions become `AccessFailed`, and the length of its answers is checked."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._name = type(loader).__name__

    def load(self, offset: int, size: int) -> Buffer:
        with _faults_as_access_failed(f"{self._name}.load({offset}, {size}) failed"):
            data = self._loader.load(offset, size)
            size_loaded = memoryview(data).nbytes
        _check_range(self._name, offset, size, offset + size_loaded)
        return data

    def size(self) -> int:
        with _faults_as_access_failed(f"{self._name}.size() failed"):
            return int(self._loader.size())

    def load_into(self, offset: int, size: int, buffer: memoryview) -> None:
        with _faults_as_access_failed(f"{self._name}.load_into({offset}, {size}) failed"):
            self._loader.load_into(offset, size, buffer)

    def release(self, data: Buffer) -> None:
        with _faults_as_access_failed(f"{self._name}.release() failed"):
            self._loader.release(data)


@contextmanager
def _faults_as_access_failed(what: str) -> Iterator[None]:
    try:
        yield
    except DelegraphError:
        raise
    except Exception as error:
        raise AccessFailed(f"{what}: {cause_of(error)}") from error


def open_data_loader(source: Source, plugins: PluginRegistry | None = None) -> DataLoader:
    """The loader for `source`: bytes, a binary file object (read to its end), a path (mapped), a URL, or a loader.

    `plugins` (None: the process's registry) has the loaders for URLs. Raises `AccessFailed`, a `PluginError` for a
    loader that cannot be loaded, and `TypeError` for anything else.
    """
    if isinstance(source, DataLoader):
        return source if type(source) in _OURS else _Guarded(source)
    if isinstance(source, bytes | bytearray | memoryview):
        return BufferDataLoader(source)
    if isinstance(source, str) and "://" in source:
        return _url_loader(source, plugins)
    if isinstance(source, str | os.PathLike):
        return MmapDataLoader(source)
    if hasattr(source, "read"):
        with _faults_as_access_failed("the file object cannot be read"):
            data = source.read()
        if isinstance(data, str):
            raise TypeError("the file object gives text; open it in binary mode ('rb')")
        return BufferDataLoader(data)
    kind = type(source).__name__
    raise TypeError(f"expected bytes, a path, a binary file object or a DataLoader, got {kind}{_instead(source)}")


def _instead(source: object) -> str:
    """The step that somebody who passes `source` has forgotten, in words."""
    if hasattr(source, "save"):
        return "; save it, .save(path), and load the path, or load its bytes, bytes(lowered)"
    if hasattr(source, "forward"):
        return "; a model is lowered first, delegraph.lower(model, args)"
    return ""


def _url_loader(url: str, plugins: PluginRegistry | None) -> DataLoader:
    from delegraph.plugins.registry import default_registry

    registry, scheme = plugins or default_registry(), url.partition("://")[0]
    if scheme not in registry.names("delegraph.data_loaders"):
        return UrlDataLoader(url)
    factory = registry.load("delegraph.data_loaders", scheme)
    try:
        loader: object = factory(url)
    except DelegraphError:
        raise
    except Exception as error:
        raise AccessFailed(f"{url}: the data loader for {scheme!r} raised {cause_of(error)}") from error
    if not isinstance(loader, DataLoader):
        raise AccessFailed(f"{url}: the data loader for {scheme!r} gave {loader!r:.80}, which is not a DataLoader")
    return _Guarded(loader)


def _open(path: str) -> BinaryIO:
    """A regular file: a pipe would be waited for, a device may have no end."""
    try:
        file = open(path, "rb", opener=_at_once)  # noqa: SIM115
    except OSError as error:
        raise AccessFailed(f"{path}: cannot be opened: {lacking(error) or error.strerror or error}") from error
    except ValueError as error:  # a NUL, or a character that file names cannot have
        raise AccessFailed(f"{path!r}: cannot be opened: {error}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise AccessFailed(f"{path}: is not a regular file; read it, and give its bytes")
    return file


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check_range(name: str, offset: int, size: int, length: int) -> None:
    if offset < 0 or size < 0 or offset + size > length:
        raise AccessFailed(_too_short(name, offset, size, length))


def _too_short(name: str, offset: int, size: int, length: int) -> str:
    return (
        f"{name}: bytes {offset:,} to {offset + size:,} were asked for, but it ends at {length:,};"
        " is the file incomplete? Copy or lower it again"
    )
