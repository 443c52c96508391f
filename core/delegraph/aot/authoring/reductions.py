"""A reduction's argument -> the dims that it goes over."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["reduced_dims"]


def reduced_dims(rank: int, dims: Sequence[int] | int | None) -> tuple[int, ...]:
    """The dims that a reduction of a tensor of `rank` dims goes over, sorted, each once and not negative.

    `dims` of None or an empty list are all of them, as in torch's schemas of sums, means and norms.
    """
    listed = [dims] if isinstance(dims, int) else dims or range(rank)
    return tuple(sorted({dim % rank for dim in listed})) if rank else ()
