"""The environment variables of the compilation cache."""

from __future__ import annotations

from typing import Final

__all__ = ["BYTES_VARIABLE", "FOLDER_VARIABLE"]

FOLDER_VARIABLE: Final = "DELEGRAPH_CACHE"
BYTES_VARIABLE: Final = "DELEGRAPH_CACHE_BYTES"
