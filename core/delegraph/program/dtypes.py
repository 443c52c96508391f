"""Element types: the one table of their codes, names and sizes. NumPy's own are imported when one is asked for.

bfloat16 and float8 come from ml_dtypes, imported only when one is met. `delegraph.aot.graph.dtypes` adds torch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, Final

from delegraph.errors import InvalidType, NotSupported
from delegraph.lazy_dataclass import dataclass
from delegraph.program.schema import ScalarType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["DTYPES", "DtypeInfo", "dtype_info", "is_extended", "nbytes", "numpy_dtype", "scalar_type", "storable"]


@dataclass(frozen=True, slots=True)
class DtypeInfo:
    """One element type. `name` is torch's, and NumPy's or ml_dtypes' where `numpy` names the module; `bits` is the size
    of an element; `short` how graphs are printed.
    """

    code: ScalarType
    name: str
    bits: int
    short: str
    numpy: str | None = "numpy"


DTYPES: Final = (
    DtypeInfo(ScalarType.BYTE, "uint8", 8, "u8"),
    DtypeInfo(ScalarType.CHAR, "int8", 8, "i8"),
    DtypeInfo(ScalarType.SHORT, "int16", 16, "i16"),
    DtypeInfo(ScalarType.INT, "int32", 32, "i32"),
    DtypeInfo(ScalarType.LONG, "int64", 64, "i64"),
    DtypeInfo(ScalarType.HALF, "float16", 16, "f16"),
    DtypeInfo(ScalarType.FLOAT, "float32", 32, "f32"),
    DtypeInfo(ScalarType.DOUBLE, "float64", 64, "f64"),
    DtypeInfo(ScalarType.COMPLEX32, "complex32", 32, "c32", None),
    DtypeInfo(ScalarType.COMPLEX64, "complex64", 64, "c64"),
    DtypeInfo(ScalarType.COMPLEX128, "complex128", 128, "c128"),
    DtypeInfo(ScalarType.BOOL, "bool", 8, "bool"),
    DtypeInfo(ScalarType.QINT8, "qint8", 8, "qint8", None),
    DtypeInfo(ScalarType.QUINT8, "quint8", 8, "quint8", None),
    DtypeInfo(ScalarType.QINT32, "qint32", 32, "qint32", None),
    DtypeInfo(ScalarType.BFLOAT16, "bfloat16", 16, "bf16", "ml_dtypes"),
    DtypeInfo(ScalarType.QUINT4x2, "quint4x2", 8, "quint4x2", None),
    DtypeInfo(ScalarType.QUINT2x4, "quint2x4", 8, "quint2x4", None),
    DtypeInfo(ScalarType.BITS1X8, "bits1x8", 8, "bits1x8", None),
    DtypeInfo(ScalarType.BITS2X4, "bits2x4", 8, "bits2x4", None),
    DtypeInfo(ScalarType.BITS4X2, "bits4x2", 8, "bits4x2", None),
    DtypeInfo(ScalarType.BITS8, "bits8", 8, "bits8", None),
    DtypeInfo(ScalarType.BITS16, "bits16", 16, "bits16", None),
    DtypeInfo(ScalarType.FLOAT8E5M2, "float8_e5m2", 8, "f8e5m2", "ml_dtypes"),
    DtypeInfo(ScalarType.FLOAT8E4M3FN, "float8_e4m3fn", 8, "f8e4m3fn", "ml_dtypes"),
    DtypeInfo(ScalarType.FLOAT8E5M2FNUZ, "float8_e5m2fnuz", 8, "f8e5m2fnuz", "ml_dtypes"),
    DtypeInfo(ScalarType.FLOAT8E4M3FNUZ, "float8_e4m3fnuz", 8, "f8e4m3fnuz", "ml_dtypes"),
    DtypeInfo(ScalarType.UINT16, "uint16", 16, "u16"),
    DtypeInfo(ScalarType.UINT32, "uint32", 32, "u32"),
    DtypeInfo(ScalarType.UINT64, "uint64", 64, "u64"),
)
"""Every element type, in order of their codes. An element of a packed type (quint4x2, bits4x2 …) is the byte that holds
several numbers, as `c10/core/ScalarType.h` counts."""

_BY_CODE: Final = {info.code: info for info in DTYPES}
_BY_NAME: Final = {info.name: info.code for info in DTYPES if info.numpy is not None}


def dtype_info(scalar_type: ScalarType) -> DtypeInfo:
    """The row of `scalar_type`."""
    return _BY_CODE[scalar_type]


def nbytes(scalar_type: ScalarType, sizes: Sequence[int]) -> int:
    """Bytes of a dense tensor of `sizes`, of its upper bound where these are bounds: whole bytes, the last one full or
    not.
    """
    return (prod(sizes, start=_BY_CODE[scalar_type].bits) + 7) // 8


@cache
def numpy_dtype(scalar_type: ScalarType) -> np.dtype[Any]:
    """The NumPy dtype of `scalar_type`. Raises `NotSupported` for complex32, q* and bits* types."""
    import numpy as np

    info = _BY_CODE[scalar_type]
    if info.numpy is None:
        raise NotSupported(f"{scalar_type.name} tensors have no NumPy dtype")
    if info.numpy == "numpy":
        return np.dtype(info.name)
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, info.name))
    return dtype


def is_extended(scalar_type: ScalarType) -> bool:
    """Whether the dtype is not NumPy's own but comes from ml_dtypes."""
    return _BY_CODE[scalar_type].numpy == "ml_dtypes"


def storable(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """`array` as `.npy` and `.npz` can hold it: bfloat16 and float8, which NumPy's format does not know, as float32."""
    return array.astype("float32") if array.dtype.isbuiltin == 2 else array  # 2: registered by ml_dtypes


def scalar_type(dtype: np.dtype[np.generic] | str) -> ScalarType:
    """The `ScalarType` of a NumPy dtype, or of its name. Raises `InvalidType` where there is none."""
    name = dtype if isinstance(dtype, str) else dtype.name
    code = _BY_NAME.get(name)
    if code is None:
        raise InvalidType(f"NumPy dtype {name} has no ScalarType; known are {', '.join(sorted(_BY_NAME))}")
    return code
