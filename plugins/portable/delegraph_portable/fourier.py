"""Fourier transforms of real and complex tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import copy_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_floating, check_one_of, is_complex
from delegraph.runtime.numpy_kernels.shapes import wrap_dims

from .library import kernel, prepare_out

Norm = Literal["backward", "ortho", "forward"]

_FORWARD_NORMS: Final[tuple[Norm, ...]] = ("backward", "ortho", "forward")
_INVERSE_NORMS: Final[tuple[Norm, ...]] = ("forward", "ortho", "backward")
"""NumPy's name of torch's `normalization`: 0 not at all, 1 by √n, 2 by n."""


@kernel("aten::_fft_r2c.out")
def fft_real_to_complex(
    context: Context, self: Array, dim: Sequence[int], normalization: int, onesided: bool, out: Array
) -> BoundCall:
    """Transform over `dim`; of its last, `onesided` keeps the n // 2 + 1 frequencies that determine the rest."""
    check_floating(self, "self")
    axes = _check(self, dim, normalization, out)
    shape = list(self.shape)
    if onesided:
        shape[axes[-1]] = shape[axes[-1]] // 2 + 1
    out = context.resize(out, tuple(shape))
    transform = np.fft.rfftn if onesided else np.fft.fftn
    norm = _FORWARD_NORMS[normalization]
    return lambda: np.copyto(out, transform(self, axes=axes, norm=norm), casting="unsafe")


@kernel("aten::_fft_c2r.out")
def fft_complex_to_real(
    context: Context, self: Array, dim: Sequence[int], normalization: int, last_dim_size: int, out: Array
) -> BoundCall:
    """The inverse of the one-sided transform, to `last_dim_size` in the last of `dim`."""
    if not is_complex(self.dtype):
        raise InvalidArgument(f"argument 'self' must be complex, but is {self.dtype}")
    axes = _check(self, dim, normalization, self)
    shape = list(self.shape)
    shape[axes[-1]] = last_dim_size
    out = context.resize(out, tuple(shape))
    sizes = [shape[axis] for axis in axes]
    norm = _INVERSE_NORMS[normalization]
    return lambda: np.copyto(out, np.fft.irfftn(self, sizes, axes, norm), casting="unsafe")


@kernel("aten::_fft_c2c.out")
def fft_complex(
    context: Context, self: Array, dim: Sequence[int], normalization: int, forward: bool, out: Array
) -> BoundCall:
    """Transform over `dim`, or its inverse; over no dim, a copy."""
    if not is_complex(self.dtype):
        raise InvalidType(f"argument 'self' must be complex, but is {self.dtype}")
    if not dim:
        return copy_call(prepare_out(context, out, self.dtype, self.shape), self)
    axes = _check(self, dim, normalization, out)
    out = context.resize(out, self.shape)
    transform, norms = (np.fft.fftn, _FORWARD_NORMS) if forward else (np.fft.ifftn, _INVERSE_NORMS)
    norm = norms[normalization]
    return lambda: np.copyto(out, transform(self, axes=axes, norm=norm), casting="unsafe")


def _check(self: Array, dim: Sequence[int], normalization: int, spectrum: Array) -> tuple[int, ...]:
    check_one_of(normalization, "normalization", (0, 1, 2))
    if not is_complex(spectrum.dtype):
        raise InvalidArgument(f"argument 'out' must be complex, but is {spectrum.dtype}")
    axes = wrap_dims(dim, self.ndim)
    if not axes or self.ndim == 0:
        raise InvalidArgument(f"argument 'dim' is {list(dim)}: nothing to transform in shape {self.shape}")
    return axes
