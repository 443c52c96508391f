"""Operators for which torch's kernels do not give what torch planned, in some dtypes -> functions that do.

aten::convolution       of complex numbers: torch makes it of real ones a step earlier, in `conv1d` … `conv_transpose3d`
aten::_embedding_bag    sums of bfloat16: the kernel leaves out to which bag a row went, which torch plans to be there
                        (`meta_embedding_bag` in torch/_meta_registrations.py)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

__all__ = ["SUBSTITUTES", "Substitute"]

Bags: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Substitute:
    """Where an operator's first operand is of one of `dtypes`, `function` takes its inputs, positional, and returns its
    results as new tensors."""

    dtypes: frozenset[torch.dtype]
    function: Callable[..., Any]


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    name = f"conv_transpose{len(stride)}d" if transposed else f"conv{len(stride)}d"
    rest = (output_padding, groups, dilation) if transposed else (dilation, groups)
    result: Tensor = getattr(torch, name)(x, weight, bias, stride, padding, *rest)
    return result


def _embedding_bag(function: Callable[..., Bags], weight: Tensor, indices: Tensor, offsets: Tensor, *rest: Any) -> Bags:
    results, bags, sizes, places = function(weight, indices, offsets, *rest)
    if not bags.numel():
        rows = torch.arange(len(indices), dtype=offsets.dtype)
        bags = (torch.searchsorted(offsets, rows, right=True) - 1).to(bags.dtype)
    return results, bags, sizes, places


_COMPLEX: Final = frozenset({torch.complex64, torch.complex128})
_BFLOAT16: Final = frozenset({torch.bfloat16})

SUBSTITUTES: Final = {
    "aten::convolution.out": Substitute(_COMPLEX, _convolution),
    "aten::_embedding_bag.out": Substitute(_BFLOAT16, partial(_embedding_bag, torch.ops.aten._embedding_bag)),
    "aten::_embedding_bag_forward_only.out": Substitute(
        _BFLOAT16, partial(_embedding_bag, torch.ops.aten._embedding_bag_forward_only)
    ),
}
"""By an operator's name in programs."""
