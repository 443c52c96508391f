"""A weight's array -> the key under which named data has its bytes."""

from __future__ import annotations

import hashlib
from typing import Any

from numpy.typing import NDArray

from delegraph_cpu.blob import BACKEND_ID, bytes_of

__all__ = ["key_of"]


def key_of(array: NDArray[Any]) -> str:
    """By content, since optimisation may have changed a weight that has kept its name; whatever the shape."""
    return f"{BACKEND_ID}/{hashlib.sha256(bytes_of(array)).hexdigest()}"
