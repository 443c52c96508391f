"""A plan and its loaded delegates -> the order of its instructions, where some delegates are submitted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from delegraph.lazy_dataclass import dataclass, field
from delegraph.program.schema import DelegateCall, ExecutionPlan, JumpFalseCall
from delegraph.program.steps import Step, StepKind, straight_runs
from delegraph.runtime.execution.faults import instruction_name
from delegraph.runtime.execution.in_flight import Flight, InFlight

if TYPE_CHECKING:
    from delegraph.runtime.resolution.delegates import Delegate

__all__ = ["IN_ORDER", "Order", "Schedule", "ScheduledStep", "make_schedule"]

Order: TypeAlias = tuple[Step, ...]
"""The steps of a straight run; instructions by their index in the chain."""


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """The way in which the executor treats an instruction: by its place, with the name of what it calls."""

    kind: StepKind
    chain: int
    instruction: int
    name: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """The order of instructions, as far as it is not that of the file: by (chain, first instruction of a straight run);
    and the flights of those that are submitted, by (chain, instruction)."""

    orders: Mapping[tuple[int, int], Order] = field(default_factory=lambda: MappingProxyType({}))
    flights: Mapping[tuple[int, int], Flight] = field(default_factory=lambda: MappingProxyType({}))

    def steps(self, plan: ExecutionPlan) -> list[ScheduledStep]:
        """All steps of `plan`, in order; jumps are run."""
        steps: list[ScheduledStep] = []
        for chain, record in enumerate(plan.chains):
            for start, stop in straight_runs(record.instructions):
                order = self.orders.get((chain, start), ())
                ordered = {step.instruction for step in order}
                rest = tuple(Step(StepKind.RUN, index) for index in range(start, stop) if index not in ordered)
                for step in (*order, *rest):
                    name = instruction_name(plan, record.instructions[step.instruction])
                    steps.append(ScheduledStep(step.kind, chain, step.instruction, name))
        return steps


IN_ORDER = Schedule()
"""Every instruction is run in its place."""


def make_schedule(
    plan: ExecutionPlan, delegates: Sequence[Delegate], states: Mapping[int, Collection[str]], in_flight: InFlight
) -> Schedule:
    """The order in which delegates of `plan` that can be submitted overlap. `states` are the mutable buffers that each
    keeps, by name. Where two of them depend on each other, or there is one alone, nothing changes."""
    able = {index for index, delegate in enumerate(delegates) if delegate.submission is not None}
    if not able:
        return IN_ORDER
    # Not on the way to a first result where nothing is submitted.
    from delegraph.program.memory.live_ranges import place_of
    from delegraph.program.overlap import footprints, overlapped

    orders: dict[tuple[int, int], Order] = {}
    flights: dict[tuple[int, int], Flight] = {}
    num_outputs: Callable[[DelegateCall], int | None] = lambda call: delegates[call.delegate_index].num_outputs  # noqa: E731
    for chain, record in enumerate(plan.chains):
        touched = footprints(plan, record.instructions, lambda index: place_of(plan.values[index]), num_outputs, states)
        for start, stop in straight_runs(record.instructions):
            last = stop - isinstance(record.instructions[stop - 1], JumpFalseCall)
            called = {
                position
                for position, call in enumerate(record.instructions[start:last])
                if isinstance(call, DelegateCall) and call.delegate_index in able
            }
            if not called:
                continue
            steps = [Step(step.kind, step.instruction + start) for step in overlapped(touched[start:last], called)]
            submitted = [step.instruction for step in steps if step.kind is StepKind.SUBMIT]
            if submitted:
                orders[chain, start] = tuple(steps)
            for index in submitted:
                call = record.instructions[index]
                assert isinstance(call, DelegateCall)
                name = f"method {plan.name!r}: {instruction_name(plan, call)}"
                flights[chain, index] = in_flight.flight(chain, index, name, delegates[call.delegate_index].cancel)
    return Schedule(orders, flights)
