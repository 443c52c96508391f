"""A program -> its parts one by one: instructions with their places, calls, operands, delegates, tensors.

All code that counts, checks or plans a program's steps goes through it here; the program's own records are yielded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from delegraph.program.schema import (
    BackendDelegate,
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    OptionalTensorList,
    Program,
    Tensor,
    TensorDataLocation,
    TensorList,
    Value,
)

__all__ = [
    "Place",
    "delegates",
    "external_names",
    "instructions",
    "kernel_calls",
    "operands",
    "tensor_indices",
    "tensors",
]

Place: TypeAlias = tuple[int, int]
"""Where an instruction stands in its plan: (chain, index in the chain)."""


def instructions(plan: ExecutionPlan) -> Iterator[tuple[Place, Instruction]]:
    """Every instruction of `plan`, chain by chain."""
    for chain, record in enumerate(plan.chains):
        for index, instruction in enumerate(record.instructions):
            yield (chain, index), instruction


def kernel_calls(plan: ExecutionPlan) -> Iterator[tuple[Place, str, KernelCall]]:
    """Every call of an operator with the operator's full name; prim ops are called as others are."""
    names = [str(operator) for operator in plan.operators]
    for place, instruction in instructions(plan):
        if isinstance(instruction, KernelCall):
            yield place, names[instruction.op_index], instruction


def operands(instruction: Instruction) -> tuple[int, ...]:
    """The values that `instruction` names, by their index, in the order in which it names them."""
    match instruction:
        case KernelCall(args=args) | DelegateCall(args=args):
            return args
        case MoveCall(move_from=source, move_to=target):
            return (source, target)
        case JumpFalseCall(cond_value_index=index) | FreeCall(value_index=index):
            return (index,)
    return ()  # not an instruction: whoever meets it says so


def tensor_indices(indices: Iterable[int], values: Sequence[Value]) -> Iterator[int]:
    """Those of `indices` that are tensors; for lists of tensors, their items."""
    for index in indices:
        value = values[index]
        if isinstance(value, Tensor):
            yield index
        elif isinstance(value, (TensorList, OptionalTensorList)):
            yield from (item for item in value.items if item >= 0)


def delegates(program: Program) -> Iterator[BackendDelegate]:
    """The delegates of all methods."""
    for plan in program.execution_plan:
        yield from plan.delegates


def tensors(program: Program) -> Iterator[Tensor]:
    """The tensors of all methods."""
    for plan in program.execution_plan:
        yield from (value for value in plan.values if isinstance(value, Tensor))


def external_names(program: Program) -> set[str]:
    """The fully qualified names of the tensors whose data is in a `.ptd`, and not among the program's named data."""
    infos = (tensor.extra_tensor_info for tensor in tensors(program))
    external = (info for info in infos if info is not None and info.location is TensorDataLocation.EXTERNAL)
    return {info.fully_qualified_name or "" for info in external} - program.named_data.keys()
