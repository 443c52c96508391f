"""Instructions -> the span in which each tensor's memory is in use; and the owner of the memory that a tensor shows.

Ahead of time it is known which tensors are views. A file only has places, so there `roots_of` reads it off the
instructions: a tensor that is read and was never written shows the tensor that was written there before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import TypeAlias

from delegraph.lazy_dataclass import dataclass, field
from delegraph.program.dtypes import nbytes
from delegraph.program.memory.accesses import access
from delegraph.program.schema import (
    DelegateCall,
    ExecutionPlan,
    Instruction,
    JumpFalseCall,
    Tensor,
    Value,
)
from delegraph.program.walk import operands, tensor_indices

__all__ = ["BEFORE", "Place", "Roots", "Span", "instructions_in_order", "live_ranges", "place_of", "roots_of"]

BEFORE = -1
"""The step at which inputs are set, before instruction 0."""

Span = tuple[int, int]
"""The first and the last step, both included."""

Place: TypeAlias = tuple[int, int, int]
"""Memory id, and the bytes from and to."""


def place_of(value: Value) -> Place | None:
    """Where a planned tensor lies; None for anything else."""
    if not isinstance(value, Tensor) or value.allocation_info is None:
        return None
    start = value.allocation_info.memory_offset
    return value.allocation_info.memory_id, start, start + nbytes(value.scalar_type, value.sizes)


def live_ranges(
    instructions: Sequence[Instruction],
    values: Sequence[Value],
    inputs: Iterable[int],
    outputs: Iterable[int],
    root: Callable[[int], int],
    at_work: Mapping[int, int] = MappingProxyType({}),
) -> dict[int, Span]:
    """Root value -> the first and the last instruction that uses it or a view of it.

    Inputs are in use before the first instruction, outputs after the last, and what instruction `step` uses up to
    `at_work[step]`, if that is there: it begins what goes on beside the next ones. A loop keeps the values from before
    it that it uses alive to its end, and all that are read after it alive from its start.
    """
    end = len(instructions)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    calls = ((step, operands(instruction)) for step, instruction in enumerate(instructions))
    for step, indices in chain([(BEFORE, inputs)], calls, [(end, outputs)]):
        for value in tensor_indices(indices, values):
            owner = root(value)
            first.setdefault(owner, step)
            last[owner] = max(last.get(owner, step), at_work.get(step, step))
    _stretch_over_loops(first, last, _loops(instructions))
    return {owner: (first[owner], last[owner]) for owner in first}


def _loops(instructions: Sequence[Instruction]) -> list[Span]:
    """(first, last) instruction of each loop, inner ones first."""
    jumps = ((step, call) for step, call in enumerate(instructions) if isinstance(call, JumpFalseCall))
    loops = [(call.destination_instruction, step) for step, call in jumps if call.destination_instruction <= step]
    return sorted(loops, key=lambda loop: loop[1] - loop[0])


def _stretch_over_loops(first: dict[int, int], last: dict[int, int], loops: Sequence[Span]) -> None:
    """Make lifetimes hold for every round of a loop, not only for the first.

    0: a = …                 a: born before the loop, read at 1: the next round reads it again, so it lives
    1: b = f(a)                 from 0 to 3, not to 1, and `c` may not take its place
    2: c = g(b)              b: of one round alone, 1 to 2
    3: jump to 1 unless …    c: read behind the loop, where another round may have run in between: it lives
    4: d = h(c)                 from the loop's start, 1 to 4, so that no value of the next round overwrites it
    """
    for start, end in loops:
        for value, born in first.items():
            if born < start <= last[value] < end:
                last[value] = end
            elif start < born <= end < last[value]:
                first[value] = start


def instructions_in_order(plan: ExecutionPlan) -> list[Instruction]:
    """The instructions of all chains in one list, jumps made to fit."""
    instructions: list[Instruction] = []
    for record in plan.chains:
        start = len(instructions)
        for instruction in record.instructions:
            if isinstance(instruction, JumpFalseCall) and start:
                instruction = JumpFalseCall(instruction.cond_value_index, instruction.destination_instruction + start)
            instructions.append(instruction)
    return instructions


# ---- whose memory a tensor of a file shows -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Roots:
    """`by_value`: for each planned tensor that a plan uses, the one whose memory it shows; most show their own.
    `states` are those that are read before anything is written where they lie: they keep their bytes between runs."""

    by_value: Mapping[int, int]
    states: frozenset[int]


def roots_of(plan: ExecutionPlan) -> Roots:
    """Whose memory the tensors of `plan` show.

    A tensor that is read and never written shows the last one that was written where its bytes are, or consists of
    those that were written into them (a `cat` whose parts are in place). A file does not say how many of a delegate's
    last arguments are its results: those that no instruction named before are taken for them.
    """
    shown = _Shown(plan)
    for step in instructions_in_order(plan):
        done = access(plan, step, lambda call: _num_outputs(call, shown.root))
        for index in tensor_indices(operands(step), plan.values):
            if index not in done.writes:
                shown.read(index)
        for index in done.writes:
            shown.write(index)
    for index in tensor_indices(plan.outputs, plan.values):
        shown.read(index)
    return Roots({index: _last(shown.root, index) for index in shown.root}, frozenset(shown.states))


@dataclass(slots=True)
class _Shown:
    """The knowledge up to an instruction: whose memory each tensor shows, and the writes in their order."""

    plan: ExecutionPlan
    root: dict[int, int] = field(default_factory=dict)
    order: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """By memory id: (offset, end, tensor)."""
    states: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for index in tensor_indices(self.plan.inputs, self.plan.values):
            self.write(index)

    def write(self, index: int) -> None:
        """`index` has bytes of its own from here on, unless it had some before."""
        if (place := place_of(self.plan.values[index])) is not None and self.root.setdefault(index, index) == index:
            written = self.order.setdefault(place[0], [])
            written.append((place[1], place[2], index))

    def read(self, index: int) -> None:
        """`index` is read: the first time, the tensor that it shows is looked up."""
        place = place_of(self.plan.values[index])
        if place is None or index in self.root:
            return
        memory_id, start, end = place
        written = self.order.get(memory_id, [])
        # The last write that covers all of it is what it shows; else the smaller ones inside are its parts.
        covering = next((i for low, high, i in reversed(written) if low <= start and end <= high), None)
        self.root[index] = index if covering is None else covering
        if covering is None:
            parts = list(_inside(start, end, written))
            self.root.update(dict.fromkeys(parts, index))
            written.append((start, end, index))
            if not parts:
                self.states.add(index)


def _inside(start: int, end: int, written: Sequence[tuple[int, int, int]]) -> Iterator[int]:
    """Who was written last between `start` and `end`, as far as nobody wrote over it since."""
    free = [(start, end)]  # bytes that no later write covered
    for low, high, index in reversed(written):  # the last write first
        if any(a <= low and high <= b for a, b in free):
            yield index
            free = [(a, b) for x, y in free for a, b in ((x, min(y, low)), (max(x, high), y)) if a < b]


def _last(roots: Mapping[int, int], index: int) -> int:
    while roots[index] != index:
        index = roots[index]
    return index


def _num_outputs(call: DelegateCall, known: Mapping[int, int]) -> int:
    """How many of a call's last arguments nobody named before; at least one."""
    # From the end: results are new, and the first argument that is known ends them.
    for count, index in enumerate(reversed(call.args)):
        if count and index in known:
            return count
    return len(call.args)
