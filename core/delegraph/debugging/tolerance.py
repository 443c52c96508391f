"""How far a result may be from torch's: a share of the largest value that torch gives, by dtype."""

from __future__ import annotations

from typing import Final

import torch

__all__ = ["allowed_error", "difference", "usual_share"]

_SHARES: Final = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""About a thousand roundings of the wide types and ten of the narrow ones; integers are compared exactly."""


def usual_share(dtype: torch.dtype) -> float:
    """The share of the largest value by which a result of the dtype may usually be off."""
    return _SHARES.get(dtype, 0.0)


def allowed_error(expected: torch.Tensor, share: float | None) -> float:
    """The largest difference that passes; `share` goes before what is usual for the dtype."""
    part = usual_share(expected.dtype) if share is None else share
    sizes = expected.detach().abs().to(torch.float64)
    sizes = sizes[sizes.isfinite()]
    return part * float(sizes.max()) if sizes.numel() else 0.0


def difference(actual: object, expected: torch.Tensor, allowed: float) -> str:
    """How `actual` differs from `expected` by more than `allowed`; "" if it does not."""
    try:
        torch.testing.assert_close(actual, expected, rtol=0, atol=allowed, equal_nan=True)
    except AssertionError as error:
        return str(error).strip()
    return ""
