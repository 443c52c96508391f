"""The arguments that a caller passes as `out` -> arrays of the outputs' shapes and dtypes, each in its own memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeGuard

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.program.dtypes import numpy_dtype
from delegraph.program.schema import ExecutionPlan, Tensor, TensorShapeDynamism
from delegraph.runtime.calls.inputs import expected_text
from delegraph.runtime.values.tensors import as_array, is_torch_tensor
from delegraph.runtime.values.values import Array, ValueTable

__all__ = ["TargetCheck", "Targets"]


class Targets(NamedTuple):
    """Where outputs go: the caller's arrays or tensors, and the memory of each as an array; None for one of no own.

    One is made in each call, which takes a dataclass three times as long.
    """

    passed: tuple[object, ...]
    arrays: tuple[Array | None, ...]
    take_all: bool
    """Whether every output has one."""


class TargetCheck:
    """A check of arrays that a method's outputs are to be written into; `memory` is the method's own."""

    def __init__(self, plan: ExecutionPlan, values: ValueTable, memory: Sequence[Array]) -> None:
        self._name = plan.name
        self._indices = plan.outputs
        self._values = values
        self._memory = memory
        owners = [_owner(buffer) for buffer in memory]
        self._owners = frozenset(map(id, owners))
        self._static = [] if any(owner is None for owner in owners) else _static_outputs(plan)

    def __call__(self, out: Sequence[object], inputs: Sequence[object]) -> Targets:
        """`out`, an array, tensor or None for each output, if all can be written while `inputs` are read.

        Raises `InvalidArgument` or `InvalidType`.
        """
        if len(out) != len(self._indices):
            raise InvalidArgument(
                f"method {self._name!r} has {len(self._indices)} outputs, and out has {len(out)}; give an array or None"
                " for each"
            )
        if self._fit_at_a_glance(out, inputs):
            static = tuple(out)
            return Targets(static, static, True)
        arrays: list[Array | None] = []
        taken: list[tuple[str, int, Array]] = [("memory of the method's own", -1, buffer) for buffer in self._memory]
        taken += [("input {}", number, as_array(value)) for number, value in enumerate(inputs) if _has_memory(value)]
        for position, (index, target) in enumerate(zip(self._indices, out, strict=True)):
            if target is None:
                arrays.append(None)
                continue
            array = self._target(position, index, target)
            arrays.append(array)
            for what, number, neighbor in taken:
                if np.may_share_memory(array, neighbor) and np.shares_memory(array, neighbor):
                    raise InvalidArgument(
                        f"{self._where(position)} overlaps {what.format(number)}, which is read or written in the same"
                        " run"
                    )
            taken.append(("out[{}]", position, array))
        return Targets(tuple(out), tuple(arrays), all(target is not None for target in out))

    def _fit_at_a_glance(self, out: Sequence[object], inputs: Sequence[object]) -> TypeGuard[Sequence[Array]]:
        """Whether all are static, and arrays whose memory NumPy allocated for each alone.

        Most are, and that shows without a look at addresses, which costs a small model a tenth of its time.
        """
        if len(self._static) != len(out) or (len(out) > 1 and len(set(map(id, out))) < len(out)):
            return False
        for target, (shape, dtype) in zip(out, self._static):  # noqa: B905  (their lengths were compared)
            if (
                type(target) is not np.ndarray
                or target.shape != shape
                or target.dtype is not dtype
                or id(target) in self._owners
            ):
                return False
            flags = target.flags
            if not flags.owndata or not flags.writeable:
                return False
            for argument in inputs:
                if type(argument) is not np.ndarray or argument is target:
                    return False
                if argument.base is not None and np.may_share_memory(target, argument):
                    return False
        return True

    def _target(self, position: int, index: int, target: object) -> Array:
        where, record = self._where(position), self._values.records[index]
        if not isinstance(record, Tensor):
            raise InvalidType(f"{where}: this output is not a tensor; give None for it")
        if not isinstance(target, np.ndarray) and not is_torch_tensor(target):
            raise InvalidType(f"{where}: expected a NumPy array or a torch tensor, got {type(target).__name__}")
        if getattr(target, "requires_grad", False):
            raise InvalidArgument(f"{where} requires a gradient, which nothing here computes; pass tensor.detach()")
        array = as_array(target)
        expected = numpy_dtype(record.scalar_type)
        if array.dtype != expected:
            raise InvalidType(f"{where} is of dtype {array.dtype}, and the output is of {expected}")
        if not array.flags.writeable or (is_torch_tensor(target) and array.ctypes.data != target.data_ptr()):  # type: ignore[attr-defined]
            raise InvalidArgument(f"{where} cannot be written: it is read-only, or a view that is computed when read")
        tensor = self._values.moving.get(index)
        fits = tensor.admits(array.shape) if tensor is not None else array.shape == record.sizes
        if not fits:
            raise InvalidArgument(f"{where} has shape {list(array.shape)}, and the output is {expected_text(record)}")
        return array

    def _where(self, position: int) -> str:
        return f"method {self._name!r}, out[{position}]"


def _static_outputs(plan: ExecutionPlan) -> list[tuple[tuple[int, ...], np.dtype[np.generic]]]:
    """Shape and dtype of each output; none if one is dynamic, or no tensor."""
    records = [plan.values[index] for index in plan.outputs]
    static = [
        (record.sizes, numpy_dtype(record.scalar_type))
        for record in records
        if isinstance(record, Tensor) and record.shape_dynamism is TensorShapeDynamism.STATIC
    ]
    return static if len(static) == len(records) else []


def _owner(array: Array) -> Array | None:
    """The array whose own memory `array` shows; None if that memory is not NumPy's."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array if array.flags.owndata else None


def _has_memory(value: object) -> bool:
    return isinstance(value, np.ndarray) or is_torch_tensor(value)
