"""An execution plan -> the kernels that it calls: each operator with the dtypes and dim orders of its tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from delegraph.program.prim_op_names import BUILT_IN
from delegraph.program.schema import (
    Bool,
    Double,
    ExecutionPlan,
    Int,
    ScalarType,
    Tensor,
    TensorList,
    Value,
)
from delegraph.program.walk import kernel_calls, tensor_indices

__all__ = [
    "Arguments",
    "KernelKey",
    "Need",
    "TensorMeta",
    "kernel_key",
    "kernel_key_text",
    "needed_kernels",
    "read_tensors",
    "result_tensors",
    "split_arguments",
]

TensorMeta: TypeAlias = tuple[ScalarType, tuple[int, ...]]
"""The dtype and dim order of one tensor argument."""

KernelKey: TypeAlias = tuple[TensorMeta, ...]
"""One `TensorMeta` per tensor in the schema's arguments (out arguments included), in order."""

Need: TypeAlias = tuple[str, KernelKey]
"""A kernel that a program needs: the operator, and the dtypes and dim orders that it is called with."""

Arguments: TypeAlias = tuple[int, ...]
"""Values by their index."""


def needed_kernels(plan: ExecutionPlan) -> set[Need]:
    """The kernels that libraries have to have for `plan`: all but the runtime's own operators."""
    return {(op, kernel_key(call.args, plan.values)) for _, op, call in kernel_calls(plan) if op not in BUILT_IN}


def kernel_key(args: Arguments, records: Sequence[Value]) -> KernelKey:
    """The dtypes and dim orders of a call's tensor arguments, out arguments included."""
    schema_arguments, _ = split_arguments(args, records)
    tensors = (records[index] for index in schema_arguments)
    return tuple((tensor.scalar_type, tensor.dim_order) for tensor in tensors if isinstance(tensor, Tensor))


def kernel_key_text(key: KernelKey) -> str:
    """ExecuTorch's text of a key: `v1/6;0,1|6;0,1`."""
    return "v1/" + "|".join(f"{int(dtype)};{','.join(map(str, order))}" for dtype, order in key)


def split_arguments(args: Arguments, records: Sequence[Value]) -> tuple[Arguments, int | None]:
    """A kernel call's schema arguments, and the value that takes its result if that is a scalar.

    A call ends with its return slot: the out tensor once more, a list of the out tensors, or a scalar of its own.
    """
    if not args:
        return (), None
    *schema_arguments, last = args
    if last in schema_arguments or isinstance(records[last], TensorList):
        return tuple(schema_arguments), None
    if isinstance(records[last], Int | Bool | Double):
        return tuple(schema_arguments), last
    return args, None


def result_tensors(args: Arguments, records: Sequence[Value]) -> Iterator[int]:
    """The tensors that a kernel call names as its results, which its return slot repeats."""
    if args and (args[-1] in args[:-1] or isinstance(records[args[-1]], TensorList)):
        yield from tensor_indices(args[-1:], records)


def read_tensors(args: Arguments, records: Sequence[Value]) -> tuple[int, ...]:
    """The tensors that a kernel call reads: those before its out tensors, which stand last, before the return slot.

    A call in place names a tensor twice, to read and to write.
    """
    results = list(result_tensors(args, records))
    last = len(args) - 1
    while last > 0 and (outs := list(tensor_indices(args[last - 1 : last], records))) and results[-len(outs) :] == outs:
        del results[-len(outs) :]
        last -= 1
    return tuple(tensor_indices(args[:last], records))
