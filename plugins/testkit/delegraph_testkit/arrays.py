"""Arrays <-> an .npz, those of dtypes that NumPy lacks included; and how far two of them are apart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import ml_dtypes  # noqa: F401 - makes "bfloat16" a name of a dtype
import numpy as np
from numpy.typing import NDArray

__all__ = ["TOLERANCES", "Array", "difference", "load_arrays", "save_arrays"]

Array: TypeAlias = "NDArray[Any]"

TOLERANCES: Final[Mapping[str, tuple[float, float]]] = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
}
"""Relative and absolute, `torch.testing.assert_close`'s defaults; integers and bool are compared exactly."""


def save_arrays(file: Path, arrays: Mapping[str, Array]) -> None:
    """Write them; one of a dtype of ml_dtypes as unsigned integers, its name at the end of its key."""
    plain = {}
    for key, array in arrays.items():
        native = array.dtype.kind in "biufc"
        plain[f"{key}:{array.dtype.name}"] = array if native else array.view(f"u{array.dtype.itemsize}")
    np.savez(file, allow_pickle=False, **plain)


def load_arrays(file: Path) -> dict[str, Array]:
    """The arrays that `save_arrays` wrote."""
    with np.load(file, allow_pickle=False) as content:
        named = ((*key.rsplit(":", 1), content[key]) for key in content.files)
        return {key: array if array.dtype.name == dtype else array.view(dtype) for key, dtype, array in named}


def difference(
    actual: Array, expected: Array, slack: float, tolerances: Mapping[str, tuple[float, float]] = TOLERANCES
) -> str:
    """How `actual` differs from `expected` by more than is allowed; "" if it does not.

    Allowed is `absolute + relative · |expected| + slack`: the dtype's tolerance, and the error of torch's own result.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"it is {actual.dtype.name}{list(actual.shape)}, not {expected.dtype.name}{list(expected.shape)}"
    relative, absolute = tolerances.get(expected.dtype.name, (0.0, 0.0))
    exact = expected.dtype.kind in "biu" and not (relative or absolute)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    got, reference = (actual, expected) if exact else (actual.astype(wide), expected.astype(wide))
    with np.errstate(all="ignore"):
        same = (got == reference) | ((got != got) & (reference != reference))
        if not exact:
            near = np.abs(got - reference) <= absolute + relative * np.abs(reference) + slack
            same |= near & np.isfinite(got) & np.isfinite(reference)  # nothing is near an infinity
    if same.all():
        return ""
    place = tuple(int(index) for index in np.argwhere(~same)[0])
    wrong = int(same.size - np.count_nonzero(same))
    return (
        f"{wrong} of {same.size} elements are wrong, the first at {list(place)}: {actual[place]}, not {expected[place]}"
    )
