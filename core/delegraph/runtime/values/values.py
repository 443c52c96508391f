"""The value table of a loaded method: the current array, number or list of each value of the plan.

A value is *fixed* if one object stands for it in every run: constants, planned tensors of static shape (an array over
their place in planned memory), scalars that nothing writes. All others *vary*: tensors whose shape or memory
changes, scalars that an instruction overwrites, lists with such items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from delegraph.errors import InvalidArgument, LimitExceeded
from delegraph.interfaces.device import DeviceMemoryBuffer, DeviceTensor
from delegraph.program.dtypes import numpy_dtype
from delegraph.program.schema import (
    Bool,
    Double,
    Int,
    IntList,
    OptionalTensorList,
    Tensor,
    TensorList,
    TensorShapeDynamism,
    Value,
)
from delegraph.program.strides import dense_strides

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array: TypeAlias = np.ndarray[Any, np.dtype[np.generic]]
"""The value of a tensor. That of a tensor in a device's memory is a `DeviceTensor`, which kernels never meet: they work
in the CPU's memory (`program/checks/verify_devices.py`)."""
Memory: TypeAlias = "NDArray[np.uint8] | DeviceMemoryBuffer"
Shape: TypeAlias = tuple[int, ...]
Allocate: TypeAlias = "Callable[[int], NDArray[np.uint8]]"

SCALARS: Final = (Int, Bool, Double)
LISTS_OF_VALUES: Final = (IntList, TensorList, OptionalTensorList)


def kind_of(memory: Memory | None) -> Callable[..., Any]:
    """The constructor of tensors over `memory`: of shape, dtype, memory, offset in bytes and strides."""
    return DeviceTensor if isinstance(memory, DeviceMemoryBuffer) else np.ndarray


def attribute_name(record: Tensor) -> str:
    """The fully qualified name of a buffer that is visible as an attribute, else ""."""
    return (record.extra_tensor_info.fully_qualified_name or "") if record.extra_tensor_info is not None else ""


class MovingTensor:
    """A tensor that varies: its shape changes within `bound`, or its memory is another one in each run.

    `moves` says that its memory is, the caller's or fresh, be there a place for it at `home` or not.
    """

    __slots__ = (
        *("index", "bound", "dim_order", "in_order", "dtype", "resizable", "unbounded", "moves"),
        *("memory", "offset", "kind", "home", "array"),
    )

    def __init__(
        self, index: int, record: Tensor, memory: Memory | None = None, offset: int = 0, *, moves: bool = False
    ) -> None:
        self.index = index
        self.bound = record.sizes
        self.dim_order = record.dim_order
        self.in_order = record.dim_order == tuple(range(len(record.sizes)))
        self.dtype = numpy_dtype(record.scalar_type)
        self.resizable = record.shape_dynamism is not TensorShapeDynamism.STATIC
        self.unbounded = record.shape_dynamism is TensorShapeDynamism.DYNAMIC_UNBOUND
        self.memory = memory
        self.offset = offset
        self.kind = kind_of(memory)
        self.moves = moves
        self.array = self.home = None if memory is None else self.view(self.bound)

    @property
    def nbytes(self) -> int:
        """Bytes at the upper bound; of a tensor without one, at first."""
        return self.nbytes_at(self.bound)

    def nbytes_at(self, shape: Shape) -> int:
        """Bytes at `shape`."""
        return prod(shape) * self.dtype.itemsize

    def first_memory(self, allocate: Allocate) -> NDArray[np.uint8]:
        """Memory for `bound`. Without an upper bound it is none, and grows; but a rank of 0 is one element for good."""
        return np.empty(0, np.uint8) if self.unbounded and not self.nbytes else allocate(self.nbytes)

    def view(self, shape: Shape) -> Array:
        """The tensor at `shape`, over its memory."""
        strides = dense_strides(shape, self.dtype.itemsize, self.dim_order)
        view: Array = self.kind(shape, self.dtype, self.memory, self.offset, strides)
        return view

    def over(self, memory: Array, offset: int) -> Array:
        """The tensor at its bound, over `memory` from byte `offset` on."""
        strides = dense_strides(self.bound, self.dtype.itemsize, self.dim_order)
        return np.ndarray(self.bound, self.dtype, memory, offset, strides)

    def admits(self, shape: Shape) -> bool:
        """Whether the tensor can have `shape`: its own if static, else of its rank and no more elements than bound.

        Bounds of single dimensions are not looked at, as in ExecuTorch: they may belong to different extremes.
        """
        if not self.resizable:
            return shape == self.bound
        return len(shape) == len(self.bound) and (self.unbounded or prod(shape) <= prod(self.bound))


class ValueTable:
    """`slots[i]` is the current value `i` of `records`; `varying` are the indices of values that vary.

    `moving` holds the varying tensors. Lists of values are Python lists of their items' current values. `allocate`
    gives memory to tensors that are not planned; those without an upper bound may have `unbounded_bytes` together.
    """

    def __init__(
        self,
        records: Sequence[Value],
        slots: list[Any],
        moving: dict[int, MovingTensor],
        varying: set[int],
        allocate: Allocate,
        unbounded_bytes: int | None = None,
    ) -> None:
        self.records = records
        self.slots = slots
        self.moving = moving
        self.varying = varying
        self.allocate = allocate
        self.unbounded_bytes = unbounded_bytes
        # An id belongs to one array while that lives, and `tensor.array` keeps it alive.
        self._by_identity = {id(tensor.array): tensor for tensor in moving.values() if tensor.array is not None}
        self._initial = [(i, slots[i]) for i in varying if not isinstance(records[i], (Tensor, *LISTS_OF_VALUES))]

    def resize(self, out: Array, shape: Sequence[int]) -> Array:
        """`KernelContext.resize`: `out` at `shape`, over the same memory."""
        shape = tuple(shape)
        if out.shape == shape:
            return out
        # A kernel knows its output only as an array: the very object in the slot tells the tensor.
        tensor = self._by_identity.get(id(out))
        if tensor is None or not tensor.resizable:
            raise InvalidArgument(f"a static tensor of shape {list(out.shape)} cannot become {list(shape)}")
        if not tensor.admits(shape):
            raise InvalidArgument(
                f"a tensor with the upper bound {list(tensor.bound)} cannot become {list(shape)};"
                " give smaller inputs, or lower the model with higher bounds"
            )
        # Only now: memory for a shape that is refused would stay.
        if tensor.unbounded:
            self._grow(tensor, tensor.nbytes_at(shape))
        array = tensor.view(shape)
        self.place(tensor, array)
        return array

    def _grow(self, tensor: MovingTensor, needed: int) -> None:
        """Let a tensor without bound have so many bytes: those that it has, or else new ones that begin as the old.

        Raises `LimitExceeded` or `MemoryAllocationFailed`.
        """
        growing = [entry for entry in self.moving.values() if entry.unbounded and entry.memory is not None]
        sizes = {entry.index: len(entry.memory) for entry in growing if entry.memory is not None}
        if needed <= sizes.get(tensor.index, 0):
            return
        # All of them share one limit: the memory that this one gives up is free for it.
        total = sum(sizes.values()) - sizes.get(tensor.index, 0) + needed
        if self.unbounded_bytes is not None and total > self.unbounded_bytes:
            raise LimitExceeded(
                f"tensors without an upper bound need {total:,} bytes, and {self.unbounded_bytes:,} are allowed them;"
                " if they may have more, load it with limits=Limits(unplanned_bytes=…)"
            )
        memory = self.allocate(needed)
        if isinstance(tensor.memory, np.ndarray):
            # `et_copy_index` adds a row to those that are there; dense rows keep their bytes as their number grows.
            memory[: len(tensor.memory)] = tensor.memory
        tensor.memory = memory

    def upper_bound(self, array: Array) -> Shape | None:
        """`BackendExecutionContext.upper_bound`: None if the tensor that `array` stands for is of fixed shape."""
        tensor = self._by_identity.get(id(array))
        return tensor.bound if tensor is not None and tensor.resizable and not tensor.unbounded else None

    def place(self, tensor: MovingTensor, array: Array | None) -> None:
        """From now on `array` stands for `tensor` (None: nothing does)."""
        # Nothing keeps the array that stood here alive any more, and its id may soon be another one's.
        if tensor.array is not None:
            self._by_identity.pop(id(tensor.array), None)
        tensor.array = self.slots[tensor.index] = array
        if array is not None:
            self._by_identity[id(array)] = tensor

    def provide(self, tensor: MovingTensor) -> None:
        """Give `tensor` fresh memory of its own, at its upper bound. Raises `MemoryAllocationFailed`."""
        # New in each run: whatever the last run wrote belongs to the caller.
        tensor.memory = tensor.first_memory(self.allocate)
        self.place(tensor, tensor.view(tensor.bound))

    def restore_scalars(self) -> None:
        """Undo what a broken-off run did to scalars: a loop's counter is reset only by the loop's last instruction."""
        for index, value in self._initial:
            self.slots[index] = value

    def fixed(self, indices: Sequence[int]) -> bool:
        """Whether all of these values are fixed."""
        return self.varying.isdisjoint(indices)

    def refresher(self, index: int) -> Callable[[], None] | None:
        """A call that brings the varying list `index` up to date, in place; None if it is no such list."""
        record = self.records[index]
        if index not in self.varying or not isinstance(record, LISTS_OF_VALUES):
            return None
        # The list object stays: bound calls hold it.
        items: list[Any] = self.slots[index]
        sources = [(position, source) for position, source in enumerate(record.items) if source >= 0]

        def refresh() -> None:
            for position, source in sources:
                items[position] = self.slots[source]

        return refresh


def gatherer(indices: Sequence[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """A function from all slots to the tuple of those at `indices`; `itemgetter` is the fastest that Python has."""
    if len(indices) > 1:
        return itemgetter(*indices)
    if not indices:
        return lambda slots: ()
    only = indices[0]
    return lambda slots: (slots[only],)
