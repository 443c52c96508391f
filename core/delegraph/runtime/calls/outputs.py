"""What stands for a method's outputs after a run -> what the caller gets: arrays of its own, copies, or views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces.device import DeviceTensor
from delegraph.program.schema import ExecutionPlan
from delegraph.runtime.calls.inputs import give_back, lies_as
from delegraph.runtime.calls.targets import Targets
from delegraph.runtime.values.borrowing import Group
from delegraph.runtime.values.values import Array, MovingTensor, ValueTable

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
            index: (group.values, [(values.moving[one], offset) for one, offset in ((index, 0), *group.views)])
            for index, group in lent.items()
        }
        self.moves = bool(self._unplanned or self._lent)
        """Whether a run needs `prepare`."""
        self._given: list[MovingTensor] = []
        """What has the memory that the last run made, which is the caller's then."""
        self._direct: set[int] = set()
        """The outputs that the last run wrote into the caller's arrays itself."""
        self._fixed: Sequence[Array] | None = None
        """Where they always are; None if that changes, or some are no arrays."""
        if values.fixed(plan.outputs) and len(set(plan.outputs)) == len(plan.outputs):
            found = [values.slots[index] for index in plan.outputs]
            self._fixed = found if all(type(one) is np.ndarray for one in found) else None
        self._copies = [partial(one.copy, "K") for one in self._fixed or ()]

    def prepare(self, own: bool, targets: Targets | None) -> None:
        """Before a run: memory for the outputs that have none of the method's, or leave it for the caller's `own`.

        Raises `MemoryAllocationFailed`.
        """
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
        if self._fixed is not None and targets.take_all:
            for array, found in zip(targets.arrays, self._fixed, strict=True):
                array[...] = found  # type: ignore[index]
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
        """After a run: the outputs, the caller's `own`, or else where they are. One that is there twice is so here."""
        if own and self._fixed is not None:
            return [copy() for copy in self._copies]
        slots = self._values.slots
        found = {index: slots[index] for index in self._indices}
        if own:
            given = {id(tensor.array) for tensor in self._given}
            found = {index: _own(value, given) for index, value in found.items()}
        return [found[index] for index in self._indices]


def _unplanned(plan: ExecutionPlan, values: ValueTable) -> list[MovingTensor]:
    moving = (values.moving.get(index) for index in dict.fromkeys(plan.outputs) if index not in plan.inputs)
    return [tensor for tensor in moving if tensor is not None and tensor.home is None]


def _can_be(array: Array, tensor: MovingTensor) -> bool:
    """Whether `array` can stand for `tensor`."""
    return array.flags.aligned and lies_as(array, tensor)


def _own(value: Any, given: set[int]) -> Any:
    """`value`, copied unless its memory was given to the caller already."""
    if isinstance(value, DeviceTensor):
        return value.clone()
    if isinstance(value, list):
        return [_own(item, given) for item in value]
    if not isinstance(value, np.ndarray) or id(value) in given:
        return value
    return value.copy(order="K")
