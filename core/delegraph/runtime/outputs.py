"""What stands for a method's outputs after a run -> what the caller gets: arrays of its own, copies, or views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces.device import DeviceTensor
from delegraph.program.dtypes import numpy_dtype
from delegraph.program.schema import ExecutionPlan, Tensor
from delegraph.runtime.borrowing import Group
from delegraph.runtime.inputs import expected_text, give_back, lies_as
from delegraph.runtime.tensors import as_array, is_torch_tensor
from delegraph.runtime.values import Array, MovingTensor, ValueTable

__all__ = ["Outputs", "Targets"]


@dataclass(frozen=True, slots=True)
class Targets:
    """Where outputs go: the caller's arrays or tensors, and the memory of each as an array; None for one of no own."""

    given: tuple[Any, ...]
    arrays: tuple[Array | None, ...]

    @property
    def take_all(self) -> bool:
        """Whether every output has one."""
        return all(one is not None for one in self.given)


class Outputs:
    """The outputs of one loaded method.

    Those without planned memory get memory for each run, which is the caller's then. So do those that are `lent`, by
    their index: they leave their planned place, where they are not copied from.
    """

    def __init__(self, plan: ExecutionPlan, values: ValueTable, lent: Mapping[int, Group]) -> None:
        self._name = plan.name
        self._values = values
        self._indices = plan.outputs
        self._unplanned = _unplanned(plan, values)
        self._lent = {
            index: (group.values, [(values.moving[one], offset) for one, offset in ((index, 0), *group.views)])
            for index, group in lent.items()
        }
        self._moves = bool(self._unplanned or self._lent)
        self._given: list[MovingTensor] = []
        """What has the memory that the last run made, which is the caller's then."""
        self._direct: set[int] = set()
        """The outputs that the last run wrote into the caller's arrays itself."""
        self._fixed: Sequence[Any] | None = None
        if values.fixed(plan.outputs) and len(set(plan.outputs)) == len(plan.outputs):
            found = [values.slots[index] for index in plan.outputs]
            self._fixed = found if all(type(one) is np.ndarray for one in found) else None

    def prepare(self, own: bool, targets: Targets | None) -> None:
        """Before a run: memory for the outputs that have none of the method's, or leave it for the caller's `own`.

        Raises `MemoryAllocationFailed`.
        """
        if not self._moves:
            return
        self._given.clear()
        self._direct.clear()
        wanted = {} if targets is None else dict(zip(self._indices, targets.arrays, strict=True))
        for tensor in self._unplanned:
            target = wanted.get(tensor.index)
            if target is not None and not tensor.resizable and _can_be(target, tensor):
                self._values.place(tensor, target.view())
                self._direct.add(tensor.index)
            else:
                self._values.provide(tensor)
                self._given.append(tensor)
        for index, (group, tensors) in self._lent.items():
            target, tensor = wanted.get(index), tensors[0][0]
            if target is not None and _can_be(target, tensor):
                self._move(tensors, target.transpose(tensor.dim_order))
                self._direct.add(index)
            elif own and target is None:
                self._move(tensors, np.empty(tensor.nbytes, np.uint8))
                self._given.append(tensor)
            else:
                give_back(self._values, group)

    def _move(self, tensors: Iterable[tuple[MovingTensor, int]], memory: Array) -> None:
        for tensor, offset in tensors:
            self._values.place(tensor, tensor.over(memory, offset))

    def deliver(self, targets: Targets) -> None:
        """After a run: copy what was not written into the caller's arrays itself. Raises `InvalidArgument`."""
        for position, (index, target) in enumerate(zip(self._indices, targets.arrays, strict=True)):
            if target is None or index in self._direct:
                continue
            value = self._values.slots[index]
            if value.shape != target.shape:
                raise InvalidArgument(
                    f"method {self._name!r}: output {position} is of shape {list(value.shape)} in this run, and out"
                    f" has shape {list(target.shape)}"
                )
            target[...] = value.numpy() if isinstance(value, DeviceTensor) else value

    def get(self, own: bool) -> list[Any]:
        """After a run: the outputs, the caller's `own`, or else where they are. One that is there twice is so here."""
        if own and self._fixed is not None:
            return [array.copy("K") for array in self._fixed]
        slots = self._values.slots
        found = {index: slots[index] for index in self._indices}
        if own:
            given = {id(tensor.array) for tensor in self._given}
            found = {index: _own(value, given) for index, value in found.items()}
        return [found[index] for index in self._indices]

    # ---- into the caller's arrays ----------------------------------------------------------------------

    def targets(self, out: Sequence[object], inputs: Iterable[object], memory: Iterable[Array]) -> Targets:
        """`out`, an array, tensor or None for each output, if all can be written; `memory` is the method's own.

        Raises `InvalidArgument` or `InvalidType`.
        """
        if len(out) != len(self._indices):
            raise InvalidArgument(
                f"method {self._name!r} has {len(self._indices)} outputs, and out has {len(out)}; give an array or None"
                " for each"
            )
        arrays: list[Array | None] = []
        taken: list[tuple[str, int, Array]] = [("memory of the method's own", -1, one) for one in memory]
        taken += [("input {}", number, as_array(one)) for number, one in enumerate(inputs) if _has_memory(one)]
        for position, (index, one) in enumerate(zip(self._indices, out, strict=True)):
            if one is None:
                arrays.append(None)
                continue
            array = self._target(position, index, one)
            arrays.append(array)
            for what, number, other in taken:
                if np.may_share_memory(array, other) and np.shares_memory(array, other):
                    raise InvalidArgument(
                        f"{self._where(position)} overlaps {what.format(number)}, which is read or written in the same"
                        " run"
                    )
            taken.append(("out[{}]", position, array))
        return Targets(tuple(out), tuple(arrays))

    def _where(self, position: int) -> str:
        return f"method {self._name!r}, out[{position}]"

    def _is_as_expected(self, array: Array, record: object) -> bool:
        """Whether it can be seen at a glance that a static output fits, as with most."""
        return (
            isinstance(record, Tensor)
            and array.shape == record.sizes
            and array.dtype == numpy_dtype(record.scalar_type)
            and array.flags.writeable
        )

    def _target(self, position: int, index: int, given: object) -> Array:
        record = self._values.records[index]
        if type(given) is np.ndarray and self._is_as_expected(given, record):
            return given
        where = self._where(position)
        if not isinstance(record, Tensor):
            raise InvalidType(f"{where}: this output is not a tensor; give None for it")
        if not isinstance(given, np.ndarray) and not is_torch_tensor(given):
            raise InvalidType(f"{where}: expected a NumPy array or a torch tensor, got {type(given).__name__}")
        if getattr(given, "requires_grad", False):
            raise InvalidArgument(f"{where} requires a gradient, which nothing here computes; pass tensor.detach()")
        array = as_array(given)
        expected = numpy_dtype(record.scalar_type)
        if array.dtype != expected:
            raise InvalidType(f"{where} is of dtype {array.dtype}, and the output is of {expected}")
        if not array.flags.writeable or (is_torch_tensor(given) and array.ctypes.data != given.data_ptr()):  # type: ignore[attr-defined]
            raise InvalidArgument(f"{where} cannot be written: it is read-only, or a view that is computed when read")
        tensor = self._values.moving.get(index)
        fits = tensor.admits(array.shape) if tensor is not None else array.shape == record.sizes
        if not fits:
            raise InvalidArgument(f"{where} has shape {list(array.shape)}, and the output is {expected_text(record)}")
        return array


def _unplanned(plan: ExecutionPlan, values: ValueTable) -> list[MovingTensor]:
    moving = (values.moving.get(index) for index in dict.fromkeys(plan.outputs) if index not in plan.inputs)
    return [tensor for tensor in moving if tensor is not None and tensor.home is None]


def _can_be(array: Array, tensor: MovingTensor) -> bool:
    """Whether `array` can stand for `tensor`."""
    return array.flags.aligned and lies_as(array, tensor)


def _has_memory(value: object) -> bool:
    return isinstance(value, np.ndarray) or is_torch_tensor(value)


def _own(value: Any, given: set[int]) -> Any:
    """`value`, copied unless its memory was given to the caller already."""
    if isinstance(value, DeviceTensor):
        return value.clone()
    if isinstance(value, list):
        return [_own(item, given) for item in value]
    if not isinstance(value, np.ndarray) or id(value) in given:
        return value
    return value.copy(order="K")
