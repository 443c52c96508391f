"""The reads and writes of a plan -> the groups of values that can leave their places in planned memory, if asked for.

Planned memory is reused: behind an input's last use other tensors lie over it, and a static view is just a second value
over the same bytes. So a tensor moves out of its place together with the values that show the same content, and only
where every use of those bytes is known to mean either that content or a later write there:

    input x [0, 64)     read by 0                            moves to the caller's array,
    view v  [0, 64)     read by 1, written by nobody         and v with it;
    y       [0, 64)     written by 2, then read by 3         stays
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from delegraph.lazy_dataclass import dataclass, field
from delegraph.program.checks.verify_values import is_stored
from delegraph.program.devices import memory_devices
from delegraph.program.memory.accesses import access
from delegraph.program.memory.live_ranges import Place, place_of
from delegraph.program.schema import DelegateCall, ExecutionPlan, JumpFalseCall, Tensor, TensorShapeDynamism
from delegraph.program.walk import instructions, tensor_indices
from delegraph.runtime.values.values import attribute_name

__all__ = ["Group", "Uses"]


@dataclass(frozen=True, slots=True)
class Group:
    """A tensor `index` that can leave its planned place, with the other values that show (part of) the same content,
    and how far into it they begin, in bytes.
    """

    index: int
    views: tuple[tuple[int, int], ...]
    delegates: frozenset[int] | None
    """The delegates that touch them; None if a kernel does too."""

    @property
    def values(self) -> tuple[int, ...]:
        """All values that move."""
        return (self.index, *(view for view, _ in self.views))


class Uses:
    """The reads and writes of the instructions of `plan`. `num_outputs` says how many of a delegate's last arguments it
    writes, None if that is not known. The contents of the memories `kept` stay from one run to the next.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        num_outputs: Callable[[DelegateCall], int | None],
        replaced: Collection[int],
        kept: Collection[int] = (),
    ) -> None:
        self._plan = plan
        self._replaced = frozenset(replaced)
        self._kept = {*kept, *memory_devices(plan.non_const_buffer_device)}
        self._steps = [access(plan, instruction, num_outputs) for _, instruction in instructions(plan)]
        self._jumps = len(plan.chains) > 1 or any(
            isinstance(instruction, JumpFalseCall) for _, instruction in instructions(plan)
        )
        self._places = {
            index: place for index, value in enumerate(plan.values) if (place := place_of(value)) is not None
        }

    def input_group(self, index: int) -> Group | None:
        """The values that lie in the caller's array if it is borrowed as input `index`; None if it has to be copied."""
        place = self._movable(index)
        if place is None or self._plan.inputs.count(index) > 1:
            return None
        near = self._near(place)
        # Inputs are set one after the other: one in the same bytes would be written over this one.
        if any(input_index != index and input_index in near for input_index in self._plan.inputs):
            return None
        here, views = self._content(near, place, {index}), set[int]()
        for step in self._steps:
            if not all(map(here.read, step.reads)) or not all(map(here.write, step.writes)):
                return None
            if step.view is not None and any(value in near or value in views for value in step.reads):
                views.add(step.view)
        # A jump may run an earlier step after a later write; a write through a view would be in the caller's array.
        if (self._jumps and here.written) or any(not views.isdisjoint(step.writes) for step in self._steps):
            return None
        if any(output in views or (output in near and not here.is_other(output)) for output in self._outputs()):
            return None
        return self._group(index, here.shows, place)

    def output_group(self, index: int) -> Group | None:
        """The values that lie in the caller's memory if output `index` is written there; None if it is to be copied."""
        place = self._movable(index)
        if place is None or self._jumps or index in self._plan.inputs or attribute_name(self._tensor(index)):
            return None
        near = self._near(place)
        # Two outputs in the same bytes, or one that is listed twice, would each want another array of the caller's.
        if [output for output in self._outputs() if output in near] != [index]:
            return None
        writers = [(number, value) for number, step in enumerate(self._steps) for value in step.writes if value in near]
        if not writers:
            return None
        # Only the last write can go to the caller's memory; it has to cover the place, and may not read what was there.
        at, writer = writers[-1]
        last_writing = self._steps[at]
        if near[writer] != place or writer in last_writing.reads or [value for _, value in writers].count(writer) > 1:
            return None
        # Until then, each read finds what this run wrote: a read of bytes of the run before needs the planned place.
        before = self._content(near, place, set())
        for value in self._plan.inputs:
            before.write(value)
        for step in self._steps[: at + 1]:
            if not all(value not in near or before.is_other(value) for value in step.reads):
                return None
            for value in step.writes:
                before.write(value)
        # From then on, each read finds the output, or a value that was written over all that it reads.
        after = self._content(near, place, {writer, index})
        if not all(after.read(value) for step in self._steps[at + 1 :] for value in step.reads):
            return None
        # The values that move lie in the caller's memory from the first step on, so no earlier step may use them.
        used_before = {value for step in self._steps[: at + 1] for value in (*step.reads, *step.writes)}
        if (after.shows - {writer}) & used_before or any(writer in step.reads for step in self._steps[:at]):
            return None
        return self._group(index, after.shows, place)

    def _movable(self, index: int) -> Place | None:
        """The place of a static tensor that holds nothing when the method is loaded, and that nothing replaces."""
        place, tensor = self._places.get(index), self._plan.values[index]
        if place is None or place[0] in self._kept or place[1] == place[2] or not isinstance(tensor, Tensor):
            return None
        if any(is_stored(self._tensor(neighbor)) for neighbor in self._near(place)):
            return None
        return place

    def _near(self, place: Place) -> dict[int, Place]:
        """The values that share bytes with `place`."""
        memory, start, end = place
        return {i: p for i, p in self._places.items() if p[0] == memory and p[1] < end and start < p[2]}

    def _content(self, near: dict[int, Place], place: Place, shows: set[int]) -> _Content:
        return _Content(near, {value for value in near if _is_static(self._tensor(value))}, place, shows)

    def _group(self, index: int, values: set[int], place: Place) -> Group | None:
        """None if one of `values` changes its shape, or is put elsewhere by an instruction, and is not alone."""
        if not values.isdisjoint(self._replaced):
            return None
        if len(values) > 1 and not all(_is_static(self._tensor(value)) for value in values):
            return None
        views = tuple((value, self._places[value][1] - place[1]) for value in sorted(values - {index}))
        touching = [step for step in self._steps if not values.isdisjoint((*step.reads, *step.writes))]
        delegates = frozenset(step.delegate for step in touching if step.delegate is not None)
        alone = all(step.delegate is not None for step in touching)
        return Group(index, views, delegates if alone else None)

    def _outputs(self) -> list[int]:
        return list(tensor_indices(self._plan.outputs, self._plan.values))

    def _tensor(self, index: int) -> Tensor:
        tensor = self._plan.values[index]
        assert isinstance(tensor, Tensor)
        return tensor


@dataclass(slots=True)
class _Content:
    """The known contents of the bytes of `place` as steps go by: a content that the values in `shows` show, and the
    values that were `written` over it.
    """

    near: dict[int, Place]
    whole: set[int]
    """Those of `near` that are written in full: their size is fixed."""
    place: Place
    shows: set[int]
    written: list[int] = field(default_factory=list)

    def read(self, index: int) -> bool:
        """A step reads value `index`; False if it may read neither the content alone nor another value alone."""
        if index not in self.near or self.is_other(index):
            return True
        _, start, end = self.near[index]
        inside = self.place[1] <= start and end <= self.place[2]
        if inside and not any(_overlap(self.near[index], self.near[value]) for value in self.written):
            self.shows.add(index)
            return True
        return False

    def write(self, index: int) -> bool:
        """A step writes all of value `index`; False if that would change the content itself."""
        if index in self.near:
            self.written.append(index)
        return index not in self.shows

    def is_other(self, index: int) -> bool:
        """Whether value `index` stays in its place, and all of it was written behind the content."""
        if index in self.shows or index in self.written:
            return index not in self.shows
        _, start, end = self.near[index]
        # By their starts, the values that were written cover [start, end) from the left, or leave a gap.
        start, end = max(start, self.place[1]), min(end, self.place[2])
        for _, first, last in sorted(self.near[value] for value in self.written if value in self.whole):
            if first <= start:
                start = max(start, last)
        return start >= end


def _is_static(tensor: Tensor) -> bool:
    return tensor.shape_dynamism is TensorShapeDynamism.STATIC


def _overlap(a: Place, b: Place) -> bool:
    return a[1] < b[2] and b[1] < a[2]
