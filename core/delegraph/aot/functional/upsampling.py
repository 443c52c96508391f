"""An image or volume -> the same at another size: the nearest pixels, by a gather, or between them linearly.

torch's decompositions of nearest pixels read beyond the image where a scale contradicts the size that is asked for, and
multiply by `size / (size * scale)` where its kernels do by `1 / scale`; the linear ones follow a scale where the size
stays the same, which its kernels copy (`aten/src/ATen/native/cpu/UpSampleKernel.cpp`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import torch
from torch._ops import OpOverload

from delegraph.aot.torch_internals import suggest_memory_format, upsample_compute_output_size, upsample_linear

__all__ = ["UPSAMPLING"]

aten = torch.ops.aten


def _resized(dims: int, exact: bool, x: torch.Tensor, sizes: Sequence[int], *scales: float | None) -> torch.Tensor:
    places, every = [], (*scales, *[None] * dims)[:dims]
    for dim, (before, after, scale) in enumerate(zip(x.shape[2:], sizes, every, strict=True)):
        read = _pixels(dims, exact, before, after, scale)
        places.append(read.reshape([-1] + [1] * (dims - 1 - dim)))
    result: torch.Tensor = aten.index.Tensor(x, [None, None, *places])
    return result.contiguous(memory_format=suggest_memory_format(x)) if dims > 1 else result


def _resized_vec(
    dims: int, exact: bool, x: torch.Tensor, sizes: Sequence[int] | None, scales: Sequence[float] | None
) -> torch.Tensor:
    return _resized(dims, exact, x, upsample_compute_output_size(x.size(), sizes, scales), *(scales or ()))


def _pixels(dims: int, exact: bool, before: int, after: int, scale: float | None) -> torch.Tensor:
    """Which of `before` pixels is at each of `after` places: below its left edge, or if `exact`, below its middle."""
    scale = scale if scale is not None and scale > 0 else None
    step = before / after if scale is None else 1 / scale
    nearest = _but_of_copies(before, after, step) if dims == 2 and not exact and scale is not None else step
    outputs = torch.arange(after, dtype=torch.float32)
    if not exact:
        at = outputs * nearest
    elif dims == 2:
        at = (outputs + 0.5) * step
    else:  # rounded once, as processors multiply and add
        single = torch.full((), step, dtype=torch.float32).to(torch.float64)
        at = ((outputs.to(torch.float64) + 0.5) * single - 0.5).to(torch.float32) + 0.5
    return at.floor().to(torch.int64).clamp(max=before - 1)


def _but_of_copies(before: int, after: int, step: float) -> float | torch.Tensor:
    """`step`, except for an image of the same or twice the size, for which torch's image kernel ignores the scale."""
    if isinstance(before, int) and isinstance(after, int):
        return before / after if after in (before, 2 * before) else step
    resized, steps = (torch.full((), number, dtype=torch.float32) for number in (after, step))
    steps = torch.where(resized == 2 * before, torch.full((), 0.5), steps)
    return torch.where(resized == before, torch.full((), 1.0), steps)


def _between(x: torch.Tensor, sizes: Sequence[int], align_corners: bool, *scales: float | None) -> torch.Tensor:
    """Linearly, along each dim."""
    every = (*scales, *[None] * len(sizes))[: len(sizes)]
    kept = [
        None if isinstance(before, int) and isinstance(after, int) and before == after else scale
        for before, after, scale in zip(x.shape[2:], sizes, every, strict=True)
    ]
    result: torch.Tensor = upsample_linear(x, sizes, align_corners, kept)
    return result


def _between_vec(
    x: torch.Tensor, sizes: Sequence[int] | None, align_corners: bool, scales: Sequence[float] | None
) -> torch.Tensor:
    return _between(x, upsample_compute_output_size(x.size(), sizes, scales), align_corners, *(scales or ()))


def _rules() -> dict[OpOverload, Callable[..., torch.Tensor]]:
    linear = aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d
    rules: dict[OpOverload, Callable[..., torch.Tensor]] = {
        aten.upsample_linear1d.default: _between,
        **{operator.vec: _between_vec for operator in linear},
    }
    for dims in (1, 2, 3):
        for name, exact in ((f"upsample_nearest{dims}d", False), (f"_upsample_nearest_exact{dims}d", True)):
            rules[getattr(aten, name).default] = partial(_resized, dims, exact)
            rules[getattr(aten, name).vec] = partial(_resized_vec, dims, exact)
    return rules


UPSAMPLING: Final = _rules()
"""Decompositions by the operators that they are of."""
