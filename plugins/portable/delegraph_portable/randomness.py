"""Random tensors and dropout. The generator is NumPy's, seeded by the operating system."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.runtime.kernels import BoundCall

from .library import Array, Context, kernel
from .promotion import check_floating, check_result, compute_type

if TYPE_CHECKING:
    from numpy.random import Generator


@cache
def generator() -> Generator:
    """Made when first used: importing numpy.random costs more than this package."""
    from numpy.random import default_rng

    return default_rng()


@kernel("aten::rand.out")
def rand(context: Context, size: Sequence[int], out: Array) -> BoundCall:
    """Uniform in [0, 1)."""
    check_floating(out, "out")
    out = context.resize(out, tuple(size))
    # As many random bits as the dtype has, so that none is rounded up to 1.
    bits = {2: 11, 4: 24, 8: 53}[out.itemsize] if out.dtype.kind == "f" else 8
    return lambda: np.copyto(out, generator().integers(0, 2**bits, out.shape) / 2.0**bits, casting="unsafe")


@kernel("aten::randn.out")
def randn(context: Context, size: Sequence[int], out: Array) -> BoundCall:
    """Normal with mean 0 and variance 1."""
    check_floating(out, "out")
    out = context.resize(out, tuple(size))
    return lambda: np.copyto(out, generator().standard_normal(out.shape), casting="unsafe")


@kernel("aten::native_dropout.out")
def native_dropout(context: Context, input: Array, p: float, train: bool | None, out0: Array, out1: Array) -> BoundCall:
    """If `train`: a share `p` of the input zeroed, the rest divided by 1 - p, and the mask of that rest."""
    check_floating(input, "input")
    check_result(input.dtype, out0)
    if not 0 <= p <= 1:
        raise InvalidArgument(f"argument 'p' must be between 0 and 1, but is {p}")
    out0, out1 = context.resize(out0, input.shape), context.resize(out1, input.shape)

    def call() -> None:
        if train is not None and not train:
            np.copyto(out0, input, casting="unsafe")
            out1.fill(True)
            return
        kept = generator().random(input.shape) >= p
        scale = 0 if p == 1 else 1 / (1 - p)
        np.copyto(out0, input.astype(compute_type(input.dtype)) * kept * scale, casting="unsafe")
        np.copyto(out1, kept, casting="unsafe")

    return call
