"""Emitted instructions -> the order in which independent delegates are at work together, and until when each is.

    a = delegate 0(x)      alive: a from 0              a = delegate 0(x)      submitted; waited for before 2
    b = kernel(a)                              ->       c = delegate 1(x)      submitted; waited for before 3
    c = delegate 1(x)      c may take a's place         b = kernel(a)
    d = kernel(b, c)       once b is computed           d = kernel(b, c)       c may not: 1 may have written by 2

The file has this order, and memory is planned for it: a runtime that submits nothing runs the same instructions one
after the other. Graphs whose delegates depend on each other stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from delegraph.aot.delegation.kept_state import kept_buffers
from delegraph.aot.delegation.lowerings import find_lowering
from delegraph.aot.emission.instructions import MethodBuilder
from delegraph.aot.emission.memory import lifetimes
from delegraph.aot.emission.method import EmittedMethod
from delegraph.errors import PluginNotFound, foreign_code
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.overlap import Touched, footprints, overlapped
from delegraph.program.schema import DelegateCall, ExecutionPlan, JumpFalseCall
from delegraph.program.steps import StepKind, straight_runs

__all__ = ["overlap_delegates"]


def overlap_delegates(method: EmittedMethod, plugins: PluginRegistry) -> EmittedMethod:
    """`method`, its instructions in that order, and `at_work` set. Raises `LoweringError` for a backend's own fault."""
    builder = method.builder
    submitted = _submitted(builder, plugins)
    if len(builder.instructions) < 2 or not submitted:
        return method
    plan = ExecutionPlan(
        method.name, tuple(builder.table.values), method.inputs, method.outputs, (), tuple(builder.operators)
    )
    counts = builder.output_counts()
    outputs = {
        call.delegate_index: counts[position]
        for position, call in enumerate(builder.instructions)
        if isinstance(call, DelegateCall)
    }
    states = {index: kept_buffers(module) for index, module in enumerate(builder.delegates)}
    touched = footprints(
        plan, builder.instructions, _places(builder), lambda call: outputs[call.delegate_index], states
    )
    order: list[int] = []
    at_work: dict[int, int] = {}
    for start, stop in straight_runs(builder.instructions):
        last = stop - isinstance(builder.instructions[stop - 1], JumpFalseCall)
        called = {position - start for position in submitted if start <= position < last}
        for step in overlapped(touched[start:last], called):
            if step.kind is StepKind.WAIT:
                at_work[start + step.instruction] = len(order) - 1
            else:
                order.append(start + step.instruction)
        order += range(last, stop)
    if not at_work:
        return method
    in_order = lifetimes(method)
    builder.reorder(order)
    moved_to = {instruction: position for position, instruction in enumerate(order)}
    return replace(method, at_work={moved_to[call]: until for call, until in at_work.items()}, in_order=in_order)


def _submitted(builder: MethodBuilder, plugins: PluginRegistry) -> list[int]:
    """The instructions that call a delegate which is submitted."""
    able: dict[int, bool] = {}
    for index, module in enumerate(builder.delegates):
        try:
            offer, lowering = find_lowering(module.backend_id, plugins)
        except PluginNotFound:
            continue  # of a graph that was lowered elsewhere: it is not compiled here
        with foreign_code(f"backend {module.backend_id!r} ({offer.distribution}): its submits raised"):
            able[index] = bool(lowering.submits(module.compile_specs))
    return [
        position
        for position, call in enumerate(builder.instructions)
        if isinstance(call, DelegateCall) and able.get(call.delegate_index)
    ]


def _places(builder: MethodBuilder) -> Callable[[int], Touched | None]:
    """A tensor's bytes in the memory that is its own, or the one's whose view it is."""
    table = builder.table

    def place(index: int) -> Touched:
        start = table.offset(index)
        return table.root(index), start, start + max(1, table.specs[index].nbytes)

    return place
