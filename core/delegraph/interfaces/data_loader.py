"""The interface of data loaders: the URL of a source -> ranges of its bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from delegraph.program.schema import Buffer


class DataLoader(ABC):
    """Gives ranges of bytes of one source (`SegmentSource` for the reader of programs)."""

    @abstractmethod
    def load(self, offset: int, size: int) -> Buffer:
        """The bytes `[offset, offset + size)`, read-only. Raises `AccessFailed` if the source ends before."""

    @abstractmethod
    def size(self) -> int:
        """The length of the source, in bytes."""

    def load_into(self, offset: int, size: int, buffer: memoryview) -> None:
        """Copy the range into the first `size` bytes of `buffer`. Raises `AccessFailed`."""
        buffer[:size] = self.load(offset, size)

    def release(self, data: Buffer) -> None:  # most have nothing to do
        """Let go of the memory behind `data`, which `load` returned: nobody reads it soon. It may still be read."""


class DataLoaderFactory(Protocol):
    """A function: the object behind a `delegraph.data_loaders` entry point, whose name is a scheme of URLs, "s3"."""

    def __call__(self, url: str) -> DataLoader:
        """The loader for "scheme://…", as a user wrote it. Raises `AccessFailed`."""
