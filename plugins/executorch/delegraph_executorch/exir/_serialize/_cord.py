"""Bytes in pieces (ExecuTorch `exir/_serialize/_cord.py`)."""

from __future__ import annotations

from typing import BinaryIO

__all__ = ["Cord"]


class Cord:
    """A sequence of bytes that is put together without copying its pieces."""

    def __init__(self, data: bytes | Cord | None = None) -> None:
        self._buffers: list[bytes] = []
        self._byte_size = 0
        if data is not None:
            self.append(data)

    def __len__(self) -> int:
        return self._byte_size

    def __bytes__(self) -> bytes:
        return b"".join(self._buffers)

    def append(self, data: bytes | Cord) -> None:
        """Add `data` at the end. Raises TypeError for anything but bytes and cords."""
        if isinstance(data, Cord):
            self._buffers.extend(data._buffers)
        elif isinstance(data, bytes):
            self._buffers.append(data)
        else:
            raise TypeError(f"a Cord takes bytes and Cords, not {type(data).__name__}")
        self._byte_size += len(data)

    def write_to_file(self, outfile: BinaryIO) -> None:
        """Write all pieces in order."""
        for piece in self._buffers:
            outfile.write(piece)
