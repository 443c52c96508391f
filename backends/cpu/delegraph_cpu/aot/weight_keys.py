"""A weight's array -> its bytes as they lie in a file, and the key under which named data has them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegraph_cpu.blob import BACKEND_ID

__all__ = ["bytes_of", "key_of"]


def bytes_of(array: NDArray[Any]) -> memoryview:
    """The bytes of `array`, without a copy if it is contiguous."""
    return memoryview(array.reshape(-1).view(np.uint8).data)


def key_of(array: NDArray[Any]) -> str:
    """By content, since optimisation may have changed a weight that has kept its name; whatever the shape."""
    return f"{BACKEND_ID}/{hashlib.sha256(bytes_of(array)).hexdigest()}"
