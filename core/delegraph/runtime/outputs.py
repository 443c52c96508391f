"""What stands for a method's outputs after a run -> what the caller gets: copies, or views of planned memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from delegraph.interfaces.device import DeviceTensor
from delegraph.program.schema import ExecutionPlan
from delegraph.runtime.values import MovingTensor, ValueTable

__all__ = ["Outputs"]


class Outputs:
    """The outputs of one loaded method. Those without planned memory get some for each run, the caller's."""

    def __init__(self, plan: ExecutionPlan, values: ValueTable) -> None:
        self._values = values
        self._indices = plan.outputs
        self._fresh = _unplanned(plan, values)
        self._fixed: Sequence[Any] | None = None
        if values.fixed(plan.outputs) and len(set(plan.outputs)) == len(plan.outputs):
            found = [values.slots[index] for index in plan.outputs]
            self._fixed = found if all(type(one) is np.ndarray for one in found) else None

    def prepare(self) -> None:
        """Before a run: memory for the outputs that have none. Raises `MemoryAllocationFailed`."""
        for tensor in self._fresh:
            self._values.provide(tensor)

    def get(self, clone: bool) -> list[Any]:
        """After a run: the outputs, the caller's own, or else where they are. One that is there twice is so here."""
        if clone and self._fixed is not None:
            return [array.copy("K") for array in self._fixed]
        slots = self._values.slots
        found = {index: slots[index] for index in self._indices}
        if clone:
            given = {id(tensor.memory) for tensor in self._fresh}
            found = {index: _own(value, given) for index, value in found.items()}
        return [found[index] for index in self._indices]


def _unplanned(plan: ExecutionPlan, values: ValueTable) -> list[MovingTensor]:
    moving = (values.moving.get(index) for index in dict.fromkeys(plan.outputs) if index not in plan.inputs)
    return [tensor for tensor in moving if tensor is not None and tensor.memory is None]


def _own(value: Any, given: set[int]) -> Any:
    """`value`, copied unless its memory was given to the caller already."""
    if isinstance(value, DeviceTensor):
        return value.clone()
    if isinstance(value, list):
        return [_own(item, given) for item in value]
    if not isinstance(value, np.ndarray) or id(value.base) in given:
        return value
    return value.copy(order="K")
