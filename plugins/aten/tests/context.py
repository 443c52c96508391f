"""A `BindContext` for tests that call kernels without a program."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import InvalidArgument

Array = NDArray[Any]


class Context:
    """Outputs may take any shape, except those in `static`; `resized` has the last array of each, by the first's id."""

    def __init__(self, *static: Array) -> None:
        self.static = {id(array) for array in static}
        self.resized: dict[int, Array] = {}

    def resize(self, out: Array, shape: tuple[int, ...]) -> Array:
        if out.shape == shape:
            return out
        if id(out) in self.static:
            raise InvalidArgument(f"a static tensor of shape {list(out.shape)} cannot become {list(shape)}")
        return self.resized.setdefault(id(out), np.empty(shape, out.dtype))

    def allocate_temp(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)

    workspace = allocate_temp

    def is_constant(self, array: Array) -> bool:
        return not array.flags.writeable

    def result(self, out: Array) -> Array:
        """The array that stands for `out` now."""
        return self.resized.get(id(out), out)
