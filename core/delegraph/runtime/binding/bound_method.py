"""A method's binder -> the call that runs all of its instructions, wrapped as the caller asked: checked, traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from delegraph.interfaces.kernel import BoundCall
from delegraph.lazy_dataclass import replace
from delegraph.program.limits import Limits
from delegraph.program.walk import Place
from delegraph.runtime.binding.blocks import Finish, bind_blocks
from delegraph.runtime.binding.instructions import Binder
from delegraph.runtime.execution import executor
from delegraph.runtime.execution.faults import instruction_fault
from delegraph.runtime.execution.in_flight import InFlight
from delegraph.runtime.execution.stop import Stop
from delegraph.runtime.values.memory import TempAllocator

if TYPE_CHECKING:
    from delegraph.program.inlining import Origin
    from delegraph.runtime.execution.tracing import EventTracer

__all__ = ["Execute", "around_calls", "bind_method"]

Wrap = Callable[[BoundCall, int, int], BoundCall]
"""(call, chain, instruction) -> the call that runs in its place."""

Execute = Callable[[Stop], None]
"""Runs a method on the inputs that are set, until it is stopped. Raises the fault of an instruction."""


def around_calls(
    binder: Binder,
    check: bool,
    temp_allocator: TempAllocator | None,
    event_tracer: EventTracer | None,
    origins: Mapping[Place, Origin] = MappingProxyType({}),
) -> Finish:
    """The wrappers around bound calls: none, unless they are checked, traced or have bounded temporary memory."""
    as_it_is: Wrap = lambda call, chain, instruction: call  # noqa: E731
    finish = Finish(as_it_is, as_it_is, as_it_is)
    if check:  # which submits nothing
        from delegraph.runtime.binding.checking import InstructionCheck

        finish = replace(
            finish, run=InstructionCheck(binder.plan, binder.values, binder.delegates, binder.context).checked
        )
    if temp_allocator is not None:
        reset = partial(_resetting, temp_allocator.reset)
        finish = Finish(reset(finish.run), reset(finish.submit), finish.wait)
    if event_tracer is not None:
        from delegraph.runtime.execution.tracing import InstructionTracer

        tracer = InstructionTracer(event_tracer, binder.plan, binder.slots, origins)
        finish = Finish(tracer.around(finish.run), tracer.submitting(finish.submit), tracer.waiting(finish.wait))
    return finish


def bind_method(
    binder: Binder,
    finish: Finish,
    limits: Limits,
    event_tracer: EventTracer | None,
    in_flight: InFlight,
    origins: Mapping[Place, Origin] = MappingProxyType({}),
) -> Execute:
    """The call that runs the instructions, bound by `binder` and wrapped by `finish`.

    It remembers shapes where those of the inputs change. Raises the fault of an instruction that cannot be bound.
    """
    with np.errstate(all="ignore"):
        execute = _bind(binder, finish, limits, origins)
    if binder.schedule.flights:
        execute = in_flight.around(execute)
    if binder.kernels:  # whose arithmetic is NumPy's; to set this costs as much as a small delegate
        execute = np.errstate(all="ignore")(execute)
    return execute if event_tracer is None else _traced(event_tracer, binder.plan.name, execute)


def _bind(binder: Binder, finish: Finish, limits: Limits, origins: Mapping[Place, Origin]) -> Execute:
    plan, values, moving = binder.plan, binder.values, binder.values.moving
    fault_of = partial(instruction_fault, plan, values.slots, origins=origins)
    blocks = bind_blocks(plan, binder, finish, fault_of)
    if any(index in moving and moving[index].resizable for index in plan.inputs):
        from delegraph.runtime.binding.shape_bindings import SettledBinder, ShapeBindings

        return ShapeBindings(
            plan,
            values,
            blocks,
            lambda values: SettledBinder(
                plan, values, binder.kernels, binder.delegates, binder.context, binder.schedule
            ),
            lambda binder: bind_blocks(plan, binder, finish, fault_of),
            fault_of,
            limits,
        ).run
    if len(blocks) == 1 and blocks[0].condition is None:
        return partial(executor.run_block, blocks[0], fault_of)
    return partial(executor.run, blocks, fault_of, limits)


def _resetting(reset: Callable[[], None], inner: Wrap) -> Wrap:
    def finish(call: BoundCall, chain: int, instruction: int) -> BoundCall:
        call = inner(call, chain, instruction)

        def run() -> None:
            try:
                call()
            finally:
                reset()

        return run

    return finish


def _traced(event_tracer: EventTracer, method_name: str, execute: Execute) -> Execute:
    def traced(stop: Stop) -> None:
        with event_tracer.executing(method_name):
            execute(stop)

    return traced
