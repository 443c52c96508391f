"""Instructions, and which delegates are submitted -> an order in which these run beside each other and kernels.

    a = kernel(x)              a = kernel(x)
    b = delegate 0(a)          submit delegate 0           waits for nothing
    c = kernel(b)              d = kernel(x)               does not touch b: runs ahead of c
    d = kernel(x)      ->      submit delegate 1           both are at work
    e = delegate 1(d)          wait for delegate 0
    f = kernel(c, e)           c = kernel(b)
                               wait for delegate 1
                               f = kernel(c, e)

Two instructions keep their order where one writes what the other touches: a byte of planned memory, a scalar, a
delegate's handle or state, or what is behind an operator that is not a pure function. Ahead of time tensors have no
places yet, so a tensor's own bytes stand for them; the plan of memory is then made for this order. At load places are
what counts, whoever planned them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from delegraph.lazy_dataclass import dataclass
from delegraph.program.kernel_calls import split_arguments
from delegraph.program.memory.accesses import access
from delegraph.program.prim_op_names import BUILT_IN, ET_VIEW, PRIM_OPS
from delegraph.program.schema import (
    DelegateCall,
    ExecutionPlan,
    Instruction,
    IntList,
    KernelCall,
    MoveCall,
    Tensor,
)
from delegraph.program.steps import Step, StepKind
from delegraph.program.walk import operands, tensor_indices

__all__ = ["DRAWN", "Footprint", "Touched", "footprints", "overlapped"]

Touched: TypeAlias = tuple[object, float, float]
"""A space (a memory's id, a tensor, a kind of thing), and from where to where in it."""

WINDOW: Final = 64
"""So many instructions that have to wait are kept aside at a time, before the first of them is waited for."""

_EFFECTS: Final[Touched] = ("effects", 0, 1)

DRAWN: Final = frozenset(
    {
        *("_fused_dropout", "_sample_dirichlet", "_standard_gamma", "alpha_dropout", "alpha_dropout_", "bernoulli"),
        *("bernoulli_", "binomial", "cauchy", "cauchy_", "dropout", "dropout_", "exponential", "exponential_"),
        *("feature_alpha_dropout", "feature_alpha_dropout_", "feature_dropout", "feature_dropout_", "geometric"),
        *("geometric_", "log_normal", "log_normal_", "multinomial", "native_dropout", "normal", "normal_"),
        *("normal_functional", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like"),
        *("random", "random_", "randperm", "rrelu", "rrelu_", "rrelu_with_noise", "rrelu_with_noise_"),
        *("rrelu_with_noise_functional", "uniform", "uniform_"),
    }
)
"""The operators of torch whose results are drawn from a generator, which each call moves on."""

_PURE_NAMESPACES: Final = frozenset({"aten", "dim_order_ops", "quantized_decomposed"})


@dataclass(frozen=True, slots=True)
class Footprint:
    """The parts of memory, and of all else, that an instruction reads and writes."""

    reads: tuple[Touched, ...]
    writes: tuple[Touched, ...]

    def conflicts(self, other: Footprint) -> bool:
        """Whether the two have to keep their order."""
        return _meet(self.writes, other.writes) or _meet(self.writes, other.reads) or _meet(self.reads, other.writes)


def _meet(these: Iterable[Touched], those: Sequence[Touched]) -> bool:
    return any(
        space == other and start < other_end and other_start < end
        for space, start, end in these
        for other, other_start, other_end in those
    )


# ---- what an instruction touches -------------------------------------------------------------------


def footprints(
    plan: ExecutionPlan,
    instructions: Sequence[Instruction],
    place: Callable[[int], Touched | None],
    num_outputs: Callable[[DelegateCall], int | None],
    states: Mapping[int, Collection[str]],
) -> list[Footprint]:
    """The footprint of each of `instructions`, all of a chain of `plan`.

    `place` says where a tensor's bytes lie, None: in memory of its own, or the caller's. `states` are the mutable
    buffers that delegates keep, by name, which others may share.
    """
    of = _Footprints(plan, place, num_outputs, states)
    return [of(instruction) for instruction in instructions]


class _Footprints:
    def __init__(
        self,
        plan: ExecutionPlan,
        place: Callable[[int], Touched | None],
        num_outputs: Callable[[DelegateCall], int | None],
        states: Mapping[int, Collection[str]],
    ) -> None:
        self._plan, self._place, self._num_outputs, self._states = plan, place, num_outputs, states
        self._operators = [str(operator) for operator in plan.operators]
        self._shows: dict[int, int] = {}
        """A view without a place -> the tensor whose memory it shows."""

    def __call__(self, instruction: Instruction) -> Footprint:
        touched = access(self._plan, instruction, self._num_outputs)
        if touched.view is not None and touched.reads:
            self._shows[touched.view] = touched.reads[0]
        reads, writes = [*map(self._of_tensor, touched.reads)], [*map(self._of_tensor, touched.writes)]
        result = self._scalar_result(instruction)
        reads += [("value", index, index + 1) for index in self._scalars(operands(instruction)) if index != result]
        writes += [] if result is None else [("value", result, result + 1)]
        if isinstance(instruction, DelegateCall):
            index = instruction.delegate_index
            writes += [("delegate", index, index + 1)]  # it runs once at a time
            writes += [(("state", name), 0, 1) for name in self._states.get(index, ())]
        elif isinstance(instruction, KernelCall) and not self._is_pure(self._operators[instruction.op_index]):
            writes.append(_EFFECTS)
        return Footprint(tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes)))

    def _of_tensor(self, index: int) -> Touched:
        while (place := self._place(index)) is None and index in self._shows:
            index = self._shows[index]
        return place or ("tensor", index, index + 1)

    def _scalar_result(self, instruction: Instruction) -> int | None:
        """The value that `instruction` replaces: a number's, or a view's."""
        values = self._plan.values
        if isinstance(instruction, MoveCall):
            return None if isinstance(values[instruction.move_to], Tensor) else instruction.move_to
        if not isinstance(instruction, KernelCall) or not instruction.args:
            return None
        if (name := self._operators[instruction.op_index]) in PRIM_OPS:
            last = instruction.args[-1]
            return last if name == ET_VIEW or not isinstance(values[last], Tensor) else None
        return split_arguments(instruction.args, values)[1]

    def _scalars(self, indices: Iterable[int]) -> Iterator[int]:
        """All values that an instruction names, tensors too: the slot of a view is written by whoever makes it."""
        for index in indices:
            value = self._plan.values[index]
            yield index
            if isinstance(value, IntList):
                yield from value.items
            else:
                yield from tensor_indices((index,), self._plan.values)

    def _is_pure(self, operator: str) -> bool:
        if operator in BUILT_IN:
            return True
        namespace, _, name = operator.partition("::")
        return namespace in _PURE_NAMESPACES and name.partition(".")[0] not in DRAWN


# ---- the order -------------------------------------------------------------------------------------


def overlapped(touched: Sequence[Footprint], submitted: Collection[int]) -> list[Step]:
    """An order of a straight run of instructions in which those of `submitted` are waited for as late as may be.

    A delegate whose wait would follow at once is run, not submitted. All are waited for at the end.
    """
    steps: list[Step] = []
    flying: list[int] = []
    pending = deque(range(len(touched)))
    while pending:
        later: list[int] = []
        while pending and len(later) < WINDOW:
            position = pending.popleft()
            mine = touched[position]
            if any(mine.conflicts(touched[other]) for other in (*flying, *later)):
                later.append(position)
            elif position in submitted:
                steps.append(Step(StepKind.SUBMIT, position))
                flying.append(position)
            else:
                steps.append(Step(StepKind.RUN, position))
        if later:
            needed = [other for other in flying if touched[later[0]].conflicts(touched[other])]
            steps += [Step(StepKind.WAIT, other) for other in needed]
            flying = [other for other in flying if other not in needed]
        pending.extendleft(reversed(later))
    steps += [Step(StepKind.WAIT, other) for other in flying]
    return list(_without_idle_waits(steps))


def _without_idle_waits(steps: Sequence[Step]) -> Iterator[Step]:
    skip = False
    for index, step in enumerate(steps):
        if skip:
            skip = False
        elif step.kind is StepKind.SUBMIT and steps[index + 1] == Step(StepKind.WAIT, step.instruction):
            skip = True
            yield Step(StepKind.RUN, step.instruction)
        else:
            yield step
