"""Instruction -> the tensors that it reads and writes; of a delegate, a file does not say which it writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from delegraph.lazy_dataclass import dataclass
from delegraph.program.kernel_calls import read_tensors, result_tensors, split_arguments
from delegraph.program.prim_op_names import DEVICE_COPIES, ET_COPY_INDEX, ET_VIEW, PRIM_OPS
from delegraph.program.schema import DelegateCall, ExecutionPlan, Instruction, KernelCall, MoveCall
from delegraph.program.walk import operands, tensor_indices

__all__ = ["Access", "access"]


@dataclass(frozen=True, slots=True)
class Access:
    """The tensors that an instruction `reads` and `writes`, by index; lists of them item by item. `delegate` is the one
    that it calls; `view`, the value that becomes a view of the tensor read."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    delegate: int | None = None
    view: int | None = None


def access(plan: ExecutionPlan, instruction: Instruction, num_outputs: Callable[[DelegateCall], int | None]) -> Access:
    """The values that `instruction` of `plan` reads and writes; where that is not known, those that it may.

    `num_outputs` says how many of its last arguments a delegate's call writes, None if that is not known either.
    """
    args, values = operands(instruction), plan.values
    if isinstance(instruction, DelegateCall):
        count = num_outputs(instruction)
        first = len(args) - (1 if count is None else count)
        unsure = () if count is not None else tuple(index for index in args[:first] if index not in plan.inputs)
        writes = _tensors(plan, (*unsure, *args[first:]))
        return Access(_tensors(plan, args[:first]), writes, instruction.delegate_index)
    if isinstance(instruction, MoveCall):
        return Access(_tensors(plan, args[:1]), _tensors(plan, args[1:]))
    if not isinstance(instruction, KernelCall) or not args:
        return Access(_tensors(plan, args), ())
    op = str(plan.operators[instruction.op_index])
    if op == ET_COPY_INDEX:
        return Access(_tensors(plan, args[:2]), _tensors(plan, args[:1]))
    if op in DEVICE_COPIES:
        return Access(_tensors(plan, args[:1]), _tensors(plan, args[1:2]))
    if op in PRIM_OPS:
        return Access(_tensors(plan, args[:-1]), (), view=args[-1] if op == ET_VIEW else None)
    results = tuple(result_tensors(args, values))
    if not results and split_arguments(args, values)[1] is None:
        return Access(_tensors(plan, args), _tensors(plan, args))
    return Access(read_tensors(args, values), results)


def _tensors(plan: ExecutionPlan, indices: Sequence[int]) -> tuple[int, ...]:
    return tuple(tensor_indices(indices, plan.values))
