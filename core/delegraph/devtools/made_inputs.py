"""A method's metadata -> inputs that it takes, made up: random numbers or zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegraph.program.dtypes import numpy_dtype
from delegraph.program.schema import Tensor
from delegraph.runtime.method_meta import MethodMeta

__all__ = ["made_inputs"]


def made_inputs(
    meta: MethodMeta, seed: int | None = 0, sizes: Mapping[int, Sequence[int]] = MappingProxyType({})
) -> list[object]:
    """Random inputs, or zeros without a `seed`. `sizes` are those of dynamic inputs, the largest where they are not
    named; bytes are pixels, wider integers 0 or 1, to be indices or masks. Whatever is no tensor has the value that it
    was exported with."""
    generator = None if seed is None else np.random.default_rng(seed)
    values = [meta.input_value(index) for index in range(meta.num_inputs())]
    return [
        _made(value, tuple(sizes.get(index, value.sizes)), generator)
        if isinstance(value, Tensor)
        else getattr(value, "value", None)
        for index, value in enumerate(values)
    ]


def _made(tensor: Tensor, sizes: tuple[int, ...], generator: np.random.Generator | None) -> NDArray[Any]:
    dtype = numpy_dtype(tensor.scalar_type)
    if generator is None:
        return np.zeros(sizes, dtype)
    if dtype == np.uint8:  # pixels, where wider integers are indices or masks
        return generator.integers(0, 256, sizes, dtype)
    if dtype.kind in "biu":
        return generator.integers(0, 2, sizes).astype(dtype)
    return generator.standard_normal(sizes).astype(dtype)
