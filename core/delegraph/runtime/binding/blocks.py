"""The instructions of a plan, in the order of its schedule -> blocks of bound calls, which `executor.py` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from delegraph.interfaces.kernel import BoundCall
from delegraph.lazy_dataclass import dataclass
from delegraph.program.schema import Chain, DelegateCall, ExecutionPlan, JumpFalseCall
from delegraph.program.steps import StepKind, straight_runs
from delegraph.runtime.binding.instructions import Binder
from delegraph.runtime.binding.schedule import Schedule
from delegraph.runtime.execution.executor import Block, FaultOf

__all__ = ["Finish", "bind_blocks"]


@dataclass(frozen=True, slots=True)
class Finish:
    """The wrappers around bound calls: (call, chain, instruction) -> the call that the executor runs.

    A delegate that is submitted is two calls: the one that submits it, and the one that waits for it.
    """

    run: Callable[[BoundCall, int, int], BoundCall]
    submit: Callable[[BoundCall, int, int], BoundCall]
    wait: Callable[[BoundCall, int, int], BoundCall]


def bind_blocks(plan: ExecutionPlan, binder: Binder, finish: Finish, fault_of: FaultOf) -> tuple[Block, ...]:
    """All chains of `plan`, bound and cut into blocks. `finish` may wrap each call (tracing, temporary memory)."""
    blocks: list[Block] = []
    flights = binder.schedule.flights
    for chain, record in enumerate(plan.chains):
        calls: list[BoundCall] = []
        waits: dict[int, BoundCall] = {}
        conditions: dict[int, Callable[[], bool]] = {}
        for index, instruction in enumerate(record.instructions):
            try:
                if isinstance(instruction, JumpFalseCall):
                    conditions[index] = binder.condition(instruction)
                    calls.append(conditions[index])  # keeps the indices; not called from here
                elif (flight := flights.get((chain, index))) is not None:
                    assert isinstance(instruction, DelegateCall)
                    calls.append(finish.submit(binder.submit(instruction, flight), chain, index))
                    waits[index] = finish.wait(binder.wait(instruction, flight), chain, index)
                else:
                    calls.append(finish.run(binder.bind(instruction), chain, index))
            except Exception as error:
                raise fault_of(chain, index, error) from error
            # Instructions run one after the other, so that the next may use the same scratch memory.
            binder.context.end_binding()
        blocks += _cut(chain, record, calls, waits, conditions, len(blocks), binder.schedule)
    return tuple(blocks)


def _cut(
    chain: int,
    record: Chain,
    calls: Sequence[BoundCall],
    waits: Mapping[int, BoundCall],
    conditions: Mapping[int, Callable[[], bool]],
    first: int,
    schedule: Schedule,
) -> Iterator[Block]:
    """A block for each straight run of instructions."""
    runs = straight_runs(record.instructions)
    # Instruction that starts a block -> the block's number; the end is the block behind the last.
    number = {start: first + position for position, (start, _) in enumerate(runs)} | {len(calls): first + len(runs)}
    for start, stop in runs:
        condition = conditions.get(stop - 1)
        # The jump is the block's condition, and none of its calls.
        last = stop if condition is None else stop - 1
        jump = record.instructions[stop - 1]
        if_false = number[jump.destination_instruction if isinstance(jump, JumpFalseCall) else stop]
        places: Sequence[int] = range(start, last + 1)
        steps = tuple(calls[start:last])
        if (chain, start) in schedule.orders:
            order = schedule.orders[chain, start]
            places = [*(step.instruction for step in order), last]
            steps = tuple((waits if step.kind is StepKind.WAIT else calls)[step.instruction] for step in order)
        yield Block(chain, places, steps, last - start + 1, number[stop], if_false, condition)
