"""What a caller gives as `out` -> arrays to write outputs into: of their shapes and dtypes, in memory of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

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

    given: tuple[Any, ...]
    arrays: tuple[Array | None, ...]
    take_all: bool
    """Whether every output has one."""


class TargetCheck:
    """What tells whether the outputs of a method can be written somewhere; `memory` is the method's own."""

    def __init__(self, plan: ExecutionPlan, values: ValueTable, memory: Sequence[Array]) -> None:
        self._name = plan.name
        self._indices = plan.outputs
        self._values = values
        self._memory = memory
        owners = [_owner(one) for one in memory]
        self._owners = frozenset(map(id, owners))
        self._static = [] if any(one is None for one in owners) else _static_outputs(plan)

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
            given = tuple(out)
            return Targets(given, given, True)
        arrays: list[Array | None] = []
        taken: list[tuple[str, int, Array]] = [("memory of the method's own", -1, one) for one in self._memory]
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
        return Targets(tuple(out), tuple(arrays), all(one is not None for one in out))

    def _fit_at_a_glance(self, out: Sequence[object], inputs: Sequence[object]) -> TypeGuard[Sequence[Array]]:
        """Whether all are static, and arrays whose memory NumPy allocated for each alone.

        Most are, and that shows without a look at addresses, which costs a small model a tenth of its time.
        """
        if len(self._static) != len(out) or (len(out) > 1 and len(set(map(id, out))) < len(out)):
            return False
        for one, (shape, dtype) in zip(out, self._static):  # noqa: B905  (their lengths were compared)
            if type(one) is not np.ndarray or one.shape != shape or one.dtype is not dtype or id(one) in self._owners:
                return False
            flags = one.flags
            if not flags.owndata or not flags.writeable:
                return False
            for given in inputs:
                if type(given) is not np.ndarray or given is one:
                    return False
                if given.base is not None and np.may_share_memory(one, given):
                    return False
        return True

    def _target(self, position: int, index: int, given: object) -> Array:
        where, record = self._where(position), self._values.records[index]
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

    def _where(self, position: int) -> str:
        return f"method {self._name!r}, out[{position}]"


def _static_outputs(plan: ExecutionPlan) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
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
