"""An open file -> what tells whether somebody wrote to it since."""

from __future__ import annotations

import os
from typing import BinaryIO

from delegraph.errors import AccessFailed
from delegraph.lazy_dataclass import dataclass

__all__ = ["FileState"]


@dataclass(frozen=True, slots=True)
class FileState:
    """A file's bytes, and when it was last written to; not when it was last renamed or linked."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, file: BinaryIO) -> FileState:
        """As it is now."""
        state = os.fstat(file.fileno())
        return cls(state.st_size, state.st_mtime_ns)

    def require(self, file: BinaryIO, path: str) -> None:
        """Raise `AccessFailed` if it is another one now. Linux keeps the time to a few milliseconds."""
        if self.of(file) != self:
            raise AccessFailed(
                f"{path}: the file was changed while it was in use; load it again, and replace a file by renaming"
                " another one over it, not by writing into it"
            )
