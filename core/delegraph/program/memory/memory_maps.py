"""A method's plan -> MemoryMap: which tensor lies where in planned memory, and from when to when; whoever wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from delegraph.lazy_dataclass import dataclass
from delegraph.program.debug_data import DebugData
from delegraph.program.devices import memory_devices
from delegraph.program.memory.live_ranges import (
    BEFORE,
    Place,
    Span,
    instructions_in_order,
    live_ranges,
    place_of,
    roots_of,
)
from delegraph.program.schema import DelegateCall, ExecutionPlan, Instruction, KernelCall, MoveCall, Tensor
from delegraph.program.walk import operands, tensor_indices

__all__ = ["MemoryMap", "MemoryUsage", "PlacedTensor", "called", "memory_map"]


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A tensor with memory of its own. `value` is its index in the method, `name` its own name, if the file has one;
    `op` is the instruction that writes it first, and `source` the innermost module and the user's line of that, if the
    file has its debug data: `"stem.conv (net.py:12, in forward)"`; `nbytes` from `offset` on are its own from step
    `first` to `last`, both included: -1 is before the first instruction, the number of instructions is after the last.
    `at_peak`: it is alive when the most bytes of its memory are."""

    value: int
    name: str
    op: str
    memory_id: int
    offset: int
    nbytes: int
    first: int
    last: int
    at_peak: bool
    source: str = ""


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """One planned memory. `lower_bound` is the most that is alive at one time, which is at step `peak`."""

    memory_id: int
    device: str
    planned_nbytes: int
    lower_bound: int
    peak: int


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """A method's planned memories, and the tensors in them by memory and birth: tables and a drawing in a notebook."""

    method: str
    instructions: int
    memories: tuple[MemoryUsage, ...]
    tensors: tuple[PlacedTensor, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """The HTML that notebooks show: the drawing, and its tables."""
        from delegraph.program.text.html import memory_html

        return memory_html([self])


def memory_map(plan: ExecutionPlan, input_names: Sequence[str] = (), debug_data: DebugData | None = None) -> MemoryMap:
    """Where the tensors of `plan` lie, read off its instructions (`program/memory/live_ranges.py`). Runs nothing.

    `input_names`, one for each input; without them they are `input 0`, `input 1` … `debug_data` is the method's.
    """
    calls, roots = instructions_in_order(plan), roots_of(plan)
    root = roots.by_value
    states = {index for index in root.values() if index in roots.states or _is_state(plan, index)}
    spans = live_ranges(calls, plan.values, plan.inputs, plan.outputs, lambda index: root.get(index, index))
    spans = {i: (BEFORE, len(calls)) if i in states else spans[i] for i in set(root.values())}
    usages = tuple(_usages(plan, spans))
    peaks = {usage.memory_id: usage.peak for usage in usages}
    names = _names(plan, input_names)
    steps = _writers(plan, calls, root)
    writers = {index: "input" if step < 0 else called(plan, calls[step]) for index, step in steps.items()}
    writers |= dict.fromkeys(states, "state")
    sources = _sources(steps, debug_data) if debug_data is not None else {}
    tensors = []
    for index, (first, last) in spans.items():
        memory_id, offset, end = _placed(plan, index)
        at_peak = first <= peaks[memory_id] <= last
        name, writer = names.get(index, ""), writers.get(index, "")
        place = (memory_id, offset, end - offset, first, last, at_peak)
        tensors.append(PlacedTensor(index, name, writer, *place, "" if index in states else sources.get(index, "")))
    tensors.sort(key=lambda tensor: (tensor.memory_id, tensor.first, tensor.offset, tensor.value))
    return MemoryMap(plan.name, len(calls), usages, tuple(tensors))


def _is_state(plan: ExecutionPlan, index: int) -> bool:
    """Whether a planned tensor has a first value, or a name."""
    value = plan.values[index]
    info = getattr(value, "extra_tensor_info", None)
    return getattr(value, "data_buffer_idx", 0) > 0 or (info is not None and bool(info.fully_qualified_name))


def _usages(plan: ExecutionPlan, spans: Mapping[int, Span]) -> Iterator[MemoryUsage]:
    devices = memory_devices(plan.non_const_buffer_device)
    for memory_id, planned in enumerate(plan.non_const_buffer_sizes[1:], 1):
        change: dict[int, int] = {}
        for index, (first, last) in spans.items():
            here, start, end = _placed(plan, index)
            if here == memory_id:
                size = end - start
                change[first] = change.get(first, 0) + size
                change[last + 1] = change.get(last + 1, 0) - size
        most, peak, alive = 0, BEFORE, 0
        for step in sorted(change):
            alive += change[step]
            if alive > most:
                most, peak = alive, step
        device = str(devices[memory_id]) if memory_id in devices else "cpu"
        yield MemoryUsage(memory_id, device, planned, most, peak)


def _placed(plan: ExecutionPlan, index: int) -> Place:
    place = place_of(plan.values[index])
    assert place is not None, "only planned tensors have a span"
    return place


def _names(plan: ExecutionPlan, inputs: Sequence[str]) -> dict[int, str]:
    """Names of states and inputs; `output 0` for a result."""
    names = {index: f"output {position}" for position, index in enumerate(plan.outputs)}
    input_names = inputs if len(inputs) == len(plan.inputs) else [f"input {i}" for i in range(len(plan.inputs))]
    names |= dict(zip(plan.inputs, input_names, strict=True))
    for index, value in enumerate(plan.values):
        info = value.extra_tensor_info if isinstance(value, Tensor) else None
        if info is not None and info.fully_qualified_name:
            names[index] = info.fully_qualified_name
    return names


def _writers(plan: ExecutionPlan, calls: Sequence[Instruction], roots: Mapping[int, int]) -> dict[int, int]:
    """By tensor, the first instruction that uses its memory, which is the one that writes it; BEFORE for inputs."""
    writers = {roots[i]: BEFORE for i in tensor_indices(plan.inputs, plan.values) if i in roots}
    for step, call in enumerate(calls):
        for index in tensor_indices(operands(call), plan.values):
            if index in roots:
                writers.setdefault(roots[index], step)
    return writers


def _sources(writers: Mapping[int, int], debug_data: DebugData) -> dict[int, str]:
    """By tensor, the module and the line of the last node in the instruction that writes it."""
    sources = {}
    for index, step in writers.items():
        for handle in debug_data.instructions.get(step, ()):
            if node := debug_data.nodes.get(handle):
                sources[index] = (
                    f"{node.module} ({node.line})" if node.module and node.line else node.module or node.line
                )
    return sources


def called(plan: ExecutionPlan, call: Instruction) -> str:
    """The callee of an instruction, in words: `aten::add.out`, `delegate 0, NpuBackend`, `move`; or nothing."""
    match call:
        case KernelCall(op_index=index):
            return str(plan.operators[index])
        case DelegateCall(delegate_index=index):
            return f"delegate {index}, {plan.delegates[index].id}"
        case MoveCall():
            return "move"
    return ""
