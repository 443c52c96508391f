"""Tensors with a border: constant, reflected, replicated. `pad` lists (before, after) from the last dim backwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import as_array
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.shapes import check_rank, trailing

from ..library import kernel, prepare_out

Border = tuple[int, int]


def _borders(pad: Sequence[int], rank: int, name: str) -> list[Border]:
    """(before, after) of each dim, the first dim first."""
    if len(pad) % 2 or len(pad) > 2 * rank:
        raise InvalidArgument(f"argument {name!r} must list at most {rank} pairs, but is {list(pad)}")
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


def _padded_shape(self: Array, borders: Sequence[Border]) -> tuple[int, ...]:
    shape = tuple(before + size + after for size, (before, after) in zip(self.shape, borders, strict=True))
    if min(shape, default=0) < 0:
        raise InvalidArgument(f"a tensor of shape {self.shape} cannot lose the borders {list(borders)}")
    return shape


@kernel("aten::constant_pad_nd.out")
def constant_pad(context: Context, self: Array, pad: Sequence[int], value: Scalar, out: Array) -> BoundCall:
    """A negative border cuts off."""
    borders = _borders(pad, self.ndim, "pad")
    out = prepare_out(context, out, self.dtype, _padded_shape(self, borders))
    target = out[tuple(slice(max(b, 0), n - max(a, 0)) for n, (b, a) in zip(out.shape, borders, strict=True))]
    source = self[tuple(slice(max(-b, 0), n - max(-a, 0)) for n, (b, a) in zip(self.shape, borders, strict=True))]
    filler = as_array(value, out.dtype)

    def call() -> None:
        np.copyto(out, filler)
        np.copyto(target, source, casting="unsafe")

    return call


def _reflected(size: int, before: int, after: int) -> Array:
    if max(before, after) >= size:
        raise InvalidArgument(f"argument 'padding' {(before, after)} must be smaller than the dimension of size {size}")
    inside = np.abs(np.arange(-before, size + after))
    places: Array = size - 1 - np.abs(size - 1 - inside)
    return places


def _replicated(size: int, before: int, after: int) -> Array:
    return np.clip(np.arange(-before, size + after), 0, size - 1)


_SOURCES: Final[dict[str, Callable[[int, int, int], Array]]] = {
    "reflection_pad": _reflected,
    "replication_pad": _replicated,
}
"""(size, before, after) -> for each place of the padded dim, the place that it repeats."""


def _repeat_edges(
    source: Callable[[int, int, int], Array],
    dims: int,
    context: Context,
    self: Array,
    padding: Sequence[int],
    out: Array,
) -> BoundCall:
    check_rank(self, (dims + 1, dims + 2), "self")
    if len(padding) != 2 * dims:
        raise InvalidArgument(f"argument 'padding' must have {2 * dims} values, but is {list(padding)}")
    borders = _borders(padding, self.ndim, "padding")
    shape = _padded_shape(self, borders)
    if 0 in self.shape[-dims - 1 :] or 0 in shape[-dims:]:
        raise InvalidArgument(f"argument 'self' of shape {self.shape} cannot have the borders {borders}")
    out = prepare_out(context, out, self.dtype, shape)
    places = np.ix_(*(source(n, *border) for n, border in zip(self.shape[-dims:], borders[-dims:], strict=True)))
    return lambda: np.copyto(out, self[trailing(places)], casting="unsafe")


for _name, _source in _SOURCES.items():
    for _dims in (1, 2, 3):
        kernel(f"aten::{_name}{_dims}d.out")(partial(_repeat_edges, _source, _dims))
