"""A plan -> whether a run of it reads what an earlier run left in its memory."""

from __future__ import annotations

from collections.abc import Callable

from delegraph.program.checks.verify_values import is_stored
from delegraph.program.memory.accesses import access
from delegraph.program.memory.live_ranges import Place, place_of
from delegraph.program.schema import DelegateCall, ExecutionPlan, Tensor
from delegraph.program.walk import instructions

__all__ = ["reads_earlier_runs"]


def reads_earlier_runs(plan: ExecutionPlan, num_outputs: Callable[[DelegateCall], int | None]) -> bool:
    """Whether an instruction of `plan` reads memory in which neither an input nor an earlier instruction has written.

    So it is with mutable buffers, of which ExecuTorch's files need not say what they are. `num_outputs` says how many
    of a delegate's last arguments it writes, None if that is not known.
    """
    values = plan.values
    written, places = set(plan.inputs), [place for index in plan.inputs if (place := place_of(values[index]))]
    for _, instruction in instructions(plan):
        step = access(plan, instruction, num_outputs)
        for index in step.reads:
            record = values[index]
            if index in written or not isinstance(record, Tensor):
                continue
            place = place_of(record)
            if place is None and is_stored(record):
                continue  # a constant
            unsure = step.delegate is not None and index in step.writes
            if not unsure and not any(place is not None and _overlap(place, other) for other in places):
                return True
        for index in step.writes if step.view is None else (step.view,):
            if index not in written:
                written.add(index)
                place = place_of(values[index])
                places += [place] if place is not None and step.view is None else []
    return False


def _overlap(place: Place, other: Place) -> bool:
    return place[0] == other[0] and place[1] < other[2] and other[1] < place[2]
