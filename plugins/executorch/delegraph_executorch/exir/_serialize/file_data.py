"""Bytes that stay in a file until they are written into another (ExecuTorch 1.5 `exir/_serialize/_cord.py`)."""

from __future__ import annotations

import os
import tempfile
import weakref
from contextlib import suppress
from hashlib import sha256
from mmap import ACCESS_READ, mmap
from typing import BinaryIO, Self


class FileBackedData:
    """The content of the file `path`, mapped into memory: read where it is needed, and never copied as a whole.

    With `cleanup` the file is removed when this is closed or forgotten. `sha256` is its digest, where that is known.
    """

    def __init__(self, path: str, cleanup: bool = False, sha256: bytes | None = None) -> None:
        with open(path, "rb") as file:  # an empty file cannot be mapped
            mapped = mmap(file.fileno(), 0, access=ACCESS_READ) if os.path.getsize(path) else b""
        self.view = memoryview(mapped)
        """The bytes, read-only, as long as this is open."""
        self._sha256 = sha256
        self._finalizer = weakref.finalize(self, _remove, path) if cleanup else None

    @classmethod
    def move_from(cls, path: str, sha256: bytes | None = None) -> Self:
        """Take over the file `path`: it has another name from now on, and is removed in the end. Raises `OSError`."""
        number, own = tempfile.mkstemp(prefix=".delegraph_", suffix=".data", dir=os.path.dirname(path) or ".")
        os.close(number)
        try:
            os.replace(path, own)
        except OSError:
            _remove(own)
            raise
        return cls(own, cleanup=True, sha256=sha256)

    def __len__(self) -> int:
        return self.view.nbytes

    def prefix(self, size: int) -> bytes:
        """The first `size` bytes, or all if there are fewer."""
        return bytes(self.view[:size])

    def sha256(self) -> bytes:
        """The digest, 32 bytes."""
        if self._sha256 is None:
            self._sha256 = sha256(self.view).digest()
        return self._sha256

    def to_bytes(self) -> bytes:
        """All of it, copied into memory."""
        return bytes(self.view)

    def write_to_file(self, outfile: BinaryIO) -> None:
        """Write all of it."""
        outfile.write(self.view)

    def close(self) -> None:
        """Remove the file, if it was taken over."""
        with suppress(BufferError):  # who reads it still has a view of it
            self.view.release()
        if self._finalizer is not None:
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _remove(path: str) -> None:
    with suppress(OSError):
        os.remove(path)


def in_memory(data: bytes | FileBackedData) -> bytes | memoryview:
    """`data` as it can be read."""
    return data.view if isinstance(data, FileBackedData) else data
