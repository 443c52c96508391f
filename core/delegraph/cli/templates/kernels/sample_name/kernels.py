"""The kernels, for devices: NumPy, no torch. Each is named after the out variant of its operator."""

from __future__ import annotations

from typing import Any

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import KernelContext, KernelLibrary

library = KernelLibrary("sample_name")


@library.kernel("sample_name::scaled_tanh.out")
def scaled_tanh_out(context: KernelContext, x: Any, factor: float, out: Any) -> None:
    """`out = factor * tanh(x)`. Arguments are the schema's, in its order; tensors are arrays, of any strides."""
    if x.dtype.kind != "f" or out.dtype != x.dtype:
        raise InvalidArgument(f"scaled_tanh computes in floating point, not {x.dtype} into {out.dtype}")
    out = context.resize(out, x.shape)
    np.tanh(x, out=out)
    np.multiply(out, out.dtype.type(factor), out=out)
