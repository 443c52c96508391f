"""Variants and fall-backs of delegates -> their plans, and the data that those have in common with the program.

A weight of a fall-back whose bytes are among the program's constants is one of these; one whose bytes a backend stored
as named data is read from there. So is the weight of a linear layer that a backend stored turned, as its dim order is
what tells the two apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from delegraph.aot.emission.constant_pool import ConstantPool
from delegraph.aot.emission.instructions import ProgramData
from delegraph.program.alternatives import AlternativeOf
from delegraph.program.buffers import byte_view
from delegraph.program.checks.verify_values import is_external
from delegraph.program.dtypes import nbytes
from delegraph.program.schema import (
    Chain,
    ContainerMetadata,
    DelegateCall,
    ExecutionPlan,
    ExtraTensorInfo,
    IntList,
    KernelCall,
    NamedData,
    OptionalTensorList,
    Tensor,
    TensorDataLocation,
    TensorList,
    Value,
)
from delegraph.program.walk import instructions, kernel_calls, operands

__all__ = ["SharedData", "variant_plan"]

TURN: Final = "aten::permute_copy.out"


def variant_plan(of: AlternativeOf, plan: ExecutionPlan, outputs: int) -> ExecutionPlan:
    """The alternative `of` a delegate of `plan`, with that many outputs, that only calls another one; its record is
    still to come."""
    call = next(
        call for _, call in instructions(plan) if isinstance(call, DelegateCall) and call.delegate_index == of.delegate
    )
    indices = tuple(range(len(call.args)))
    first_output = len(indices) - outputs
    return ExecutionPlan(
        name=of.plan_name,
        values=tuple(_without_place(plan.values[index]) for index in call.args),
        inputs=indices[:first_output],
        outputs=indices[first_output:],
        chains=(Chain((DelegateCall(0, indices),)),),
        container_meta_type=ContainerMetadata(),
    )


def _without_place(value: Value) -> Value:
    """A value of the same kind, which is given at run time."""
    if isinstance(value, Tensor):
        return replace(value, data_buffer_idx=0, allocation_info=None, extra_tensor_info=None)
    return replace(value, items=()) if isinstance(value, (IntList, TensorList, OptionalTensorList)) else value


class SharedData:
    """The data of a program, to which those of fall-backs are added: each content once."""

    def __init__(self, data: ProgramData, named_data: Mapping[str, NamedData]) -> None:
        self._data = data
        self._keys: dict[int, list[str]] = {}
        for key, entry in named_data.items():
            self._keys.setdefault(byte_view(entry.data).nbytes, []).append(key)
        self._named_data = named_data

    def with_data(self, plan: ExecutionPlan, own: ProgramData) -> tuple[Value, ...]:
        """The values of `plan`, whose data are `own`, with their data where the program has them now."""
        for tag, tensors in own.external_constants.items():
            self._data.external_constants.setdefault(tag, {}).update(tensors)
        turned = _only_turned(plan)
        return tuple(self._moved(value, own, index in turned) for index, value in enumerate(plan.values))

    def _moved(self, value: Value, own: ProgramData, in_any_order: bool) -> Value:
        if not isinstance(value, Tensor) or not value.data_buffer_idx or is_external(value):
            return value
        if value.allocation_info is not None:
            index = _at(self._data.mutable_data, own.mutable_data, value.data_buffer_idx)
            return replace(value, data_buffer_idx=index)
        content = byte_view(own.constants.buffers[value.data_buffer_idx])
        key, order = self._key(value, content), value.dim_order
        if key is None and in_any_order:
            key, order = self._key_of_turned(value, content), (1, 0)
        if key is None:
            return replace(value, data_buffer_idx=_at(self._data.constants, own.constants, value.data_buffer_idx))
        stored = ExtraTensorInfo(fully_qualified_name=key, location=TensorDataLocation.EXTERNAL)
        return replace(value, dim_order=order, data_buffer_idx=0, extra_tensor_info=stored)

    def _key(self, tensor: Tensor, content: memoryview) -> str | None:
        """The key of the named data that are the tensor's bytes."""
        if content.nbytes != nbytes(tensor.scalar_type, tensor.sizes):
            return None
        alike = self._keys.get(content.nbytes, ())
        return next((key for key in alike if byte_view(self._named_data[key].data) == content), None)

    def _key_of_turned(self, tensor: Tensor, content: memoryview) -> str | None:
        """The key of the named data that are the bytes of the matrix `tensor` with its columns as rows."""
        rows, columns = tensor.sizes
        turned = np.frombuffer(content, np.uint8).reshape(rows, columns, -1).transpose(1, 0, 2)
        for key in self._keys.get(content.nbytes, ()):
            stored = np.frombuffer(self._named_data[key].data, np.uint8).reshape(turned.shape)
            if np.array_equal(stored[0], turned[0]) and np.array_equal(stored, turned):
                return key
        return None


def _only_turned(plan: ExecutionPlan) -> set[int]:
    """The matrices, rows one behind the other, that nothing reads but calls which turn them: those take any order."""
    read, turned = set[int](), set[int]()
    for _, operator, call in kernel_calls(plan):
        (turned if operator == TURN and call.args[0] not in call.args[1:] else read).update(call.args[:1])
        read.update(call.args[1:])
    read.update(index for _, step in instructions(plan) if not isinstance(step, KernelCall) for index in operands(step))
    read.update(
        item for value in plan.values if isinstance(value, (TensorList, OptionalTensorList)) for item in value.items
    )
    values = plan.values
    return {
        index
        for index in turned - read
        if isinstance(tensor := values[index], Tensor) and tensor.dim_order == (0, 1) and 0 not in tensor.sizes
    }


def _at(pool: ConstantPool, own: ConstantPool, index: int) -> int:
    return pool.add(own.buffers[index])
