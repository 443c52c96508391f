"""The arguments of windows, of convolutions and pools -> a number for each of their dims."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["overhang", "per_dim", "same_padding"]


def per_dim(values: Sequence[int] | int, dims: int) -> list[int]:
    """One number for each of the dims that a window has: schemas let a single one stand for all."""
    listed = list(values) if isinstance(values, Sequence) else [values]
    return listed * dims if len(listed) == 1 else listed


def same_padding(kernel: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    """The padding before and behind of "same", for each dim: an odd element is behind (torch's `conv2d`)."""
    reach = [step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
    return [(total // 2, total - total // 2) for total in reach]


def overhang(
    before: Sequence[int],
    after: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """How far the last window reaches beyond the padded input, for each dim: what `ceil_mode` adds.

    `before` and `after` are the sizes of input and result; `padding` is as much on either side.
    """
    dims = zip(before, after, kernel, stride, padding, dilation, strict=True)
    return [max(0, (result - 1) * s + d * (k - 1) + 1 - size - 2 * p) for size, result, k, s, p, d in dims]
