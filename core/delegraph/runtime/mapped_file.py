"""A file -> its bytes, mapped: those that it had when it was opened, or an exception.

On Linux whoever is about to write to it waits until a copy stands where it is mapped (`leases.py`): views go on giving
what they gave before. Where there is no lease, its size and the time of its last change are compared; that does not
help who reads a page which is not there any more, whom the system ends (SIGBUS).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from weakref import WeakValueDictionary

from delegraph.errors import AccessFailed
from delegraph.interfaces import leave_at_fork
from delegraph.runtime.file_state import FileState
from delegraph.runtime.lacking import lacking
from delegraph.runtime.leases import LOCK, Lease, give_back, take_lease

if TYPE_CHECKING:
    from mmap import mmap as Mapping

__all__ = ["MappedFile", "map_file"]

_MREMAP_MAYMOVE, _MREMAP_FIXED, _MAP_FIXED = 1, 2, 0x10  # linux/mman.h, asm-generic/mman-common.h
_FAILED: Final = ctypes.c_void_p(-1).value


def map_file(path: str, file: BinaryIO, state: FileState) -> MappedFile:
    """`file` in that state, mapped: as it was for an earlier load which still uses it, so that backends see that they
    are handed the same memory. Raises `AccessFailed`."""
    status = os.fstat(file.fileno())
    identity = status.st_dev, status.st_ino, state.size, state.mtime_ns
    with LOCK:
        known = _IN_USE.get(identity)
        if known is None:
            known = _IN_USE[identity] = MappedFile(path, file, state)
            return known
    file.close()
    known.require_unchanged()
    return known


_IN_USE: Final[WeakValueDictionary[tuple[int, ...], MappedFile]] = WeakValueDictionary()
"""By device, inode, size and time of change."""


class MappedFile:
    """The bytes of `file` in that state, which is not empty; it is closed with this object.

    One descriptor is kept, and none behind a copy; two where the system is not Linux and Python older than 3.13.
    Raises `AccessFailed` if it cannot be mapped.
    """

    def __init__(self, path: str, file: BinaryIO, state: FileState) -> None:
        self._path = path
        self._file = file
        self._state = state
        try:
            self._map, self._address = _mapped(file, self._state.size)
        except OSError as error:
            raise AccessFailed(f"{path}: cannot be mapped: {lacking(error) or error}") from error
        self.view: Final = memoryview(self._map).toreadonly()
        """The bytes, read-only."""
        self._is_kept = False  # by a lease, or as a copy
        self._may_ask = self._address is not None
        self.require_unchanged()
        leave_at_fork(self._ask_again)

    def require_unchanged(self) -> None:
        """Raise `AccessFailed` if the file was written to, or cut, and the bytes are not those of before any more."""
        if not self._is_kept:
            self._look()

    def _look(self) -> None:
        with LOCK:
            if self._may_ask:
                self._may_ask = False
                lease = take_lease(self)
                self._is_kept = lease is Lease.GRANTED
                if lease is Lease.WRITTEN:
                    self.keep_copy()
            if not self._file.closed:
                self._state.require(self._file, self._path)

    def fileno(self) -> int:
        """The descriptor, for the lease."""
        return self._file.fileno()

    def keep_copy(self) -> None:
        """Let a copy stand where the file is mapped, and let go of the file; of the lease alone, if there is no room.

        The file is looked at again behind that: who waits to write to it does not wait for ever.
        """
        assert self._address is not None
        try:
            is_copy = _copied(self._file, self._address, self._state.size)
        except MemoryError:
            is_copy = False
        self._is_kept = is_copy and FileState.of(self._file) == self._state
        give_back(self)  # closing is not enough, where a fork's child has the same open file still
        if self._is_kept:
            self._file.close()

    def _ask_again(self) -> None:
        """In a fork's child: the lease is the parent's, and is not to stay when that has ended."""
        if self._file.closed or self._address is None:
            return
        may_ask, self._may_ask, self._is_kept = self._may_ask or self._is_kept, False, False
        mine = self._file.fileno()
        with suppress(OSError):
            opened_again = os.open(f"/proc/self/fd/{mine}", os.O_RDONLY)
            os.dup2(opened_again, mine, inheritable=False)
            os.close(opened_again)
            _put(self._file, self._address, self._state.size)  # mapped, the parent's file is open as well
            self._may_ask = may_ask

    def release(self, offset: int, nbytes: int) -> None:
        """Let the system take the whole pages among these bytes; they are read from the file again."""
        first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        whole_pages = (offset + nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
        with LOCK:  # a copy has no file to be read from
            if whole_pages > 0 and hasattr(mmap, "MADV_DONTNEED") and not self._file.closed:
                self._map.madvise(mmap.MADV_DONTNEED, first, whole_pages)

    def __del__(self) -> None:
        self._file.close()


def _mapped(file: BinaryIO, size: int) -> tuple[Mapping, int | None]:
    """The file, mapped read-only; and its address, where a copy can take its place. Raises `OSError`."""
    if sys.platform != "linux":
        alone: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) and os.name == "posix" else {}
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ, **alone), None
    # Python keeps a descriptor of each file that it maps; not so of memory, where we put the file
    place = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(place))
    _put(file, address, size)
    return place, address


def _put(file: BinaryIO, address: int, size: int) -> None:
    """Map the file there, in the place of what is mapped there. Raises `OSError`."""
    _map(address, size, mmap.PROT_READ, mmap.MAP_PRIVATE | _MAP_FIXED, file.fileno())


def _copied(file: BinaryIO, address: int, size: int) -> bool:
    """Put a copy of the file where it is mapped, at once for all threads; whether that could be done."""
    libc = _libc()
    try:
        copy = _map(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    except OSError:
        return False
    is_whole = _read(file, memoryview((ctypes.c_char * size).from_address(copy)))
    libc.mprotect(copy, size, mmap.PROT_READ)
    is_there = is_whole and libc.mremap(copy, size, size, _MREMAP_MAYMOVE | _MREMAP_FIXED, address) == address
    if not is_there:
        libc.munmap(copy, size)
    return is_there


def _read(file: BinaryIO, buffer: memoryview) -> bool:
    """Fill the buffer from the file's beginning; whether it was long enough."""
    done = 0
    while done < len(buffer):
        try:
            count = os.preadv(file.fileno(), [buffer[done:]], done)
        except OSError:
            return False
        if not count:
            return False
        done += count
    return True


def _map(address: int | None, size: int, protection: int, flags: int, file: int) -> int:
    mapped: int = _libc().mmap(address, size, protection, flags, file, 0)
    if mapped == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return mapped


@cache
def _libc() -> Any:
    """The C library, which Python's `mmap` does not give all of."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(3 * [ctypes.c_int]), ctypes.c_long)
    libc.mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
    return libc
