"""torch's results -> the same as files hold them, and how far others may be from them: a share of the largest value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph.aot.authoring.dtypes import as_array
from delegraph.debugging.subgraph import Case
from delegraph.program.dtypes import storable

__all__ = ["Result", "difference", "stored_results"]

_SHARES: Final = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""About a thousand roundings of the wide types and ten of the narrow ones; integers are compared exactly."""


@dataclass(frozen=True, slots=True)
class Result:
    """torch's result, as an .npz can hold it, and the largest difference that passes."""

    array: NDArray[Any]
    allowed: float


def stored_results(case: Case, share: float | None) -> dict[str, Result]:
    """The results of a case by position; `share` goes before what is usual for their dtypes."""
    arrays = {
        str(position): as_array(tensor.detach()) for position, tensor in enumerate(case.expected) if tensor is not None
    }
    return {name: Result(storable(array), _allowed(array, share)) for name, array in arrays.items()}


def _allowed(expected: NDArray[Any], share: float | None) -> float:
    part = _SHARES.get(expected.dtype.name, 0.0) if share is None else share
    if not part:
        return 0.0
    sizes = np.abs(expected.astype(np.complex128))
    return float(part * sizes.max(initial=0.0, where=np.isfinite(sizes)))


def difference(actual: NDArray[Any], expected: NDArray[Any], allowed: float) -> str:
    """How `actual` differs from `expected` by more than `allowed`; "" if it does not. Both as `storable` has them."""
    if (actual.shape, actual.dtype) != (expected.shape, expected.dtype):
        return f"it is {actual.dtype.name}{list(actual.shape)}, not {expected.dtype.name}{list(expected.shape)}"
    try:
        np.testing.assert_allclose(actual, expected, rtol=0, atol=allowed)
    except AssertionError as error:
        return str(error).strip()
    return ""
