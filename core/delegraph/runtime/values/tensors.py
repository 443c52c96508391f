"""The caller's tensors <-> NumPy arrays, without a copy and without importing anybody's library.

torch is looked for in `sys.modules`: who has a torch tensor has imported torch already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces.device import DeviceTensor
from delegraph.program.dtypes import numpy_dtype, scalar_type
from delegraph.runtime.values.values import Array

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SAME_WIDTH = {1: "uint8", 2: "int16"}
"""Integer dtypes to carry those across that NumPy itself does not know: float8 and bfloat16."""


def as_array(value: object) -> NDArray[Any]:
    """`value`'s memory as an array: an array or scalar of NumPy's, a torch tensor, anything with `__dlpack__`, a
    `DmaBuf`, which is mapped for as long as the array lives, to be read.

    Raises `InvalidType` for anything else and `InvalidArgument` for tensors that are not in the CPU's memory.
    """
    if isinstance(value, np.ndarray):
        return value if type(value) is np.ndarray else _from_subclass(value)
    if isinstance(value, np.generic):
        return np.asarray(value)
    if is_torch_tensor(value):
        return _from_torch(value)
    if isinstance(value, DeviceTensor):
        raise InvalidArgument(f"the tensor is on {value.device}; pass tensor.numpy()")
    from delegraph.interfaces.dma_buf import DmaBuf  # seldom needed: a part of every start otherwise

    if isinstance(value, DmaBuf):
        return value.map()
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value)
    raise InvalidType(f"expected an array, got {type(value).__name__}")


def is_torch_tensor(value: object) -> bool:
    """Whether `value` is a `torch.Tensor`."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def any_torch_tensor(values: Iterable[object]) -> bool:
    """Whether a `torch.Tensor` is among `values`."""
    for value in values:  # noqa: SIM110  (a generator takes four times as long, in each call)
        if type(value) is not np.ndarray and is_torch_tensor(value):
            return True
    return False


def to_torch(arrays: Iterable[object]) -> list[Any]:
    """Arrays, and those in lists, as torch tensors over the same memory; anything else as it is.

    Only for who has torch already.
    """
    torch = sys.modules["torch"]
    return [_to_torch(torch, array) if isinstance(array, np.ndarray) else _list_to_torch(array) for array in arrays]


def _list_to_torch(value: object) -> object:
    return to_torch(value) if isinstance(value, list) else value


def _from_subclass(array: Array) -> Array:
    """The plain array: a subclass may change what NumPy's functions do, which is not asked for here."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise InvalidArgument("the array has masked elements; pass array.filled(value)")
    return array.view(np.ndarray)


def _from_torch(tensor: Any) -> Array:
    """Raises `InvalidArgument` for a tensor without memory: a fake one, one inside of `vmap`, a class's own."""
    try:
        return _from_strided(tensor)
    except (InvalidArgument, InvalidType):
        raise
    except Exception as error:  # whatever the class of the tensor raises
        raise InvalidArgument(
            f"a {type(tensor).__module__}.{type(tensor).__qualname__} has no memory that can be read here: {error}"
        ) from error


def _from_strided(tensor: Any) -> Array:
    if tensor.device.type != "cpu":
        raise InvalidArgument(f"the tensor is on {tensor.device}; pass tensor.cpu()")
    if tensor.layout != sys.modules["torch"].strided:
        raise InvalidArgument(f"the tensor is {tensor.layout}; pass tensor.to_dense()")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        array: Array = tensor.numpy()
    except TypeError:
        carrier = getattr(sys.modules["torch"], _SAME_WIDTH.get(tensor.element_size(), "uint8"))
        array = tensor.view(carrier).numpy().view(numpy_dtype(scalar_type(name)))
    return array


def _from_dlpack(value: Any) -> Array:
    try:
        array: Array = np.from_dlpack(value)
    except Exception as error:  # whatever the library of the tensor raises
        raise InvalidArgument(
            f"a {type(value).__module__}.{type(value).__name__} gives no array through DLPack: {error}"
        ) from error
    return array


def _to_torch(torch: Any, array: Array) -> Any:
    if not array.flags.writeable:  # torch knows no read-only memory
        array = array.copy()
    if array.dtype.isbuiltin == 1:  # 2: registered by ml_dtypes
        return torch.from_numpy(array)
    carrier = array.view(_SAME_WIDTH[array.dtype.itemsize])
    return torch.from_numpy(carrier).view(getattr(torch, array.dtype.name))
