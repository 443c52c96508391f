"""Random tensors and dropout, drawn from one generator of the library.

The generator is seeded by the operating system unless `manual_seed` is called. Operators that can be given a torch
generator are given None in a program, so they draw from the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import (
    DType,
    check_floating,
    check_kind,
    check_result,
    compute_type,
    is_complex,
    real_type,
)
from delegraph.runtime.numpy_kernels.shapes import Shape, broadcast, check_broadcasts, check_rank

from ..library import kernel

if TYPE_CHECKING:
    from numpy.random import Generator


class _Source:
    """A generator that is made when first used: importing numpy.random costs more than this package."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._generator: Generator | None = None

    def generator(self) -> Generator:
        return self._generator or self.seed(None)

    def seed(self, seed: int | None) -> Generator:
        from numpy.random import default_rng

        with self._lock:
            if self._generator is None or seed is not None:
                self._generator = default_rng(seed)
            return self._generator


_source: Final = _Source()
random_generator: Final = _source.generator
"""The generator that all kernels draw from. Threads may share it."""


def manual_seed(seed: int) -> None:
    """Start the library's random numbers anew from `seed`; equal seeds give equal numbers, call by call.

    The numbers are NumPy's (PCG64), not those that torch draws from that seed. Where several threads execute programs,
    which of them draws first decides who gets which numbers.
    """
    _source.seed(seed % 2**64)


# ---- draws: a shape and a dtype -> an array ---------------------------------------------------------

Draw = Callable[[Shape, DType], Array]


def _uniform(shape: Shape, dtype: DType) -> Array:
    """In [0, 1), with as many random bits as `dtype` has, so that none is rounded up to 1. Complex: both parts."""
    if is_complex(dtype):
        return _uniform(shape, real_type(dtype)) + 1j * _uniform(shape, real_type(dtype))
    if dtype.itemsize >= 4:
        return np.asarray(random_generator().random(shape, dtype))
    bits = 11 if dtype == np.float16 else 8
    return np.asarray(random_generator().integers(0, 2**bits, shape) / 2.0**bits)


def _normal(shape: Shape, dtype: DType) -> Array:
    """Mean 0 and variance 1, which complex numbers have half in each part."""
    if is_complex(dtype):
        parts = random_generator().standard_normal((2, *shape), real_type(dtype)) * real_type(dtype).type(np.sqrt(0.5))
        return np.asarray(parts[0] + 1j * parts[1])
    return np.asarray(random_generator().standard_normal(shape, compute_type(dtype)))


def _fill(context: Context, kinds: str, draw: Draw, size: Sequence[int], out: Array) -> BoundCall:
    """Draw `out`'s content in its own dtype, which must be of one of `kinds`."""
    check_kind(out.dtype, kinds, "out")
    if any(s < 0 for s in size):
        raise InvalidArgument(f"argument 'size' has a negative dimension: {list(size)}")
    out = context.resize(out, tuple(size))
    return lambda: np.copyto(out, draw(out.shape, out.dtype), casting="unsafe")


def _fill_like(context: Context, kinds: str, draw: Draw, self: Array, out: Array) -> BoundCall:
    """Draw numbers in the place of those of `self`, which must be of one of `kinds` as well."""
    check_kind(self.dtype, kinds)
    return _fill(context, kinds, draw, self.shape, out)


# ---- factories --------------------------------------------------------------------------------------

_FACTORIES: Final[dict[str, Draw]] = {"rand": _uniform, "randn": _normal}


def _new(draw: Draw, context: Context, size: Sequence[int], *options: Any) -> BoundCall:
    return _fill(context, "fc", draw, size, options[-1])


def _like(draw: Draw, context: Context, self: Array, *options: Any) -> BoundCall:
    return _fill(context, "fc", draw, self.shape, options[-1])


for _name, _draw in _FACTORIES.items():
    kernel(f"aten::{_name}.out", f"aten::{_name}.generator_out")(partial(_new, _draw))
    kernel(f"aten::{_name}_like.out", f"aten::{_name}_like.generator_out")(partial(_like, _draw))


def _integers(low: int, high: int, shape: Shape, dtype: DType) -> Array:
    """Integers from `low` to `high` - 1, which `dtype` must hold."""
    if low >= high:
        raise InvalidArgument(f"arguments 'low' {low} and 'high' {high} leave no number to draw")
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= low < high <= np.iinfo(dtype).max + 1:
        raise InvalidArgument(f"arguments 'low' {low} and 'high' {high} do not fit {dtype}")
    return np.asarray(random_generator().integers(low, high, shape))


@kernel("aten::randint.out", "aten::randint.generator_out")
def randint(context: Context, high: int, size: Sequence[int], *options: Any) -> BoundCall:
    return _fill(context, "if", partial(_integers, 0, high), size, options[-1])


@kernel("aten::randint.low_out", "aten::randint.low_generator_out")
def randint_low(context: Context, low: int, high: int, size: Sequence[int], *options: Any) -> BoundCall:
    return _fill(context, "if", partial(_integers, low, high), size, options[-1])


@kernel("aten::randint_like.out", "aten::randint_like.generator_out")
def randint_like(context: Context, self: Array, high: int, *options: Any) -> BoundCall:
    return _fill(context, "if", partial(_integers, 0, high), self.shape, options[-1])


@kernel("aten::randint_like.low_dtype_out", "aten::randint_like.low_generator_dtype_out")
def randint_like_low(context: Context, self: Array, low: int, high: int, *options: Any) -> BoundCall:
    return _fill(context, "if", partial(_integers, low, high), self.shape, options[-1])


@kernel("aten::randint_like.Tensor_out", "aten::randint_like.Tensor_generator_out")
def randint_like_tensor(context: Context, self: Array, high: Array, *options: Any) -> BoundCall:
    if high.size != 1:
        raise InvalidArgument(f"argument 'high' must have one element, but has shape {high.shape}")
    return _fill(
        context, "if", lambda shape, dtype: _integers(0, int(high.item()), shape, dtype), self.shape, options[-1]
    )


@kernel("aten::randperm.out", "aten::randperm.generator_out")
def randperm(context: Context, n: int, *options: Any) -> BoundCall:
    """The integers below `n` in random order."""
    out = options[-1]
    if n < 0:
        raise InvalidArgument(f"argument 'n' must not be negative, but is {n}")
    if out.dtype.kind in "iu" and n > np.iinfo(out.dtype).max + 1:
        raise InvalidArgument(f"argument 'n' is {n}, of which {out.dtype} cannot hold the largest index")
    return _fill(context, "if", lambda shape, _: random_generator().permutation(shape[0]), (n,), out)


# ---- distributions of numbers -----------------------------------------------------------------------


def _positive(value: float, name: str) -> None:
    if not value > 0:
        raise InvalidArgument(f"argument {name!r} must be positive, but is {value}")


@kernel("aten::uniform.out")
def uniform(context: Context, self: Array, low: float, high: float, generator: None, out: Array) -> BoundCall:
    """In [from, to)."""
    if not 0 <= high - low < np.inf:
        raise InvalidArgument(f"arguments 'from' {low} and 'to' {high} make no range")

    def draw(shape: Shape, dtype: DType) -> Array:
        if is_complex(dtype):
            return draw(shape, real_type(dtype)) + 1j * draw(shape, real_type(dtype))
        values = np.asarray(low + (high - low) * _uniform(shape, dtype)).astype(dtype)
        np.copyto(values, dtype.type(low), where=values >= high)  # those that rounding took to the upper bound
        return values

    return _fill_like(context, "fc", draw, self, out)


@kernel("aten::exponential.out")
def exponential(context: Context, self: Array, lambd: float, generator: None, out: Array) -> BoundCall:
    """Density λ exp(-λ x)."""
    _positive(lambd, "lambd")
    return _fill_like(context, "f", lambda shape, _: random_generator().standard_exponential(shape) / lambd, self, out)


@kernel("aten::geometric.out")
def geometric(context: Context, self: Array, p: float, generator: None, out: Array) -> BoundCall:
    """How many trials the first success takes, where each has the probability `p`."""
    if not 0 < p < 1:
        raise InvalidArgument(f"argument 'p' must lie between 0 and 1, but is {p}")
    return _fill_like(context, "if", lambda shape, _: np.asarray(random_generator().geometric(p, shape)), self, out)


@kernel("aten::cauchy.out")
def cauchy(context: Context, self: Array, median: float, sigma: float, generator: None, out: Array) -> BoundCall:
    _positive(sigma, "sigma")
    return _fill_like(
        context, "f", lambda shape, _: median + sigma * random_generator().standard_cauchy(shape), self, out
    )


@kernel("aten::log_normal.out")
def log_normal(context: Context, self: Array, mean: float, std: float, generator: None, out: Array) -> BoundCall:
    """exp of a normal number of `mean` and `std`."""
    _positive(std, "std")
    return _fill_like(
        context, "f", lambda shape, _: np.asarray(random_generator().lognormal(mean, std, shape)), self, out
    )


# ---- distributions whose parameters are tensors -----------------------------------------------------


@kernel("aten::normal.Tensor_float_out", "aten::normal.float_Tensor_out", "aten::normal.Tensor_Tensor_out")
def normal(context: Context, mean: Array | Scalar, std: Array | Scalar, generator: None, out: Array) -> BoundCall:
    """mean + std * z, z normal of mean 0 and variance 1."""
    shape = broadcast(np.shape(mean), np.shape(std))
    if isinstance(std, np.ndarray):
        check_floating(std, "std")
    if isinstance(mean, np.ndarray):
        check_kind(mean.dtype, "fc", "mean")

    def draw(shape: Shape, dtype: DType) -> Array:
        if np.any(np.less(std, 0)):
            raise InvalidArgument("argument 'std' must not be negative")
        scale, shift = (np.asarray(value).astype(compute_type(dtype)) for value in (std, mean))
        return np.asarray(shift + scale * _normal(shape, dtype))

    return _fill(context, "fc", draw, shape, out)


@kernel("aten::normal.float_float_out")
def normal_of_size(
    context: Context, mean: float, std: float, size: Sequence[int], generator: None, out: Array
) -> BoundCall:
    if std < 0:
        raise InvalidArgument(f"argument 'std' must not be negative, but is {std}")
    return _fill(context, "fc", lambda shape, dtype: mean + std * _normal(shape, dtype), size, out)


@kernel("aten::bernoulli.out")
def bernoulli(context: Context, self: Array, generator: None, out: Array) -> BoundCall:
    """1 with the probability that `self` holds, else 0."""
    return bernoulli_of(context, self, self, generator, out)


@kernel("aten::bernoulli.Tensor_out")
def bernoulli_of(context: Context, self: Array, p: Array, generator: None, out: Array) -> BoundCall:
    check_floating(p, "p")
    check_broadcasts(p, self.shape, "p")

    def draw(shape: Shape, dtype: DType) -> Array:
        if not np.all((p >= 0) & (p <= 1)):
            raise InvalidArgument("argument 'p' must hold numbers between 0 and 1")
        return np.asarray(random_generator().random(shape) < p.astype(np.float64))

    return _fill(context, "bif", draw, self.shape, out)


@kernel("aten::bernoulli.float_out")
def bernoulli_of_number(context: Context, self: Array, p: float, generator: None, out: Array) -> BoundCall:
    _check_probability(p)
    return _fill(context, "bif", lambda shape, _: np.asarray(random_generator().random(shape) < p), self.shape, out)


def _check_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise InvalidArgument(f"argument 'p' must be between 0 and 1, but is {p}")


@kernel("aten::poisson.out")
def poisson(context: Context, self: Array, generator: None, out: Array) -> BoundCall:
    """Counts of events, of which `self` holds the expected numbers."""
    check_floating(self, "self")

    def draw(shape: Shape, dtype: DType) -> Array:
        if not np.all(self >= 0):
            raise InvalidArgument("argument 'self' holds a rate that is negative or NaN")
        return np.asarray(random_generator().poisson(self.astype(np.float64)))

    return _fill(context, "f", draw, self.shape, out)


@kernel("aten::multinomial.out")
def multinomial(
    context: Context, self: Array, num_samples: int, replacement: bool, generator: None, out: Array
) -> BoundCall:
    """Categories drawn by the weights in each row of `self`: (num_samples,) or (rows, num_samples)."""
    check_floating(self, "self")
    check_rank(self, (1, 2), "self")
    if out.dtype != np.int64:
        raise InvalidType(f"argument 'out' must be int64, but is {out.dtype}")
    categories = self.shape[-1]
    if num_samples < 1 or categories == 0 or (not replacement and num_samples > categories):
        raise InvalidArgument(
            f"argument 'num_samples' is {num_samples}, which cannot be drawn from {categories} categories"
            f" {'with' if replacement else 'without'} replacement"
        )
    out = context.resize(out, (*self.shape[:-1], num_samples))
    sample = _with_replacement if replacement else _without_replacement
    return lambda: sample(_weights(self), out)


def _weights(x: Array) -> Array:
    weights = x.astype(np.float64)
    if not np.all((weights >= 0) & (weights < np.inf)):
        raise InvalidArgument("argument 'self' holds a weight that is negative, infinite or NaN")
    if not np.all(weights.any(-1)):
        raise InvalidArgument("argument 'self' has a row without a positive weight")
    return weights


def _with_replacement(weights: Array, out: Array) -> None:
    for row, drawn in zip(np.atleast_2d(weights), np.atleast_2d(out), strict=True):
        limits = np.cumsum(row)
        last = int(np.flatnonzero(row)[-1])  # where rounding takes a number to the sum of all weights
        np.minimum(
            np.searchsorted(limits, random_generator().random(drawn.shape) * limits[-1], "right"), last, out=drawn
        )


def _without_replacement(weights: Array, out: Array) -> None:
    """The smallest of exponential numbers divided by the weights (Efraimidis, Spirakis, 2006), in order."""
    keys = np.where(weights > 0, random_generator().standard_exponential(weights.shape) / weights, np.inf)
    np.copyto(out, np.argsort(keys, -1, kind="stable")[..., : out.shape[-1]])


# ---- dropout ----------------------------------------------------------------------------------------


@kernel("aten::native_dropout.out")
def native_dropout(context: Context, input: Array, p: float, train: bool | None, out0: Array, out1: Array) -> BoundCall:
    """If `train`: a share `p` of the input zeroed, the rest divided by 1 - p, and the mask of that rest."""
    check_kind(input.dtype, "fc", "input")
    check_result(input.dtype, out0)
    _check_probability(p)
    out0, out1 = context.resize(out0, input.shape), context.resize(out1, input.shape)

    def call() -> None:
        if train is not None and not train:
            np.copyto(out0, input, casting="unsafe")
            out1.fill(True)
            return
        kept = random_generator().random(input.shape) >= p
        scale = 0 if p == 1 else 1 / (1 - p)
        np.copyto(out0, input.astype(compute_type(input.dtype)) * kept * scale, casting="unsafe")
        np.copyto(out1, kept, casting="unsafe")

    return call
