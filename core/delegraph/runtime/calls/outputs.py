"""The values of a method's outputs after a run -> the arrays that the caller gets: its own, copies, or views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces.device import DeviceTensor
from delegraph.program.schema import ExecutionPlan
from delegraph.runtime.calls.inputs import give_back, lies_as
from delegraph.runtime.values.values import Array, MovingTensor, ValueTable

if TYPE_CHECKING:
    from delegraph.runtime.calls.targets import Targets
    from delegraph.runtime.values.uses import Group

__all__ = ["Outputs"]


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
            index: (group.values, [(values.moving[value], offset) for value, offset in ((index, 0), *group.views)])
            for index, group in lent.items()
        }
        self.moves = bool(self._unplanned or self._lent)
        """Whether a run needs `prepare`."""
        self._handed_over: list[MovingTensor] = []
        """The tensors whose memory the last run allocated; it is the caller's then."""
        self._direct: set[int] = set()
        """The outputs that the last run wrote into the caller's arrays itself."""
        self._fixed: Sequence[Array] | None = None
        """Where they always are; None if that changes, or some are no arrays."""
        if values.fixed(plan.outputs) and len(set(plan.outputs)) == len(plan.outputs):
            fixed = [values.slots[index] for index in plan.outputs]
            self._fixed = fixed if all(type(array) is np.ndarray for array in fixed) else None
        self._copies = [partial(array.copy, "K") for array in self._fixed or ()]

    def prepare(self, own: bool, targets: Targets | None) -> None:
        """Before a run: memory for the outputs that have none of the method's, or leave it for the caller's `own`.

        Raises `MemoryAllocationFailed`.
        """
        self._handed_over.clear()
        self._direct.clear()
        target_of = {} if targets is None else dict(zip(self._indices, targets.arrays, strict=True))
        for tensor in self._unplanned:
            target = target_of.get(tensor.index)
            if target is not None and not tensor.resizable and _can_be(target, tensor):
                # A view: the table knows a tensor by its array, and the caller may pass the same one elsewhere, too.
                self._values.place(tensor, target.view())
                self._direct.add(tensor.index)
            else:
                self._values.provide(tensor)
                self._handed_over.append(tensor)
        for index, (group, tensors) in self._lent.items():
            target, tensor = target_of.get(index), tensors[0][0]
            if target is not None and _can_be(target, tensor):
                self._move(tensors, target.transpose(tensor.dim_order))
                self._direct.add(index)
            elif own and target is None:
                # Written there at once, and handed over: a copy behind the run would cost as much again.
                self._move(tensors, np.empty(tensor.nbytes, np.uint8))
                self._handed_over.append(tensor)
            else:  # a target that lies otherwise gets a copy, and who wants views sees the planned place
                give_back(self._values, group)

    def _move(self, tensors: Iterable[tuple[MovingTensor, int]], memory: Array) -> None:
        for tensor, offset in tensors:
            self._values.place(tensor, tensor.over(memory, offset))

    def deliver(self, targets: Targets) -> None:
        """After a run: copy the outputs that are not in the caller's arrays already. Raises `InvalidArgument`."""
        if self._fixed is not None and targets.take_all:
            for array, output in zip(targets.arrays, self._fixed, strict=True):
                array[...] = output  # type: ignore[index]
            return
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
        """After a run: the outputs, as the caller's `own` arrays or where they are; as often as they are listed."""
        if own and self._fixed is not None:
            return [copy() for copy in self._copies]
        slots = self._values.slots
        # By index, so that an output that is listed twice is one array here as it is one tensor in the model.
        values = {index: slots[index] for index in self._indices}
        if own:
            own_memory = {id(tensor.array) for tensor in self._handed_over}
            values = {index: _own(value, own_memory) for index, value in values.items()}
        return [values[index] for index in self._indices]


def _unplanned(plan: ExecutionPlan, values: ValueTable) -> list[MovingTensor]:
    moving = (values.moving.get(index) for index in dict.fromkeys(plan.outputs) if index not in plan.inputs)
    return [tensor for tensor in moving if tensor is not None and tensor.home is None]


def _can_be(array: Array, tensor: MovingTensor) -> bool:
    """Whether `array` can stand for `tensor`."""
    return array.flags.aligned and lies_as(array, tensor)


def _own(value: object, own_memory: set[int]) -> object:
    """`value`, copied unless it is an array of `own_memory`, by id, which is the caller's already."""
    if isinstance(value, DeviceTensor):
        return value.clone()
    if isinstance(value, list):
        return [_own(item, own_memory) for item in value]
    if not isinstance(value, np.ndarray) or id(value) in own_memory:
        return value
    return value.copy(order="K")
