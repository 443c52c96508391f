"""DLPack (https://dmlc.github.io/dlpack/latest/c_api.html): capsules -> records, and tensors of devices -> capsules.

Capsules are read through ctypes. They are written by NumPy: of an array that shows the device's addresses, which nobody
reads, NumPy makes a capsule that keeps it alive and lets go of it; then only the kind of device, and of element where
NumPy has no number for it, are written over.
"""

from __future__ import annotations

import ctypes
import weakref
from contextlib import suppress
from typing import Any, Final

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType, cause_of
from delegraph.interfaces.external_memory import ExternalTensor
from delegraph.program.dtypes import DTYPES, numpy_dtype
from delegraph.program.strides import dense_strides

__all__ = ["read_dlpack", "to_dlpack"]


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """DLManagedTensor, in a capsule "dltensor"."""

    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned, of major version 1, in a capsule "dltensor_versioned"."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_FORMS: Final[dict[bytes, tuple[type[ctypes.Structure], bytes]]] = {
    b"dltensor_versioned": (_Versioned, b"used_dltensor_versioned"),
    b"dltensor": (_Managed, b"used_dltensor"),
}
"""The name of a capsule, what is in it, and its name once somebody has taken that. A capsule does not copy its name."""

_READ_ONLY: Final = 1
_KINDS: Final = {0: "i", 1: "u", 2: "f", 5: "c"}
_BOOL: Final = 6
_ML_DTYPES: Final = {
    "bfloat16": 4,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
}
"""DLDataTypeCode of `dlpack.h` 1.1, for what NumPy itself does not know."""

_IS_VALID: Final = ctypes.pythonapi.PyCapsule_IsValid
_IS_VALID.restype, _IS_VALID.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_POINTER: Final = ctypes.pythonapi.PyCapsule_GetPointer
_POINTER.restype, _POINTER.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_RENAME: Final = ctypes.pythonapi.PyCapsule_SetName
_RENAME.restype, _RENAME.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_DELETER: Final = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)  # which keeps Python's lock: some deleters count on it


class _Owner:
    """A producer's tensor, which its deleter lets go of."""


def read_dlpack(value: Any, stream: int | None = None) -> ExternalTensor:
    """The tensor that `value.__dlpack__()` hands over, to be kept alive by the record's `owner`.

    `stream` is the queue of the device that will read it, as `__dlpack__` numbers them for that kind of device; None:
    its default one. Raises `InvalidType` for a value without DLPack, and `InvalidArgument` where it cannot hand its
    tensor over or has elements that there are no dtypes for.
    """
    name = type(value).__name__
    if not hasattr(value, "__dlpack__"):
        raise InvalidType(f"a {name} has no __dlpack__")
    options = {} if stream is None else {"stream": stream}
    try:
        try:
            capsule = value.__dlpack__(max_version=(1, 1), **options)
        except TypeError:  # written before there were versions
            capsule = value.__dlpack__(**options)
    except Exception as error:  # whatever the library of the tensor raises
        raise InvalidArgument(f"a {name} hands over nothing through DLPack: {cause_of(error)}") from error
    form, managed = _opened(capsule)
    tensor = managed.tensor
    if form == b"dltensor_versioned" and managed.major != 1:
        raise InvalidArgument(f"a {name} gives DLPack {managed.major}.{managed.minor}; 1.x is read here")
    # Only now it is taken: an error above leaves the capsule its own, and with it the memory.
    shape = tuple(tensor.shape[dim] for dim in range(tensor.ndim))
    dtype = _dtype(tensor, name)
    strides = (
        tuple(tensor.strides[dim] * dtype.itemsize for dim in range(tensor.ndim))
        if tensor.strides
        else dense_strides(shape, dtype.itemsize)
    )
    read_only = form == b"dltensor_versioned" and bool(managed.flags & _READ_ONLY)
    device = (tensor.device_type, tensor.device_id)
    pointer = (tensor.data or 0) + tensor.byte_offset
    return ExternalTensor(pointer, shape, dtype, strides, read_only, device, owner=_taken(capsule, form, managed))


def _opened(capsule: object) -> tuple[bytes, Any]:
    for form, (structure, _) in _FORMS.items():
        if _IS_VALID(capsule, form):
            return form, structure.from_address(_POINTER(capsule, form))
    raise InvalidArgument(f"its __dlpack__ gave {capsule!r:.80}, which is no DLPack capsule, or was taken before")


def _taken(capsule: object, form: bytes, managed: Any) -> _Owner:
    """Take the tensor in the capsule: its deleter is called when nobody refers to the owner any more."""
    owner = _Owner()
    _RENAME(capsule, _FORMS[form][1])
    if managed.deleter:
        # Not at exit: the library of the tensor may be gone by then.
        weakref.finalize(owner, _DELETER(managed.deleter), ctypes.addressof(managed)).atexit = False
    return owner


def _dtype(tensor: Any, name: str) -> np.dtype[Any]:
    if tensor.lanes == 1:
        if tensor.code in _KINDS and tensor.bits % 8 == 0:
            with suppress(TypeError):
                return np.dtype(f"{_KINDS[tensor.code]}{tensor.bits // 8}")
        if (tensor.code, tensor.bits) == (_BOOL, 8):
            return np.dtype(np.bool_)
        for info in DTYPES:
            if _ML_DTYPES.get(info.name) == tensor.code and info.bits == tensor.bits:
                return numpy_dtype(info.code)
    raise InvalidArgument(
        f"a {name} has elements of DLPack's type {tensor.code} with {tensor.bits} bits and {tensor.lanes} lanes, for"
        " which there is no dtype here"
    )


class _Shown:
    """Addresses of a device, as NumPy takes them for an array."""

    def __init__(self, tensor: ExternalTensor, dtype: np.dtype[Any]) -> None:
        self.owner = tensor.owner
        self.__array_interface__ = {
            "version": 3,
            "data": (tensor.pointer, tensor.read_only),
            "shape": tensor.shape,
            "typestr": dtype.str,
            "strides": tensor.strides,
        }


def to_dlpack(tensor: ExternalTensor, max_version: tuple[int, int] | None = None) -> object:
    """A capsule of `tensor`, whose `owner` lives until its taker lets go of it.

    Raises `BufferError`, as `__dlpack__` has to, for memory that is read-only where `max_version` is below 1.0, which
    cannot say so.
    """
    code = _ML_DTYPES.get(tensor.dtype.name)
    carrier = tensor.dtype if code is None else np.dtype(f"u{tensor.dtype.itemsize}")
    array = np.asarray(_Shown(tensor, carrier))
    # From NumPy 2.1 on; older ones know the form without a version alone, which every taker reads.
    versioned = max_version is not None and max_version[0] >= 1 and hasattr(np, "unstack")
    capsule = array.__dlpack__(max_version=(1, 0)) if versioned else array.__dlpack__()
    written = _opened(capsule)[1].tensor
    assert tensor.device is not None
    written.device_type, written.device_id = tensor.device
    written.code = written.code if code is None else code
    return capsule
