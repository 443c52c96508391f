"""Rows of a table, summed, averaged or maximised in bags; and the gradient of a table."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.lazy_dataclass import dataclass
from delegraph.runtime.numpy_kernels.evaluate import contiguous_staging_buffer, staged_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import (
    check_floating,
    check_index,
    check_kind,
    check_same_dtype,
    compute_type,
    real_type,
)
from delegraph.runtime.numpy_kernels.shapes import check_rank, check_shape

from ..library import kernel, prepare_out
from ..reductions.norms import norm
from .indices import check_range
from .scattering import reduce_at
from .segments import reduce_runs

_SUM, _MEAN, _MAX = range(3)
_FAST: Final = (np.float32, np.float16)
"""Dtypes whose plain sums leave no trace of their bags: torch's fast path on a CPU."""


@dataclass(frozen=True, slots=True)
class _Bags:
    """Arguments that all forms share, checked."""

    weight: Array
    indices: Array
    offsets: Array
    mode: int
    per_sample_weights: Array | None
    count: int
    padding: int
    """A row that is left out, or a negative number."""

    @property
    def leaves_trace(self) -> bool:
        """Whether offset2bag is filled. torch also asks for contiguous rows here, which planned memory has."""
        return self.mode != _SUM or self.weight.dtype not in _FAST or self.padding >= 0


def _bags(
    weight: Array,
    indices: Array,
    offsets: Array,
    mode: int,
    per_sample_weights: Array | None,
    include_last_offset: bool,
    padding_idx: int,
) -> _Bags:
    check_rank(weight, (2,), "weight")
    check_floating(weight, "weight")
    check_index(indices, "indices")
    check_index(offsets, "offsets")
    check_rank(indices, (1,), "indices")
    check_rank(offsets, (1,), "offsets")
    if mode not in (_SUM, _MEAN, _MAX):
        raise InvalidArgument(f"argument 'mode' must be 0 (sum), 1 (mean) or 2 (max), but is {mode}")
    if include_last_offset and not offsets.size:
        raise InvalidArgument("argument 'offsets' must not be empty, since its last element is the end of the last bag")
    if per_sample_weights is not None:
        if mode != _SUM:
            raise InvalidArgument(f"argument 'per_sample_weights' is for sums (mode 0), but argument 'mode' is {mode}")
        check_same_dtype(per_sample_weights, "per_sample_weights", weight, "weight")
        check_shape(per_sample_weights, indices.shape, "per_sample_weights")
    if padding_idx >= weight.shape[0]:
        raise InvalidArgument(f"argument 'padding_idx' is {padding_idx}, but 'weight' has {weight.shape[0]} rows")
    return _Bags(weight, indices, offsets, mode, per_sample_weights, offsets.size - include_last_offset, padding_idx)


def _embedding_bag(
    forward_only: bool,
    context: Context,
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Array | None,
    include_last_offset: bool,
    padding_idx: int,
    out: Array,
    offset2bag: Array,
    bag_size: Array,
    max_indices: Array,
) -> BoundCall:
    """Rows of weight (n, d) by indices (m,), in bags that begin at offsets (b,) -> (b, d); the bag of each index, the
    size of each bag (of sums 0), and the indices of the maxima.

    `forward_only`: the sizes have an element for each offset, as torch plans them, and those beyond the bags are 0.
    (Eager torch shapes the outputs that inference does not use differently, and not alike in all modes.)
    """
    bags = _bags(weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx)
    bag_shape = (bags.count, weight.shape[1])
    out = prepare_out(context, out, weight.dtype, bag_shape)
    offset2bag = context.resize(offset2bag, indices.shape if bags.leaves_trace else (0,))
    bag_size = context.resize(bag_size, (offsets.size if forward_only else bags.count,))
    max_indices = context.resize(max_indices, bag_shape if mode == _MAX else (bags.count,))

    def call() -> None:
        lengths = _lengths(bags)
        check_range(bags.indices, bags.weight.shape[0], 0, "indices")
        bag_of_index = np.repeat(np.arange(bags.count), lengths)
        # Torch's further outputs depend on the mode: of sums, all sizes are 0; only maxima have indices.
        if bags.leaves_trace:
            offset2bag[: bag_of_index.size] = bag_of_index
            offset2bag[bag_of_index.size :] = bags.count
        # The padding index counts in no bag: neither its row nor in the mean's divisor.
        kept = np.flatnonzero(bags.indices[: bag_of_index.size] != bags.padding)
        lengths = np.bincount(bag_of_index[kept], minlength=bags.count)
        values, places = _REDUCTIONS[bags.mode](_rows(bags, kept), lengths)
        np.copyto(out, values, casting="unsafe")
        bag_size[...] = 0
        max_indices[...] = 0
        if bags.mode != _SUM:
            bag_size[: bags.count] = lengths
        if bags.mode == _MEAN:
            max_indices[...] = lengths
        elif bags.mode == _MAX:
            max_indices[lengths > 0] = bags.indices[kept][places]

    return call


def _lengths(bags: _Bags) -> Array:
    """The indices in each bag, padding included."""
    offsets, size = bags.offsets.astype(np.int64, copy=False), bags.indices.size
    if offsets.size and offsets[0] != 0:
        raise InvalidArgument(f"argument 'offsets' must begin with 0, but begins with {offsets[0]}")
    if bags.count == offsets.size:  # the last bag ends with the indices
        offsets = np.append(offsets, size)
    lengths = np.diff(offsets)
    if (lengths < 0).any() or offsets[-1] > size:
        raise InvalidArgument(f"argument 'offsets' must ascend to at most {size}, the size of argument 'indices'")
    return lengths


def _rows(bags: _Bags, kept: Array) -> Array:
    rows = bags.weight[bags.indices[kept]].astype(compute_type(bags.weight.dtype), copy=False)
    if bags.per_sample_weights is not None:
        rows = rows * bags.per_sample_weights[kept, None].astype(rows.dtype, copy=False)
    return rows


def _sums(rows: Array, lengths: Array) -> tuple[Array, None]:
    return reduce_runs(np.add, rows, lengths, 0), None


def _means(rows: Array, lengths: Array) -> tuple[Array, None]:
    sums, _ = _sums(rows, lengths)
    return np.divide(sums, np.maximum(lengths, 1)[:, None].astype(rows.dtype), sums), None


def _maxima(rows: Array, lengths: Array) -> tuple[Array, Array]:
    """And, of the bags that are not empty, the row of each. As in torch, a NaN stays only if it comes first."""
    filled = lengths[lengths > 0]  # an empty bag has no maximum: its row stays 0
    first = np.cumsum(filled) - filled
    # Torch keeps a maximum until a larger element comes: a NaN in first place stays, a later one never gets in.
    maxima = reduce_runs(np.fmax, rows, filled, 0)
    maxima[np.isnan(rows[first])] = np.nan
    # The place of a maximum is the first of the rows that have it, per column.
    holds = rows == np.repeat(maxima, filled, 0)
    places = reduce_runs(np.minimum, np.where(holds, np.arange(len(rows))[:, None], len(rows)), filled, 0)
    values = np.zeros((lengths.size, rows.shape[1]), rows.dtype)
    values[lengths > 0] = maxima
    return values, np.where(np.isnan(maxima), first[:, None], places)


_REDUCTIONS: Final = (_sums, _means, _maxima)


kernel("aten::_embedding_bag.out")(partial(_embedding_bag, False))
kernel("aten::_embedding_bag_forward_only.out")(partial(_embedding_bag, True))


@kernel("aten::embedding_dense_backward.out")
def embedding_dense_backward(
    context: Context,
    grad_output: Array,
    indices: Array,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
    out: Array,
) -> BoundCall:
    """grad_output (*, d) added up by indices (*) -> (num_weights, d).

    With `scale_grad_by_freq` a row is divided by how often its index occurs.
    """
    check_index(indices, "indices")
    if grad_output.ndim != indices.ndim + 1 or grad_output.shape[:-1] != indices.shape:
        raise InvalidArgument(
            f"argument 'grad_output' {grad_output.shape} has no row for each of 'indices' {indices.shape}"
        )
    width = grad_output.shape[-1]
    out = prepare_out(context, out, grad_output.dtype, (num_weights, width))
    sums = contiguous_staging_buffer(context, out, compute_type(grad_output.dtype))

    def function() -> None:
        chosen = indices.reshape(-1)
        check_range(chosen, num_weights, 0, "indices")
        rows = grad_output.reshape(chosen.size, width).astype(sums.buffer.dtype, copy=False)
        if scale_grad_by_freq:
            rows = rows / np.bincount(chosen, minlength=num_weights)[chosen, None].astype(rows.dtype)
        sums.buffer.fill(0)
        # Equal indices add up in one element, which plain indexing would write only once.
        places = chosen[:, None].astype(np.int64, copy=False) * width + np.arange(width)
        reduce_at(np.add, sums.buffer.reshape(-1), places, rows)
        if 0 <= padding_idx < num_weights:
            sums.buffer[padding_idx] = 0

    return staged_call(function, [], [sums])


@kernel("aten::embedding_renorm.out")
def embedding_renorm(
    context: Context, self: Array, indices: Array, max_norm: float, norm_type: float, out: Array
) -> BoundCall:
    """The table self (n, d), of which the rows in `indices` are scaled down to `max_norm` where they are longer."""
    check_rank(self, (2,), "self")
    check_kind(self.dtype, "fc")
    check_index(indices, "indices")
    check_same_dtype(out, "out", self, "self")
    out = context.resize(out, self.shape)

    def call() -> None:
        np.copyto(out, self)
        check_range(indices, self.shape[0], 0, "indices")
        places = np.unique(indices)  # a row that is named twice is scaled once
        rows = self[places].astype(compute_type(self.dtype))
        norms = np.empty((len(rows), 1), real_type(rows.dtype))
        norm(norm_type, rows, (1,), norms, rows.copy())
        scales = max_norm / (norms + 1e-7)
        out[places] = np.where(norms > max_norm, rows * scales, rows).astype(out.dtype)

    return call
