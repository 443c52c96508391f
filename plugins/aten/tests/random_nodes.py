"""The kinds of nodes that random programs are made of: what is called, on what, with which arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from hypothesis import strategies as st
from torch.nn import functional

Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTS = (torch.int64, torch.int32, torch.uint8, torch.int8)
NUMBERS = (*FLOATS, *INTS)
ANY = (*NUMBERS, torch.bool)


@dataclass(frozen=True, slots=True)
class Ref:
    """The value at `index`, where a node takes it."""

    index: int

    def __repr__(self) -> str:
        return f"v{self.index}"


@dataclass(frozen=True, slots=True)
class Value:
    """The facts of a value while a program is drawn."""

    tensor: torch.Tensor
    depth: int = 0
    """Rounding operators on the way to it; 0: exact."""


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of node: `arguments` draws those after the first, a value of `dtypes`; None: it does not fit."""

    target: Callable[..., torch.Tensor]
    dtypes: Sequence[torch.dtype]
    arguments: Callable[[Draw, torch.Tensor, Sequence[Value]], tuple[Any, ...] | None]
    rounds: bool = False
    jumps: bool = False
    any_size: bool = False
    """It fits whatever the first dimension's size is."""


def _nothing(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...]:
    return ()


def _dim(draw: Draw, x: torch.Tensor, first: int = 0) -> int:
    dim = draw(st.integers(first, max(first, x.dim() - 1)))
    return int(dim - x.dim() if x.dim() and draw(st.booleans()) else dim)


def _one_dim(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...]:
    return (_dim(draw, x),)


def _dim_and_keepdim(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...]:
    return (_dim(draw, x), draw(st.booleans()))


def _filled_dim_and_keepdim(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...] | None:
    """A dimension of a tensor that is not empty: torch warns of the variance of nothing."""
    return _dim_and_keepdim(draw, x, values) if x.numel() else None


def _last_dim_and_keepdim(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...] | None:
    return (-1, draw(st.booleans())) if x.dim() > 1 else None


def _broadcastable(a: torch.Tensor, b: torch.Tensor) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a.shape), reversed(b.shape), strict=False))


def _another(draw: Draw, x: torch.Tensor, values: Sequence[Value], like: bool = False) -> Ref:
    """A value that `x` broadcasts with, or of its shape."""
    fits = [i for i, v in enumerate(values) if (v.tensor.shape == x.shape if like else _broadcastable(v.tensor, x))]
    return Ref(draw(st.sampled_from(fits)))


def _other_or_number(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...]:
    numbers = (2, -1, 0.5, True) if x.is_floating_point() else (2, 3, 1)
    return (_another(draw, x, values) if draw(st.integers(0, 3)) else draw(st.sampled_from(numbers)),)


def _number(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...]:
    return (draw(st.sampled_from((2, 3, 0.75) if x.is_floating_point() else (2, 3))),)


def _two_others(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...]:
    return _another(draw, x, values), _another(draw, x, values)


def _other_like(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...]:
    return _another(draw, x, values, like=True), _dim(draw, x)


def _order(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...]:
    return (tuple(draw(st.permutations(range(x.dim())))),)


def _two_dims(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...]:
    return _dim(draw, x), _dim(draw, x)


def _piece(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...] | None:
    if not x.dim():
        return None
    ends = st.none() | st.integers(-4, 4)
    return _dim(draw, x), draw(ends), draw(ends), draw(st.integers(1, 3))


def _position(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...] | None:
    dim = _dim(draw, x)
    if not x.dim() or not x.shape[dim]:
        return None
    return dim, draw(st.integers(-x.shape[dim], x.shape[dim] - 1))


def _positions(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...] | None:
    dim = _dim(draw, x)
    if not x.dim() or not x.shape[dim]:
        return None
    return dim, tuple(draw(st.lists(st.integers(0, x.shape[dim] - 1), max_size=4)))


def _sizes(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...]:
    """Another shape of as many elements."""
    dims = [size for size in x.shape if size != 1]
    if len(dims) > 1 and draw(st.booleans()):
        at = draw(st.integers(0, len(dims) - 2))
        dims[at : at + 2] = [dims[at] * dims[at + 1]]
    if x.numel() and dims and draw(st.booleans()):
        dims[draw(st.integers(0, len(dims) - 1))] = -1
    return (tuple([1] * draw(st.integers(0, 1)) + dims),)


def _expansion(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...]:
    sizes = [draw(st.sampled_from((2, 3))) if size == 1 else draw(st.sampled_from((size, -1))) for size in x.shape]
    return (tuple([2] * draw(st.integers(0, 1)) + sizes),)


def _repeats(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...]:
    return (tuple(draw(st.integers(0, 2)) for _ in range(x.dim() + draw(st.integers(0, 1)))),)


def _target_dtype(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...] | None:
    signed = tuple(dtype for dtype in ANY if dtype is not torch.uint8)
    # C++ leaves open what a number beyond an integer's range becomes
    wide = bool(x.isfinite().all()) and (not x.numel() or float(x.double().abs().max()) < 128)
    return (draw(st.sampled_from(signed if wide else FLOATS)),)


def _wider_float(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...]:
    return (draw(st.sampled_from(FLOATS)),)


def _image(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...] | None:
    if x.dim() != 4 or min(x.shape) < 1:
        return None
    return draw(st.sampled_from((1, 2))), draw(st.sampled_from((1, 2))), draw(st.sampled_from((0, 1)))


def _matrix(draw: Draw, x: torch.Tensor, values: Sequence[Value]) -> tuple[Any, ...] | None:
    """A value that `x` can be multiplied with."""
    fits = [i for i, v in enumerate(values) if v.tensor.dtype == x.dtype and _multiplies(x, v.tensor)]
    return (Ref(draw(st.sampled_from(fits))),) if fits else None


def _multiplies(x: torch.Tensor, y: torch.Tensor) -> bool:
    if x.dim() < 2 or y.dim() < 2 or x.shape[-1] != y.shape[-2]:
        return False
    return all(m == n or 1 in (m, n) for m, n in zip(x.shape[-3::-1], y.shape[-3::-1], strict=False))


def slice_of(x: torch.Tensor, dim: int, start: int | None, end: int | None, step: int) -> torch.Tensor:
    return torch.ops.aten.slice.Tensor(x, dim, start, end, step)


def taken(x: torch.Tensor, dim: int, positions: tuple[int, ...]) -> torch.Tensor:
    return torch.index_select(x, dim, torch.tensor(positions, dtype=torch.int64))


def indexed(x: torch.Tensor, dim: int, positions: tuple[int, ...]) -> torch.Tensor:
    places: list[Any] = [slice(None)] * (dim % x.dim())
    return x[(*places, torch.tensor(positions, dtype=torch.int64))]


def sum_of(x: torch.Tensor, dim: int, keepdim: bool) -> torch.Tensor:
    return x.sum(dim, keepdim=keepdim)


def mean_of(x: torch.Tensor, dim: int, keepdim: bool) -> torch.Tensor:
    return x.mean(dim, keepdim=keepdim)


def variance_of(x: torch.Tensor, dim: int, keepdim: bool) -> torch.Tensor:
    return x.var(dim, correction=0, keepdim=keepdim)


def largest(x: torch.Tensor, dim: int, keepdim: bool) -> torch.Tensor:
    return torch.max(x, dim, keepdim).values


def place_of_smallest(x: torch.Tensor, dim: int, keepdim: bool) -> torch.Tensor:
    return torch.min(x, dim, keepdim).indices


def sorted_values(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.sort(x, dim=dim, stable=True).values


def joined(x: torch.Tensor, other: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.cat([x, other, x], dim)


def stacked(x: torch.Tensor, other: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.stack([other, x], dim)


def first_half(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.chunk(x, 2, dim)[0]


def last_piece(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.split(x, 2, dim)[-1]


def rolled(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.roll(x, 1, dim)


def flipped(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.flip(x, (dim,))


def chosen(condition: torch.Tensor, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.where(condition, x, other)


def filled(x: torch.Tensor, mask: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(mask != 0, 1)


def clamped(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-1, 1)


def squared(x: torch.Tensor) -> torch.Tensor:
    return x**2


def softmax_of(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.softmax(x, dim)


def log_softmax_of(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.log_softmax(x, dim)


def convolved(x: torch.Tensor, out: int, kernel: int, padding: int) -> torch.Tensor:
    return functional.conv2d(x, torch.full((out, x.shape[1], kernel, 1), 0.5, dtype=x.dtype), padding=padding)


def maxima(x: torch.Tensor, kernel: int, stride: int, padding: int) -> torch.Tensor:
    return functional.max_pool2d(x, (kernel, 1), stride, (padding * (kernel // 2), 0))


def averages(x: torch.Tensor, kernel: int, stride: int, padding: int) -> torch.Tensor:
    return functional.avg_pool2d(x, (1, kernel), stride, (0, padding * (kernel // 2)))


def gram(x: torch.Tensor) -> torch.Tensor:
    return x @ x.transpose(-1, -2)


def as_dtype(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype)


FAMILIES: tuple[Family, ...] = (
    *(Family(f, NUMBERS, _nothing, any_size=True) for f in (torch.abs, torch.neg, torch.relu, squared, clamped)),
    *(Family(f, NUMBERS, _nothing, jumps=True, any_size=True) for f in (torch.sign, torch.isnan)),
    *(Family(f, FLOATS, _nothing, jumps=True) for f in (torch.floor, torch.ceil, torch.round, torch.trunc)),
    *(Family(f, (*INTS, torch.bool), _nothing, any_size=True) for f in (torch.bitwise_not, torch.logical_not)),
    *(
        Family(f, ANY, _nothing, rounds=True, any_size=True)
        for f in (torch.exp, torch.tanh, torch.sigmoid, torch.erf, torch.atan, torch.sqrt, torch.rsqrt)
    ),
    *(Family(f, FLOATS, _nothing, rounds=True, any_size=True) for f in (functional.gelu, functional.silu)),
    *(Family(f, FLOATS, _one_dim, rounds=True) for f in (softmax_of, log_softmax_of)),
    *(Family(f, NUMBERS, _other_or_number, any_size=True) for f in (torch.add, torch.sub, torch.mul)),
    *(Family(f, NUMBERS, _other_or_number) for f in (torch.div, torch.eq, torch.lt, torch.ge)),
    *(Family(f, NUMBERS, _number, jumps=True) for f in (torch.remainder, torch.fmod, torch.floor_divide)),
    *(Family(f, (*INTS, torch.bool), _other_or_number) for f in (torch.bitwise_and, torch.bitwise_xor)),
    Family(chosen, (torch.bool,), _two_others),
    Family(filled, ANY, _two_others, jumps=True),
    Family(torch.permute, ANY, _order),
    Family(torch.transpose, ANY, _two_dims),
    *(Family(f, ANY, _one_dim) for f in (torch.unsqueeze, torch.squeeze, first_half, last_piece, rolled, flipped)),
    Family(torch.reshape, ANY, _sizes),
    Family(torch.Tensor.expand, ANY, _expansion),
    Family(torch.Tensor.repeat, ANY, _repeats),
    Family(slice_of, ANY, _piece),
    Family(torch.select, ANY, _position),
    Family(taken, ANY, _positions),
    Family(indexed, ANY, _positions),
    Family(joined, ANY, _other_like),
    Family(stacked, ANY, _other_like),
    *(Family(f, ANY, _dim_and_keepdim, rounds=True) for f in (sum_of, torch.prod)),
    Family(mean_of, FLOATS, _dim_and_keepdim, rounds=True),
    Family(variance_of, FLOATS, _filled_dim_and_keepdim, rounds=True),
    *(Family(f, FLOATS, _last_dim_and_keepdim, rounds=True, any_size=True) for f in (sum_of, mean_of)),
    *(Family(f, ANY, _dim_and_keepdim) for f in (torch.amax, torch.amin, largest)),
    *(Family(f, ANY, _dim_and_keepdim, jumps=True) for f in (torch.any, torch.all)),
    *(Family(f, NUMBERS, _dim_and_keepdim, jumps=True) for f in (torch.argmax, place_of_smallest)),
    *(Family(f, ANY, _last_dim_and_keepdim, any_size=True) for f in (torch.amax,)),
    Family(sorted_values, ANY, _one_dim),
    Family(torch.cumsum, NUMBERS, _one_dim, rounds=True),
    Family(gram, FLOATS, _nothing, rounds=True),
    Family(torch.matmul, (*FLOATS, torch.int64), _matrix, rounds=True),
    Family(convolved, FLOATS, _image, rounds=True),
    Family(maxima, FLOATS, _image),
    Family(averages, FLOATS, _image, rounds=True),
    Family(as_dtype, ANY, _target_dtype, jumps=True),
    Family(as_dtype, FLOATS, _wider_float, rounds=True, any_size=True),
)
