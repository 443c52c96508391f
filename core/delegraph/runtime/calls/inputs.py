"""A caller's arguments -> the input values of a method: checked, then copied into planned memory or shared.

Stricter than ExecuTorch, which compares only the number of elements: rank and every size count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from delegraph.errors import InvalidArgument, InvalidProgram, InvalidType, NotSupported
from delegraph.interfaces.device import DeviceTensor
from delegraph.program.contract import DimRange, Dims
from delegraph.program.devices import Device, tagged_device
from delegraph.program.dtypes import numpy_dtype
from delegraph.program.schema import Bool, Double, Int, Null, String, Tensor, TensorShapeDynamism, Value
from delegraph.program.strides import dense_strides
from delegraph.runtime.calls.contract import REMEMBERED, shape_fault
from delegraph.runtime.values.device_memory import copy_across
from delegraph.runtime.values.tensors import as_array
from delegraph.runtime.values.values import Array, MovingTensor, ValueTable

if TYPE_CHECKING:
    from delegraph.runtime.calls.device_inputs import Place

InputSetter: TypeAlias = Callable[[object], object]
"""Puts one argument where the method's instructions find it. Raises `InvalidType` or `InvalidArgument`."""


def input_setter(
    values: ValueTable,
    index: int,
    dims: Dims | None = None,
    *,
    views: Sequence[int] = (),
    changed: bool = False,
    there: Place | None = None,
) -> InputSetter:
    """The setter of the input whose value is `index`; `dims` are its allowed sizes, None: up to those in the file.

    `views` are other values that show it. `changed` says that the program writes into the caller's own array. `there`
    is the device that the input is on, where its memory is known.

    Raises `NotSupported` for inputs that are lists.
    """
    record = values.records[index]
    if not isinstance(record, Tensor):
        return input_check(record)
    check, tensor = tensor_check(record, dims), values.moving.get(index)
    if tensor is not None and tensor.moves and tensor.home is not None:
        return lambda value: _put_home(values, (index, *views), check(value))
    if there is not None:
        return _device_setter(values, index, there, check, changed)
    return _tensor_setter(values, index, check, changed)


def borrowing_setter(
    values: ValueTable, index: int, dims: Dims | None, views: Sequence[tuple[int, int]]
) -> InputSetter:
    """The same for an input that is read in the caller's array, if that lies in memory as the program has it.

    `views` are other values that show it, and how many bytes into it.
    """
    record, tensor = values.records[index], values.moving[index]
    assert isinstance(record, Tensor)
    check = tensor_check(record, dims)
    group = (index, *(view for view, _ in views))
    viewing = [(values.moving[view], offset) for view, offset in views]

    def borrow(value: object) -> None:
        array = check(value)
        if not (array.flags.aligned and lies_as(array, tensor)):
            _put_home(values, group, array)
            return
        # By the plan nothing writes there (`values/uses.py`); a kernel that does it all the same meets an error.
        shown = array.view()
        shown.flags.writeable = False
        values.place(tensor, shown)
        for view, offset in viewing:
            values.place(view, view.over(shown.transpose(tensor.dim_order), offset))

    return borrow


def give_back(values: ValueTable, indices: Iterable[int]) -> None:
    """Let these values be in their own places, and no caller's memory stand for them any more."""
    for index in indices:
        values.place(values.moving[index], values.moving[index].home)


def input_check(record: Value) -> Callable[[object], object]:
    """A check of an argument for the input `record`, which returns the argument (of a tensor, its array).

    The check raises `InvalidType` or `InvalidArgument`. Raises `NotSupported` for inputs that are lists.
    """
    if isinstance(record, Tensor):
        return tensor_check(record)
    if isinstance(record, Null):
        return _expect_none
    if isinstance(record, Int | Bool | Double | String):
        return _scalar_check(record)
    raise NotSupported(f"an input that is a {type(record).__name__}")


# ---- tensors ---------------------------------------------------------------------------------------


def _tensor_setter(values: ValueTable, index: int, check: Callable[[object], Array], changed: bool) -> InputSetter:
    moving = values.moving.get(index)
    if moving is None:
        destination: Array = values.slots[index]
        if not destination.flags.writeable:
            raise InvalidProgram(f"value {index} is an input, and a constant")
        return _copying(destination, check)
    if moving.home is None:
        share = _shared_to_be_changed if changed else _shared_read_only
        return lambda value: values.place(moving, share(check(value), moving))

    def copy_resized(value: object) -> None:
        array = check(value)
        np.copyto(values.resize(values.slots[index], array.shape), array)

    return copy_resized


def _device_setter(
    values: ValueTable, index: int, there: Place, check: Callable[[object], Array], changed: bool
) -> InputSetter:
    moving = values.moving.get(index)
    if moving is None or moving.home is not None:
        return lambda value: copy_across(values.resize, there.bring(value, check), values.slots[index])
    share = _shared_to_be_changed if changed else _shared_read_only

    def set_there(value: object) -> None:
        tensor = there.bring(value, check)
        if not isinstance(tensor, DeviceTensor) or tensor.buffer.allocator is not there.allocator:
            strides = dense_strides(tensor.shape, moving.dtype.itemsize, moving.dim_order)
            tensor = there.copied(tensor, strides)
        values.place(moving, share(tensor, moving))

    return set_there


def _put_home(values: ValueTable, group: Sequence[int], array: Array) -> None:
    """Copy an array to where the program has the tensor `group[0]`; the rest of the group shows it."""
    # An earlier call may have borrowed: until they are back, the slots show that caller's array.
    give_back(values, group)
    np.copyto(values.resize(values.slots[group[0]], array.shape), array)


def _copying(destination: Array, check: Callable[[object], Array]) -> InputSetter:
    """Copies into a planned tensor of static shape; the arguments of most calls are known to fit at a glance."""
    dtype, shape = destination.dtype, destination.shape

    def copy(value: object) -> None:
        if type(value) is np.ndarray and value.dtype is dtype and value.shape == shape:
            destination[...] = value
        else:
            destination[...] = check(value)

    return copy


def tensor_check(record: Tensor, known: Dims | None = None) -> Callable[[object], Array]:
    """A check that returns an argument's array, or raises `InvalidType` or `InvalidArgument` if that does not fit."""
    dtype, dims = numpy_dtype(record.scalar_type), known or _dims_of_record(record)
    allowed = {record.sizes} if all(isinstance(dim, int) for dim in dims) else set[tuple[int, ...]]()

    device = tagged_device(record)

    def check(value: object) -> Array:
        array = value if type(value) is np.ndarray or _is_on(value, device) else _array(value, record, dims)
        # The same numbers in the other order of bytes: `np.load` gives such arrays of files from elsewhere.
        if array.dtype != dtype and array.dtype.newbyteorder("=") == dtype:
            array = array.astype(dtype)
        if array.dtype != dtype:
            raise InvalidType(
                f"expected {expected_text(record, dims)}, got dtype {array.dtype}; pass array.astype('{dtype}')"
            )
        # A look-up in a set instead of a comparison per dim: most calls have shapes that passed before.
        if array.shape not in allowed:
            if fault := shape_fault(array.shape, dims):
                raise InvalidArgument(f"expected {expected_text(record, dims)}, got shape {list(array.shape)}: {fault}")
            if len(allowed) < REMEMBERED:
                allowed.add(array.shape)
        return array

    return check


def _dims_of_record(record: Tensor) -> Dims:
    """The dims by the file alone: the sizes of a dynamic tensor are upper bounds."""
    if record.shape_dynamism is TensorShapeDynamism.STATIC:
        return record.sizes
    unbounded = record.shape_dynamism is TensorShapeDynamism.DYNAMIC_UNBOUND
    return tuple(DimRange() if unbounded else DimRange(high=size) for size in record.sizes)


def _array(value: object, record: Tensor, dims: Dims) -> Array:
    try:
        return as_array(value)
    except InvalidType as error:
        if isinstance(value, np.ndarray):
            raise InvalidType(f"{error} (it takes {expected_text(record, dims)})") from error
        raise InvalidType(f"expected {expected_text(record, dims)}, got {_told(value, record)}") from error


def _told(value: object, record: Tensor) -> str:
    """A value that is no array, and what to pass instead."""
    kind = type(value).__name__
    if isinstance(value, Mapping):
        return f"{kind} of {', '.join(map(repr, value))!s:.60}; pass what is in it by name: run(**values)"
    if not isinstance(value, list | tuple):
        return f"{kind}: {value!r:.60}; pass an array"
    if any(hasattr(item, "shape") for item in value):
        return f"{kind} of {len(value)} arrays; pass each as an argument of its own: run(*values)"
    return f"{kind}; pass numpy.asarray(values, {numpy_dtype(record.scalar_type).name!r})"


def _is_on(value: object, device: Device) -> TypeGuard[Array]:
    """Whether `value` is a tensor on the input's device, which its method then takes as it is."""
    return isinstance(value, DeviceTensor) and value.device == device


def _shared_read_only(array: Array, tensor: MovingTensor) -> Array:
    """The caller's array, or a copy as below, which no instruction can write into; a `DeviceTensor` as it is."""
    shown = _shared_or_copied(array, tensor)
    if isinstance(shown, DeviceTensor):
        return shown
    shown = shown.view()
    shown.flags.writeable = False
    return shown


def _shared_to_be_changed(array: Array, tensor: MovingTensor) -> Array:
    if array.buffer.read_only if isinstance(array, DeviceTensor) else not array.flags.writeable:
        raise InvalidArgument("the model changes this argument, and the array is read-only; pass array.copy()")
    return _shared_or_copied(array, tensor)


def _shared_or_copied(array: Array, tensor: MovingTensor) -> Array:
    """`array` itself if it lies in memory as the program expects, else a copy that does."""
    if lies_as(array, tensor):
        return array
    strides = dense_strides(array.shape, tensor.dtype.itemsize, tensor.dim_order)
    if isinstance(array, DeviceTensor):
        raise InvalidArgument(
            f"the tensor lies on {array.device} in the order of strides {array.strides}, and the program expects"
            f" {strides}; give it in that order"
        )
    copy: Array = np.ndarray(array.shape, array.dtype, np.empty(array.nbytes, np.uint8), 0, strides)
    np.copyto(copy, array)
    return copy


def lies_as(array: Array, tensor: MovingTensor) -> bool:
    """Whether `array`, of its shape and dtype, is dense in the dim order of `tensor`."""
    if tensor.in_order and isinstance(array, np.ndarray) and array.flags.c_contiguous:
        return True
    strides = dense_strides(array.shape, tensor.dtype.itemsize, tensor.dim_order)
    axes = zip(array.shape, array.strides, strides, strict=True)
    return array.nbytes == 0 or all(size == 1 or stride == expected for size, stride, expected in axes)


def expected_text(record: Tensor, dims: Dims | None = None) -> str:
    """`float32[batch in 1..16, 3]`; of a dynamic tensor about which nothing more is known, `float32[0..16, 0..3]`."""
    sizes = ", ".join(map(str, dims or _dims_of_record(record)))
    return f"{numpy_dtype(record.scalar_type)}[{sizes}]"


# ---- everything else: burnt into the program when it was exported ------------------------------------


def _expect_none(value: object) -> None:
    if value is not None:
        raise InvalidType(f"expected None, as when the model was exported, got {type(value).__name__}")


def _scalar_check(record: Int | Bool | Double | String) -> InputSetter:
    accepted = _ACCEPTED[type(record)]

    def check(value: object) -> None:
        if not isinstance(value, accepted) or (isinstance(value, bool) and not isinstance(record, Bool)):
            raise InvalidType(f"expected the {_NAMES[type(record)]} {record.value!r}, got {type(value).__name__}")
        if not _equal(value, record):
            raise InvalidArgument(
                f"expected {record.value!r}, got {value!r}: the model was exported with this value fixed;"
                " export it again with the other one, or make it a tensor input"
            )

    return check


def _equal(value: Any, record: Int | Bool | Double | String) -> bool:
    if isinstance(record, Double):  # ExecuTorch's tolerances: `runtime/executor/method.cpp`, set_input
        both_nan = math.isnan(value) and math.isnan(record.value)
        return both_nan or math.isclose(value, record.value, rel_tol=1e-5, abs_tol=1e-4)
    return bool(value == record.value)


_ACCEPTED: dict[type, tuple[type, ...]] = {
    Int: (int, np.integer),
    Bool: (bool, np.bool_),
    Double: (float, int, np.floating, np.integer),
    String: (str,),
}

_NAMES = {Int: "int", Bool: "bool", Double: "float", String: "str"}
