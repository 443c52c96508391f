"""A delegate's blob and its arguments -> a `.pte` that calls it once, in memory that the caller hands in.

    values      0   a tensor for each argument, input or output, in the delegate's order: an input of the method
                …   an integer argument comes as a tensor of one element, and is read from it
    inputs      all of those
    chain       _local_scalar_dense for each integer; the delegate; sym_size for each dim that may change
    outputs     these sizes

The delegate's outputs are inputs of the method, since ExecuTorch's Python bindings let a caller give the memory of
inputs alone. So what the delegate writes lands where the caller wants it, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from delegraph.program import ScalarType, serialize_program
from delegraph.program.schema import (
    BackendDelegate,
    Bool,
    Buffer,
    Chain,
    CompileSpec,
    DelegateCall,
    Double,
    ExecutionPlan,
    Instruction,
    Int,
    KernelCall,
    NamedData,
    Null,
    Operator,
    Program,
    String,
    Tensor,
    TensorShapeDynamism,
    Value,
)

__all__ = ["Integer", "Parameter", "TensorParameter", "wrapped"]


@dataclass(frozen=True, slots=True)
class TensorParameter:
    """A tensor argument: its element type, the largest shape that it gets, and its dims from outer to inner."""

    scalar_type: ScalarType
    bound: tuple[int, ...]
    dim_order: tuple[int, ...]
    dynamic: bool = False


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer argument, which differs from call to call."""


Parameter: TypeAlias = TensorParameter | Integer | bool | float | str | None
"""An argument as far as the program depends on it; what is no tensor and no integer stands in the program itself."""

_READ_INTEGER = Operator("aten::_local_scalar_dense")
_READ_SIZE = Operator("aten::sym_size", "int")
_SCALAR = Tensor(ScalarType.LONG, (), ())


def wrapped(
    backend_id: str,
    blob: Buffer,
    specs: Sequence[CompileSpec],
    parameters: Sequence[Parameter],
    named_data: Mapping[str, Buffer],
) -> bytes:
    """The program; its method "forward" takes every tensor and integer argument, and gives the sizes of the tensors
    that are dynamic, one dim after the other."""
    method = _MethodBuilder()
    arguments = [method.argument(parameter) for parameter in parameters]
    method.instructions.append(DelegateCall(0, tuple(arguments)))
    for index, parameter in zip(arguments, parameters, strict=True):
        if isinstance(parameter, TensorParameter) and parameter.dynamic:
            method.tell_sizes(index, len(parameter.bound))
    plan = ExecutionPlan(
        "forward",
        tuple(method.values),
        tuple(method.inputs),
        tuple(method.outputs),
        (Chain(tuple(method.instructions)),),
        (_READ_INTEGER, _READ_SIZE),
        (BackendDelegate(backend_id, 0, tuple(specs)),),
    )
    data = {key: NamedData(content, _ALIGNMENT) for key, content in _needed(named_data, blob).items()}
    return serialize_program(Program(execution_plan=(plan,), delegate_data=(blob,), named_data=data))


_ALIGNMENT = 64
"""Of named data, in bytes: no less than a backend asks for (XNNPACK's kernels read 64 at a time)."""


def _needed(named_data: Mapping[str, Buffer], blob: Buffer) -> Mapping[str, Buffer]:
    """What the blob names; all of it where it names nothing, since its backend may compute the keys."""
    content = bytes(blob)
    needed = {key: data for key, data in named_data.items() if key.encode() in content}
    return needed or named_data


@dataclass(slots=True)
class _MethodBuilder:
    """The method under construction."""

    values: list[Value] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)

    def argument(self, parameter: Parameter) -> int:
        """The value that the delegate gets."""
        if isinstance(parameter, TensorParameter):
            return self._input(_tensor(parameter))
        if isinstance(parameter, Integer):
            source, value = self._input(_SCALAR), self._value(Int(0))
            self.instructions.append(KernelCall(0, (source, value)))
            return value
        return self._value(_constant(parameter))

    def tell_sizes(self, tensor: int, rank: int) -> None:
        for dim in range(rank):
            size, position = self._value(Int(0)), self._value(Int(dim))
            self.instructions.append(KernelCall(1, (tensor, position, size)))
            self.outputs.append(size)

    def _input(self, value: Value) -> int:
        index = self._value(value)
        self.inputs.append(index)
        return index

    def _value(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1


def _tensor(parameter: TensorParameter) -> Tensor:
    dynamism = TensorShapeDynamism.DYNAMIC_BOUND if parameter.dynamic else TensorShapeDynamism.STATIC
    return Tensor(parameter.scalar_type, parameter.bound, parameter.dim_order, shape_dynamism=dynamism)


def _constant(value: bool | float | str | None) -> Value:
    if value is None:
        return Null()
    if isinstance(value, bool):
        return Bool(value)
    return String(value) if isinstance(value, str) else Double(value)
