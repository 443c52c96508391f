"""Instruction -> nothing, or `InvalidProgram`: it writes a value of the right kind, in memory of the method's own.

No instruction writes into a constant, which all methods and loads of a file share, or turns a value into one of
another kind, which others rely on. An input without planned memory is the caller's own array: only a kernel that names
it as its result writes there, as for a model that changes its argument; all others see it read-only.

Of the arguments that a delegate's call writes, the file names only the last; its backend says how many there are
(`BackendInterface.num_outputs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from delegraph.errors import InvalidProgram
from delegraph.program.checks.verify_values import is_stored
from delegraph.program.dtypes import dtype_info
from delegraph.program.kernel_calls import Arguments, result_tensors
from delegraph.program.prim_op_names import ET_COPY_INDEX, ET_VIEW, PRIM_OPS
from delegraph.program.schema import (
    Bool,
    DelegateCall,
    Double,
    ExecutionPlan,
    Instruction,
    Int,
    KernelCall,
    MoveCall,
    Tensor,
    Value,
)
from delegraph.program.walk import kernel_calls
from delegraph.runtime.values.values import LISTS_OF_VALUES

__all__ = ["WriteCheck", "changed_inputs", "unplanned_inputs"]


def unplanned_inputs(plan: ExecutionPlan) -> frozenset[int]:
    """The tensors among the inputs that have no planned memory: the caller's own arrays stand for them."""
    records = ((index, plan.values[index]) for index in plan.inputs)
    return frozenset(i for i, record in records if isinstance(record, Tensor) and record.allocation_info is None)


def changed_inputs(plan: ExecutionPlan) -> frozenset[int]:
    """The unplanned inputs that a kernel names as its result: the model changes them, and the caller sees it."""
    own = unplanned_inputs(plan)
    if not own:
        return own
    return own & {index for _, _, call in kernel_calls(plan) for index in result_tensors(call.args, plan.values)}


class WriteCheck:
    """Checks the instructions of one plan: raises `InvalidProgram` that says which value is written, and why not."""

    def __init__(self, plan: ExecutionPlan) -> None:
        self._values = plan.values
        self._op_names = [str(operator) for operator in plan.operators]
        self._callers = unplanned_inputs(plan)

    def __call__(self, instruction: Instruction, num_outputs: int | None = None) -> None:
        """`num_outputs` says how many of a delegate's last arguments its backend writes, None: that is not known."""
        if isinstance(instruction, KernelCall):
            self._kernel_call(self._op_names[instruction.op_index], instruction.args)
        elif isinstance(instruction, DelegateCall):
            self._delegate_call(instruction.args, num_outputs)
        elif isinstance(instruction, MoveCall):
            self._move_call(instruction)

    def _require_own_tensor(self, index: int) -> None:
        value = self._values[index]
        if not isinstance(value, Tensor):
            raise InvalidProgram(f"it writes value {index}, a {type(value).__name__}, where it gives a tensor")
        # Planned and stored is a buffer with initial data, which the model may change.
        if value.allocation_info is None and is_stored(value):
            raise InvalidProgram(f"it writes value {index}, which is a constant")

    def _require_not_the_callers(self, index: int) -> None:
        if index in self._callers:
            raise InvalidProgram(f"it writes value {index}, an input without planned memory, which is the caller's")

    def _kernel_call(self, op: str, args: Arguments) -> None:
        if op == ET_COPY_INDEX:
            for index in args[:1] if len(args) > 2 else ():
                self._require_own_tensor(index)
        elif op == ET_VIEW:
            for index in args[2:]:
                self._require_own_tensor(index)
        elif op in PRIM_OPS:
            self._scalar_op(op, args)
        else:
            for index in result_tensors(args, self._values):
                self._require_own_tensor(index)

    def _scalar_op(self, op: str, args: Sequence[int]) -> None:
        if not args:
            return
        expected = _RESULT_KINDS[op]([self._values[index] for index in args[:-1]])
        kind = type(self._values[args[-1]])
        if expected is not None and kind is not expected:
            raise InvalidProgram(f"it writes value {args[-1]}, a {kind.__name__}, where it gives a {expected.__name__}")

    def _delegate_call(self, args: Sequence[int], num_outputs: int | None) -> None:
        """Outputs stand last. If the backend does not say how many there are, only the last argument is known."""
        if num_outputs is not None and num_outputs > len(args):
            raise InvalidProgram(f"the delegate has {num_outputs} outputs, and is called with {len(args)} values")
        for index in args[len(args) - (1 if num_outputs is None else num_outputs) :]:
            self._require_own_tensor(index)
            self._require_not_the_callers(index)

    def _move_call(self, call: MoveCall) -> None:
        source, target = self._values[call.move_from], self._values[call.move_to]
        if type(source) is not type(target) or isinstance(target, LISTS_OF_VALUES):
            raise InvalidProgram(f"a {type(source).__name__} is moved to a {type(target).__name__}")
        if isinstance(source, Tensor) and isinstance(target, Tensor):
            if source.scalar_type is not target.scalar_type:
                raise InvalidProgram(
                    f"a {source.scalar_type.name} tensor is moved to a {target.scalar_type.name} tensor"
                )
            self._require_own_tensor(call.move_to)
            self._require_not_the_callers(call.move_to)


# ---- kinds of scalar operators' results --------------------------------------------------------------

ResultKind: TypeAlias = Callable[[Sequence[Value]], "type[object] | None"]
"""The kind of a call's result, by its arguments; None for arguments that the operator refuses when it runs."""


def _always(kind: type[object]) -> ResultKind:
    return lambda operands: kind


def _as_numbers(operands: Sequence[Value]) -> type[object] | None:
    """A Double if one of them is."""
    kinds = set(map(type, operands))
    if not kinds or not kinds <= {Int, Double}:
        return None
    return Double if Double in kinds else Int


def _as_element(operands: Sequence[Value]) -> type[object] | None:
    """Of the only element of a tensor."""
    if not operands or not isinstance(operands[0], Tensor):
        return None
    name = dtype_info(operands[0].scalar_type).name
    return Bool if name == "bool" else Double if name.startswith(("float", "bfloat")) else Int


def _as_branches(operands: Sequence[Value]) -> type[object] | None:
    """Of `sym_ite`: the kind of both of its values; if they differ, or are no scalars, no kind that has a place."""
    kinds = set(map(type, operands[1:]))
    return kinds.pop() if len(kinds) == 1 and kinds <= {Int, Double, Bool} else type(None)


_GIVES: Final[tuple[tuple[ResultKind, tuple[str, ...]], ...]] = (
    (_always(Int), ("mod", "ceil", "round", "trunc", "sym_int", "sym_max", "sym_min")),
    (_always(Bool), ("eq", "gt", "lt", "ge", "le", "sym_not")),
    (_always(Double), ("truediv", "sym_float")),
    (_as_numbers, ("add", "sub", "mul", "floordiv", "neg")),
    (_as_branches, ("sym_ite",)),
)

_RESULT_KINDS: Final[dict[str, ResultKind]] = {
    "aten::sym_size.int": _always(Int),
    "aten::sym_numel": _always(Int),
    "aten::_local_scalar_dense": _as_element,
    "executorch_prim::floordiv.int": _always(Int),
    "executorch_prim::mod.int": _always(Int),
    **{f"executorch_prim::{name}.Scalar": kind for kind, names in _GIVES for name in names},
}
