"""A file -> a digest of its bytes."""

from __future__ import annotations

import hashlib
import os

__all__ = ["file_digest"]


def file_digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 of the file's bytes, in hexadecimal digits. Raises `OSError` if it cannot be read."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
