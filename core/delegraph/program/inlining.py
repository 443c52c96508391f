"""A method's plan, alternatives of some of its delegates -> the plan with those in the delegates' place.

    forward                              alternative of delegate 0          forward with it
      0: aten::mul.out(%0, %1, %2, %2)     inputs %0                          0: aten::mul.out(%0, %1, %2, %2)
      1: delegate 0(%2, %3)                outputs %1                         1: aten::sin.out(%2, %6, %6)
      2: aten::exp.out(%3, %4, %4)         0: aten::sin.out(%0, %2, %2)       2: aten::cos.out(%6, %3, %3)
                                           1: aten::cos.out(%2, %1, %1)       3: aten::exp.out(%3, %4, %4)

Whatever runs a method runs the result: its limits, memory, checks and tracing know of nothing else. Memory 1 of an
alternative is scratch, one for all that are put into a plan, as they run one behind the other; its further memories
keep state, and stay its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import add
from types import MappingProxyType
from typing import Final, TypeAlias

from delegraph.lazy_dataclass import dataclass, replace
from delegraph.program.schema import (
    BackendDelegate,
    Chain,
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    Instruction,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Operator,
    OptionalTensorList,
    Tensor,
    TensorList,
    Value,
)
from delegraph.program.walk import Place

__all__ = ["Origin", "inlined"]

SCRATCH: Final = 1
"""The memory of an alternative in which nothing lasts from run to run."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an instruction comes from: its place in the method, and, of one that stands for a call of a delegate, which
    is at that place, that delegate and the instruction's index in the alternative."""

    place: Place
    delegate: int | None = None
    step: int = 0


def inlined(plan: ExecutionPlan, chosen: Mapping[int, ExecutionPlan]) -> tuple[ExecutionPlan, Mapping[Place, Origin]]:
    """`plan` with `chosen` in the place of its delegates of these indices, and where each instruction comes from.

    All are of one program that passed `verify_program`, as the result would.
    """
    parts = _Parts(plan)
    scratch = parts.scratch(chosen.values())
    insets, kept = dict[int, _Inset](), dict[int, int]()
    for index, record in enumerate(plan.delegates):  # in order: of variants alone each keeps its number
        if index in chosen:
            insets[index] = _Inset(parts, chosen[index], scratch)
        else:
            kept[index] = parts.delegate(record)
    chains, origins = [], dict[Place, Origin]()
    for number, chain in enumerate(plan.chains):
        steps = [_steps(instruction, insets, kept) for instruction in chain.instructions]
        chains.append(_chain(chain, steps))
        of_each = (
            Origin((number, index), delegate, step)
            for index, (delegate, own) in enumerate(steps)
            for step in range(len(own))
        )
        origins |= {(number, index): origin for index, origin in enumerate(of_each)}
    return parts.plan(plan, chains), MappingProxyType(origins)


_Steps: TypeAlias = "tuple[int | None, Sequence[Instruction]]"
"""The instructions that stand in the place of one of the method, and the delegate whose alternative they are."""


def _steps(instruction: Instruction, insets: Mapping[int, _Inset], kept: Mapping[int, int]) -> _Steps:
    if not isinstance(instruction, DelegateCall):
        return None, (instruction,)
    index = instruction.delegate_index
    if index in insets:
        return index, insets[index].steps(instruction.args)
    return None, (replace(instruction, delegate_index=kept[index]),)


def _chain(chain: Chain, steps: Sequence[_Steps]) -> Chain:
    """`chain` of `steps`, whose jumps land where they did: an alternative's count from its own first instruction."""
    starts = [0, *accumulate(len(own) for _, own in steps)]
    instructions = [
        _landing(instruction, starts.__getitem__ if delegate is None else partial(add, start))
        for start, (delegate, own) in zip(starts, steps, strict=False)
        for instruction in own
    ]
    frames = chain.stacktrace and tuple(
        frames for frames, (_, own) in zip(chain.stacktrace, steps, strict=True) for _ in own
    )
    return replace(chain, instructions=tuple(instructions), stacktrace=frames)


def _landing(instruction: Instruction, at: Callable[[int], int]) -> Instruction:
    if not isinstance(instruction, JumpFalseCall):
        return instruction
    return replace(instruction, destination_instruction=at(instruction.destination_instruction))


class _Parts:
    """The parts of a plan, to which those of alternatives are appended."""

    def __init__(self, plan: ExecutionPlan) -> None:
        self.values = list(plan.values)
        self.operators = list(plan.operators)
        self._operators = {operator: index for index, operator in enumerate(plan.operators)}
        self.delegates: list[BackendDelegate] = []
        self.sizes = list(plan.non_const_buffer_sizes)

    def plan(self, plan: ExecutionPlan, chains: Sequence[Chain]) -> ExecutionPlan:
        """`plan` of these parts."""
        return replace(
            plan,
            values=tuple(self.values),
            chains=tuple(chains),
            operators=tuple(self.operators),
            delegates=tuple(self.delegates),
            non_const_buffer_sizes=tuple(self.sizes),
        )

    def take(
        self, values: Mapping[int, Value], known: Mapping[int, int], memories: Mapping[int, int]
    ) -> dict[int, int]:
        """Append `values`, which are by their index in an alternative; all indices that are `known` now."""
        indices = {**known, **{index: new for new, index in enumerate(values, len(self.values))}}
        self.values += [_moved(value, indices, memories) for value in values.values()]
        return indices

    def operator(self, operator: Operator) -> int:
        """The index of an operator, new or not."""
        index = self._operators.setdefault(operator, len(self.operators))
        if index == len(self.operators):
            self.operators.append(operator)
        return index

    def delegate(self, record: BackendDelegate) -> int:
        """The index of a new delegate."""
        self.delegates.append(record)
        return len(self.delegates) - 1

    def memory(self, size: int) -> int:
        """The id of a new memory."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def scratch(self, alternatives: Iterable[ExecutionPlan]) -> int:
        """The id of a new memory for the scratch of any of these; 0 if none has tensors there."""
        using = [plan for plan in alternatives if any(_memory_id(value) == SCRATCH for value in plan.values)]
        return self.memory(max(plan.non_const_buffer_sizes[SCRATCH] for plan in using)) if using else 0


class _Inset:
    """An alternative, whose parts are appended to `parts`: once, however often its delegate is called, but for lists
    that its inputs and outputs are in."""

    def __init__(self, parts: _Parts, plan: ExecutionPlan, scratch: int) -> None:
        self._parts, self._alternative = parts, plan
        (self._chain,) = plan.chains
        sizes = plan.non_const_buffer_sizes[SCRATCH + 1 :]
        memories = {SCRATCH: scratch, **{i: parts.memory(size) for i, size in enumerate(sizes, SCRATCH + 1)}}
        self._operators = [parts.operator(operator) for operator in plan.operators]
        self._delegates = [parts.delegate(record) for record in plan.delegates]
        borders = {*plan.inputs, *plan.outputs}
        inner = {index: value for index, value in enumerate(plan.values) if index not in borders}
        self._of_each_call = {i: value for i, value in inner.items() if not borders.isdisjoint(_items(value))}
        once = {index: value for index, value in inner.items() if index not in self._of_each_call}
        self._values = parts.take(once, {}, memories)

    def steps(self, args: Sequence[int]) -> list[Instruction]:
        """The instructions that stand for a call of the delegate on these values."""
        plan = self._alternative
        known = {**self._values, **dict(zip((*plan.inputs, *plan.outputs), args, strict=True))}
        values = self._parts.take(self._of_each_call, known, {})
        return [self._step(instruction, values) for instruction in self._chain.instructions]

    def _step(self, instruction: Instruction, values: Mapping[int, int]) -> Instruction:
        match instruction:
            case KernelCall(op_index=index, args=args):
                return KernelCall(self._operators[index], tuple(map(values.__getitem__, args)))
            case DelegateCall(delegate_index=index, args=args):
                return DelegateCall(self._delegates[index], tuple(map(values.__getitem__, args)))
            case MoveCall(move_from=source, move_to=target):
                return MoveCall(values[source], values[target])
            case JumpFalseCall(cond_value_index=index):
                return replace(instruction, cond_value_index=values[index])
            case FreeCall(value_index=index):
                return FreeCall(values[index])


def _memory_id(value: Value) -> int:
    return value.allocation_info.memory_id if isinstance(value, Tensor) and value.allocation_info is not None else 0


def _items(value: Value) -> tuple[int, ...]:
    """The values that a list refers to."""
    return value.items if isinstance(value, (IntList, TensorList, OptionalTensorList)) else ()


def _moved(value: Value, values: Mapping[int, int], memories: Mapping[int, int]) -> Value:
    """`value` where its items are `values` and its memory is one of `memories`."""
    if isinstance(value, (IntList, TensorList, OptionalTensorList)):
        return replace(value, items=tuple(values[item] if item >= 0 else item for item in value.items))
    if isinstance(value, Tensor) and value.allocation_info is not None:
        place = value.allocation_info
        return replace(value, allocation_info=replace(place, memory_id=memories[place.memory_id]))
    return value
