"""A program, a plan and the caller's choices -> LoadedMethod: all that running it needs, made once.

    memory allocated -> delegates initialised -> values parsed -> instructions bound

A failure on the way destroys the delegates that were initialised before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Any

from delegraph.errors import DelegraphError, Internal, cause_of, printable, restated
from delegraph.interfaces.kernel import Kernel
from delegraph.lazy_dataclass import dataclass, replace
from delegraph.logs import Logger
from delegraph.program.devices import input_devices
from delegraph.program.kernel_calls import Need
from delegraph.program.limits import Limits
from delegraph.program.schema import BackendDelegate, DelegateCall, ExecutionPlan
from delegraph.runtime.binding.bound_method import Execute, around_calls, bind_method
from delegraph.runtime.binding.instructions import Binder, replaced_values, resolve_kernels
from delegraph.runtime.binding.schedule import IN_ORDER, Schedule, make_schedule
from delegraph.runtime.calls.method_inputs import MethodInputs
from delegraph.runtime.calls.outputs import Outputs
from delegraph.runtime.execution.exclusive import Exclusive
from delegraph.runtime.execution.in_flight import InFlight
from delegraph.runtime.execution.stop import Runs
from delegraph.runtime.integrity import NotedData
from delegraph.runtime.lacking import lacking
from delegraph.runtime.loaded_program import LoadedProgram
from delegraph.runtime.resolution.alternatives import ChosenPlan, DelegatesFailed, blobs_of, choose
from delegraph.runtime.resolution.backend_options import BackendOptions, by_backend_id
from delegraph.runtime.resolution.context import MethodContext
from delegraph.runtime.shared_state import DelegatesBuffers, SharedState, buffers_of
from delegraph.runtime.state import State, StateBuffer
from delegraph.runtime.values.borrowing import Borrowing, Lent, find_lent
from delegraph.runtime.values.device_memory import planned_buffers
from delegraph.runtime.values.memory import (
    CallersBuffers,
    HierarchicalAllocator,
    MemoryManager,
    allocate,
    callers_buffers,
)
from delegraph.runtime.values.value_parser import TensorSources, parse_values
from delegraph.runtime.values.values import Array, ValueTable
from delegraph.runtime.values.writes import unplanned_inputs

if TYPE_CHECKING:
    from delegraph.runtime.calls.device_inputs import Place
    from delegraph.runtime.execution.tracing import EventTracer
    from delegraph.runtime.resolution.delegates import Backends, Delegate
    from delegraph.runtime.values.uses import Uses

__all__ = ["Choices", "LoadedDelegates", "LoadedMethod", "load_plan"]


_log = Logger(__name__)


@dataclass(frozen=True, slots=True)
class Choices:
    """The caller's part in loading a method: see `Program.load_method`."""

    limits: Limits
    memory_manager: MemoryManager | None
    memory: CallersBuffers
    shared_state: SharedState | None
    """None also where the method's program shares nothing."""
    borrowing: Borrowing
    backend_options: BackendOptions
    event_tracer: EventTracer | None

    @property
    def shared_memory_id(self) -> int:
        """The planned memory whose content methods share; 0: none."""
        return 0 if self.shared_state is None else self.shared_state.memory_id


@dataclass(frozen=True, slots=True)
class LoadedMethod:
    """A plan's values in their memory, and the calls that are bound to both; `Method` runs them."""

    chosen: ChosenPlan
    planned_memory: HierarchicalAllocator
    values: ValueTable
    kernels: Mapping[Need, Kernel]
    delegates: LoadedDelegates
    schedule: Schedule
    inputs: MethodInputs
    outputs: Outputs
    own_outputs: bool
    """Whether outputs are the caller's own, unless a call says otherwise."""
    state: State
    caller_sets: bool
    """Whether the caller has to set some of the state before the first run."""
    alone: Exclusive
    execute: Execute
    runs: Runs
    event_tracer: EventTracer | None

    @property
    def plan(self) -> ExecutionPlan:
        """The plan that is run: alternatives stand in it where delegates could not be loaded."""
        return self.chosen.plan


@dataclass(frozen=True, slots=True)
class LoadedDelegates:
    """Delegates, and that which they were initialised with: `options` by backend id, and the tracer."""

    all: tuple[Delegate, ...]
    options: BackendOptions
    event_tracer: EventTracer | None
    buffers: Mapping[str, StateBuffer]
    """The mutable buffers that they asked for, by name."""
    states: Mapping[int, Collection[str]]
    """The names of those that each delegate asked for, by its index."""
    in_flight: InFlight
    destroy: Callable[[], None]
    """Destroys them; called again, it does nothing."""
    named_keys: Collection[str] | None = None
    """The named data that they asked for; None: it was not noted, and may be all."""


def load_plan(
    program: LoadedProgram, plan: ExecutionPlan, choices: Choices, like: LoadedMethod | None = None
) -> LoadedMethod:
    """Load `plan`, a method of `program`; with `like`, the same method loaded before, sharing what no run changes.

    Raises what `Program.load_method` raises.
    """
    start = perf_counter()
    alternatives, registry = program.alternatives.get(plan.name, {}), program.environment.backend_registry()
    tracer = choices.event_tracer
    traced = nullcontext() if tracer is None else tracer.loading(plan.name)
    with traced, _only_ours(f"method {plan.name!r} cannot be loaded"):
        chosen = choose(plan, alternatives, registry) if like is None else like.chosen
        while True:
            try:
                replaceable = blobs_of(plan, alternatives).difference(chosen.failed)
                loaded = _loaded(program, plan, chosen, choices, replaceable, like)
            except DelegatesFailed as error:
                _log.info("method %s goes on without delegates that failed: %s", printable(plan.name), error)
                chosen, like = choose(plan, alternatives, registry, chosen, error.faults), None
                continue
            planned, delegates = sum(loaded.plan.non_const_buffer_sizes), len(loaded.delegates.all)
            told = (printable(plan.name), perf_counter() - start, planned, delegates, len(loaded.kernels))
            _log.info("loaded method %s in %.3f s: %d planned bytes, %d delegates, %d kernels", *told)
            return loaded


def _loaded(
    program: LoadedProgram,
    method: ExecutionPlan,
    chosen: ChosenPlan,
    choices: Choices,
    replaceable: Container[BackendDelegate],
    like: LoadedMethod | None,
) -> LoadedMethod:
    """`chosen` of `method`, loaded. Raises `DelegatesFailed` for delegates that are `replaceable`."""
    # Memory comes first: a file that asks for too much is refused before a backend does any work for it.
    if choices.memory_manager is None:
        choices.limits.require_planned(chosen.plan)
    backends: Backends = {}
    if chosen.plan.delegates:
        from delegraph.runtime.resolution.delegates import find_backends  # of no use to a program of kernels alone

        backends = find_backends(chosen.plan, program.environment.backend_registry())
    memory = _memory(program, method, chosen.plan, choices, backends)
    earlier = None if like is None else like.delegates
    delegates = _delegates(program, chosen.plan, choices, backends, replaceable, earlier)
    places = _places(chosen.plan, memory, backends)
    try:
        return _bound(program, chosen, choices, memory, delegates, places, like)
    except BaseException:
        delegates.destroy()
        raise


def _memory(
    program: LoadedProgram, method: ExecutionPlan, plan: ExecutionPlan, choices: Choices, backends: Backends
) -> MemoryManager:
    """The memory of `plan`: the caller's is of `method`, as it is in the file, and knows of no alternatives in it."""
    memory = choices.memory_manager or _new_memory(program, plan, choices, backends)
    if choices.memory_manager is not None and plan is not method:
        further = plan.non_const_buffer_sizes[max(len(method.non_const_buffer_sizes), 1) :]
        choices.limits.require_planned(replace(plan, non_const_buffer_sizes=(0, *further)))
        buffers = [*memory.planned_memory.buffers, *(allocate(program.environment.platform, size) for size in further)]
        memory = replace(memory, planned_memory=HierarchicalAllocator(buffers))
    choices.limits.require(plan)
    memory.planned_memory.require(plan.non_const_buffer_sizes[1:])
    if choices.event_tracer is not None:
        choices.event_tracer.track_allocation("planned memory", sum(plan.non_const_buffer_sizes))
    return memory


def _new_memory(program: LoadedProgram, plan: ExecutionPlan, choices: Choices, backends: Backends) -> MemoryManager:
    platform, shared = program.environment.platform, choices.shared_state
    own = callers_buffers(choices.memory, plan.non_const_buffer_sizes[1:], choices.shared_memory_id)
    own |= {} if shared is None else {shared.memory_id: shared.memory}
    return MemoryManager(HierarchicalAllocator(planned_buffers(plan, platform, backends, own)))


def _delegates(
    program: LoadedProgram,
    plan: ExecutionPlan,
    choices: Choices,
    backends: Backends,
    replaceable: Container[BackendDelegate],
    like: LoadedDelegates | None,
) -> LoadedDelegates:
    """Those of `plan`, sharing with `like`, if that was loaded with the same options, what no run changes."""
    environment, tracer = program.environment, choices.event_tracer
    options = by_backend_id(choices.backend_options, program.backend_ids, environment.plugin_registry())
    noted = NotedData(program.named_data) if plan.name in program.alternatives else None
    keys_read = None if noted is None else noted.keys_read
    in_flight = InFlight()
    if not plan.delegates:
        return LoadedDelegates((), options, tracer, {}, {}, in_flight, in_flight.destroying(_nothing), keys_read)
    from delegraph.interfaces.backend import BackendInitContext
    from delegraph.interfaces.backend_cache import BackendCache, cache_of
    from delegraph.interfaces.options import Options
    from delegraph.runtime.resolution.delegates import load_delegates

    cache = cache_of(environment.cache)
    buffers = DelegatesBuffers(plan.name, choices.shared_state, choices.limits, environment.platform)
    states: dict[int, set[str]] = {}
    named_data = program.named_data if noted is None else noted

    def context_for(index: int) -> BackendInitContext:
        def mutable_buffer(name: str, initial: Array) -> Array:
            states.setdefault(index, set()).add(name)
            return buffers.in_memory(name, initial)

        def device_buffer(name: str, initial: Array, make: Callable[[Array], Any]) -> Any:
            states.setdefault(index, set()).add(name)
            return buffers.on_device(backend, name, initial, make)

        backend = plan.delegates[index].id
        runtime_specs = Options(options.get(backend, {}))
        return BackendInitContext(
            plan.name,
            named_data,
            runtime_specs,
            tracer,
            environment.platform,
            mutable_buffer,
            BackendCache(backend, cache, program.digest),
            device_buffer,
        )

    # A handle that was made with other options, or reports to another tracer, is not what this caller asked for.
    alike = like is not None and (like.options, like.event_tracer) == (options, tracer)
    delegates, destroy = load_delegates(
        plan,
        program.records.delegate_data,
        environment.backend_registry(),
        backends,
        context_for,
        program.release,
        like.all if like is not None and alike else (),
        replaceable,
    )
    destroy = in_flight.destroying(destroy)
    return LoadedDelegates(delegates, options, tracer, buffers.own, states, in_flight, destroy, keys_read)


def _nothing() -> None:
    """Destroys no delegates."""


def _places(plan: ExecutionPlan, memory: MemoryManager, backends: Backends) -> dict[int, Place]:
    """The devices of the inputs that are on one, by the value's index."""
    devices = input_devices(plan)
    if not devices:
        return {}
    from delegraph.runtime.calls.device_inputs import input_places  # seldom needed: a part of every start otherwise

    return input_places(plan, devices, memory.planned_memory, backends)


def _bound(
    program: LoadedProgram,
    chosen: ChosenPlan,
    choices: Choices,
    memory: MemoryManager,
    loaded: LoadedDelegates,
    places: Mapping[int, Place],
    like: LoadedMethod | None,
) -> LoadedMethod:
    """The values in `memory`, and the instructions bound to them and to the delegates."""
    environment, limits, tracer, plan = program.environment, choices.limits, choices.event_tracer, chosen.plan
    sources = program.tensor_sources(memory.planned_memory, choices.shared_memory_id)
    values, lent = _values(plan, choices, sources, loaded.all)
    kernels = resolve_kernels(plan, environment.kernel_registry()) if like is None else like.kernels
    context = MethodContext(plan.name, values, memory.temp_allocator, tracer)
    check = environment.checks_calls  # one call at a time is watched
    schedule = IN_ORDER if check else make_schedule(plan, loaded.all, loaded.states, loaded.in_flight)
    binder = Binder(plan, values, kernels, loaded.all, context, schedule)
    finish = around_calls(binder, check, memory.temp_allocator, tracer, chosen.origins)
    execute = bind_method(binder, finish, limits, tracer, loaded.in_flight, chosen.origins)
    shared = choices.shared_state
    alone = Exclusive(f"method {plan.name!r}") if shared is None else shared.alone
    buffers = {**loaded.buffers, **buffers_of(plan, values, sources, shared)}
    return LoadedMethod(
        chosen=chosen,
        planned_memory=memory.planned_memory,
        values=values,
        kernels=kernels,
        delegates=loaded,
        schedule=schedule,
        inputs=MethodInputs(plan, values, program.contracts.get(plan.name), lent.inputs, choices.borrowing, places),
        outputs=Outputs(plan, values, lent.outputs),
        own_outputs=choices.borrowing.outputs == "copy",
        state=State(dict(sorted(buffers.items())), [alone]),
        caller_sets=any(not buffer.is_set for buffer in buffers.values()),
        alone=alone,
        execute=execute,
        runs=Runs(tuple(delegate.cancel for delegate in loaded.all), limits),
        event_tracer=tracer,
    )


def _values(
    plan: ExecutionPlan, choices: Choices, sources: TensorSources, delegates: Sequence[Delegate]
) -> tuple[ValueTable, Lent]:
    """The value table, and the values that may leave their planned places for the caller's memory."""
    replaced = frozenset(replaced_values(plan))

    def uses() -> Uses:
        from delegraph.runtime.values.uses import Uses  # for inputs and outputs that are worth it

        num_outputs: Callable[[DelegateCall], int | None] = lambda call: delegates[call.delegate_index].num_outputs  # noqa: E731
        return Uses(plan, num_outputs, replaced, {choices.shared_memory_id} - {0})

    again = frozenset(number for number, delegate in enumerate(delegates) if delegate.binds_again)
    lent = find_lent(plan, choices.borrowing, uses, again)
    moving = {index for group in (*lent.inputs.values(), *lent.outputs.values()) for index in group.values}
    copied = unplanned_inputs(plan) if choices.borrowing.inputs == "copy" else frozenset[int]()
    unbounded_bytes = choices.limits.left_for_unbounded(plan)
    return parse_values(plan, sources, replaced, moving, copied, unbounded_bytes), lent


# ---- around loading --------------------------------------------------------------------------------


@contextmanager
def _only_ours(what: str) -> Iterator[None]:
    """Whatever else goes wrong, in a plug-in's hook or for want of memory, becomes an error of ours."""
    try:
        yield
    except DelegraphError:
        raise
    except Exception as error:
        fault = lacking(error) or Internal(cause_of(error))
        raise restated(fault, f"{what}: {fault}") from error
