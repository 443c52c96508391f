"""`ScalarType` <-> NumPy dtype. bfloat16 and float8 come from ml_dtypes, imported only when one is met."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from delegraph.errors import InvalidType, NotSupported
from delegraph.program.schema import ScalarType

_NATIVE: Final[dict[ScalarType, type[np.generic]]] = {
    ScalarType.BYTE: np.uint8,
    ScalarType.CHAR: np.int8,
    ScalarType.SHORT: np.int16,
    ScalarType.INT: np.int32,
    ScalarType.LONG: np.int64,
    ScalarType.HALF: np.float16,
    ScalarType.FLOAT: np.float32,
    ScalarType.DOUBLE: np.float64,
    ScalarType.COMPLEX64: np.complex64,
    ScalarType.COMPLEX128: np.complex128,
    ScalarType.BOOL: np.bool_,
    ScalarType.UINT16: np.uint16,
    ScalarType.UINT32: np.uint32,
    ScalarType.UINT64: np.uint64,
}

_EXTENDED: Final[dict[ScalarType, str]] = {
    ScalarType.BFLOAT16: "bfloat16",
    ScalarType.FLOAT8E5M2: "float8_e5m2",
    ScalarType.FLOAT8E4M3FN: "float8_e4m3fn",
    ScalarType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    ScalarType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
}

_BY_NAME: Final[dict[str, ScalarType]] = {
    **{np.dtype(native).name: code for code, native in _NATIVE.items()},
    **{name: code for code, name in _EXTENDED.items()},
}


@cache
def numpy_dtype(scalar_type: ScalarType) -> np.dtype[Any]:
    """The NumPy dtype of `scalar_type`. Raises `NotSupported` for complex32, q* and bits* types."""
    native = _NATIVE.get(scalar_type)
    if native is not None:
        return np.dtype(native)
    extended = _EXTENDED.get(scalar_type)
    if extended is None:
        raise NotSupported(f"{scalar_type.name} tensors have no NumPy dtype")
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, extended))
    return dtype


def is_extended(scalar_type: ScalarType) -> bool:
    """Whether the dtype is not NumPy's own but comes from ml_dtypes."""
    return scalar_type in _EXTENDED


def scalar_type(dtype: np.dtype[Any] | str) -> ScalarType:
    """The `ScalarType` of a NumPy dtype, or of its name. Raises `InvalidType` where there is none."""
    name = dtype if isinstance(dtype, str) else dtype.name
    code = _BY_NAME.get(name)
    if code is None:
        raise InvalidType(f"NumPy dtype {name} has no ScalarType; known are {', '.join(sorted(_BY_NAME))}")
    return code
