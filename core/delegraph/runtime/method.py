"""Plan -> Method: values parsed, memory planned, delegates initialised, instructions bound. One thread at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from delegraph.errors import (
    DelegateInvalidHandle,
    DelegraphError,
    Internal,
    InvalidState,
    MemoryAllocationFailed,
    NotFound,
)
from delegraph.interfaces.backend import BackendInitContext
from delegraph.interfaces.kernel import BoundCall
from delegraph.interfaces.options import Options
from delegraph.program.schema import ExecutionPlan, Tensor
from delegraph.runtime.binding.checking import InstructionCheck, is_asked_for
from delegraph.runtime.binding.instructions import Binder, bind_blocks, replaced_values, resolve_kernels
from delegraph.runtime.binding.shape_bindings import SettledBinder, ShapeBindings
from delegraph.runtime.calls.arguments import Arguments
from delegraph.runtime.calls.method_inputs import MethodInputs
from delegraph.runtime.calls.outputs import Outputs
from delegraph.runtime.calls.targets import TargetCheck, Targets
from delegraph.runtime.execution import executor
from delegraph.runtime.execution.exclusive import Exclusive
from delegraph.runtime.execution.faults import instruction_fault
from delegraph.runtime.execution.limits import Limits
from delegraph.runtime.execution.stop import Runs, Stop
from delegraph.runtime.execution.tracing import EXECUTE, LOAD_METHOD, DebugLevel, EventTracer, InstructionTracer
from delegraph.runtime.method_meta import MethodMeta
from delegraph.runtime.resolution.backend_options import BackendOptions, by_backend_id
from delegraph.runtime.resolution.context import MethodContext
from delegraph.runtime.resolution.delegates import find_backends, load_delegates
from delegraph.runtime.shared_state import SharedState, buffer_name, delegates_buffers, planned_buffer
from delegraph.runtime.state import State, StateBuffer
from delegraph.runtime.values.borrowing import Borrowing, Lent, Uses, find_lent
from delegraph.runtime.values.device_memory import planned_buffers
from delegraph.runtime.values.memory import HierarchicalAllocator, MemoryManager, callers_buffers
from delegraph.runtime.values.tensors import any_torch_tensor, to_torch
from delegraph.runtime.values.value_parser import parse_values
from delegraph.runtime.values.values import Array
from delegraph.runtime.values.writes import unplanned_inputs

if TYPE_CHECKING:
    from delegraph.interfaces.kernel import Kernel
    from delegraph.program.kernel_calls import Need
    from delegraph.runtime.binding.instructions import Finish
    from delegraph.runtime.execution.executor import Block, FaultOf
    from delegraph.runtime.program import Program
    from delegraph.runtime.resolution.delegates import Delegate


class Method:
    """One loaded method. Its state, planned memory with mutable buffers, lives as long as it does, or its SharedState.

    Made by `Program.load_method`. Several Methods, also of one name, may execute at the same time; one Method may not:
    a second thread gets `InvalidState`. After an error a Method can be used again.
    """

    def __init__(
        self,
        program: Program,
        plan: ExecutionPlan,
        memory_manager: MemoryManager | None = None,
        event_tracer: EventTracer | None = None,
        backend_options: BackendOptions | None = None,
        limits: Limits | None = None,
        shared_state: SharedState | None = None,
        like: Method | None = None,
        borrowing: Borrowing | None = None,
        memory: Mapping[int, Any] | None = None,
    ) -> None:
        self.program = program
        self._plan = plan
        self._contract = program.contracts.get(plan.name)
        self._tracer = event_tracer
        self._borrowing = borrowing or Borrowing()
        self._limits = limits or program.environment.limits
        self._shared = shared_state if shared_state is not None and plan.name in shared_state.methods else None
        self._alone = Exclusive(f"method {plan.name!r}") if self._shared is None else self._shared.alone
        self._delegates: tuple[Delegate, ...]
        self._kernels: Mapping[Need, Kernel]
        self._delegates_buffers: dict[str, StateBuffer] = {}
        with _load_traced(event_tracer, plan.name), _only_ours(f"method {plan.name!r} cannot be loaded"):
            self._memory = memory_manager or _new_memory(program, plan, self._limits, self._shared, memory or {})
            self._load(self._memory, backend_options or {}, like)
        self.state = State(self._state_buffers(), [self._alone])
        """The mutable buffers, by name."""
        self._caller_sets = [buffer for buffer in self.state.buffers.values() if not buffer.is_set]
        self._own = self._borrowing.outputs == "copy"
        self._targets: Targets | None = None
        self._has_run = False
        self._closed = False
        self._torch = False

    # ---- loading ----

    def _load(self, memory: MemoryManager, backend_options: BackendOptions, like: Method | None) -> None:
        plan, environment = self._plan, self.program.environment
        self._limits.require(plan)
        memory.planned_memory.require(plan.non_const_buffer_sizes[1:])
        if self._tracer is not None:
            self._tracer.track_allocation("planned memory", sum(plan.non_const_buffer_sizes))
        self._sources = self.program.tensor_sources(
            memory.planned_memory, 0 if self._shared is None else self._shared.memory_id
        )
        options = by_backend_id(backend_options, self.program.backend_ids, environment.plugin_registry())
        mutable_buffer = delegates_buffers(
            plan.name, self._delegates_buffers, self._shared, self._limits, environment.platform
        )
        self._set_up = (options, self._tracer)
        self._delegates, destroy = load_delegates(
            plan,
            self.program.records.delegate_data,
            environment.backend_registry(),
            lambda backend_id: BackendInitContext(
                plan.name,
                self.program.named_data,
                Options(options.get(backend_id, {})),
                self._tracer,
                environment.platform,
                mutable_buffer,
            ),
            self.program.release,
            like._delegates if like is not None and like._set_up == self._set_up else (),
        )
        self._destroy = weakref.finalize(self, destroy)
        delegates = self._delegates
        self._runs = Runs(tuple(delegate.cancel for delegate in delegates), self._limits)
        try:
            replaced = set(replaced_values(plan))
            lent = self._lent(delegates, replaced)
            moving = {index for group in (*lent.inputs.values(), *lent.outputs.values()) for index in group.values}
            copied = unplanned_inputs(plan) if self._borrowing.inputs == "copy" else frozenset[int]()
            self._values = parse_values(
                plan, self._sources, replaced, moving, copied, self._limits.left_for_unbounded(plan)
            )
            self._context = MethodContext(plan.name, self._values, memory.temp_allocator, self._tracer)
            kernels = resolve_kernels(plan, environment.kernel_registry()) if like is None else like._kernels
            self._kernels = kernels
            self.kernels = {kernel.op: kernel.library for kernel in kernels.values()}
            """Which kernel library each operator runs on."""
            binder = Binder(plan, self._values, kernels, delegates, self._context)
            with np.errstate(all="ignore"):
                fault_of = partial(instruction_fault, plan, self._values.slots)
                blocks = bind_blocks(plan, binder, self._finish(memory), fault_of)
            self._inputs = MethodInputs(plan, self._values, self._contract, lent.inputs, self._borrowing)
            self._outputs = Outputs(plan, self._values, lent.outputs)
            execute = self._how_to_execute(blocks, kernels, delegates, memory, fault_of)
            if kernels:  # whose arithmetic is NumPy's; to set this costs as much as a small delegate
                execute = np.errstate(all="ignore")(execute)
            self._execute = _run_traced(self._tracer, plan.name, execute)
        except BaseException:
            self._destroy()
            raise

    def _lent(self, delegates: Sequence[Delegate], replaced: Collection[int]) -> Lent:
        shared = 0 if self._shared is None else self._shared.memory_id
        again = frozenset(number for number, delegate in enumerate(delegates) if delegate.binds_again)
        return find_lent(
            self._plan,
            self._borrowing,
            lambda: Uses(self._plan, lambda call: delegates[call.delegate_index].num_outputs, replaced, {shared} - {0}),
            again,
        )

    def _finish(self, memory: MemoryManager) -> Finish:
        """The wrapper around each bound call: none, unless it is traced, checked or has bounded temporary memory."""
        finish: Finish = lambda call, chain, instruction: call  # noqa: E731
        if is_asked_for(self.program.environment.check):
            finish = InstructionCheck(self._plan, self._values, self._delegates, self._context).checked
        if memory.temp_allocator is not None:
            finish = _resetting(memory.temp_allocator.reset, finish)
        if self._tracer is not None:
            finish = InstructionTracer(self._tracer, self._plan, self._values.slots).around(finish)
        return finish

    def _how_to_execute(
        self,
        blocks: tuple[Block, ...],
        kernels: Mapping[Need, Kernel],
        delegates: Sequence[Delegate],
        memory: MemoryManager,
        fault_of: FaultOf,
    ) -> Callable[[Stop], None]:
        """The function that runs the instructions; it remembers shapes where those of the inputs change."""
        plan, values, moving = self._plan, self._values, self._values.moving
        if any(index in moving and moving[index].resizable for index in plan.inputs):
            context, finish = self._context, self._finish(memory)
            return ShapeBindings(
                plan,
                values,
                blocks,
                lambda values: SettledBinder(plan, values, kernels, delegates, context),
                lambda binder: bind_blocks(plan, binder, finish, fault_of),
                fault_of,
                self._limits,
            ).run
        if len(blocks) == 1 and blocks[0].condition is None:
            return partial(executor.run_block, blocks[0], fault_of)
        return partial(executor.run, blocks, fault_of, self._limits)

    # ---- executing ----

    def execute(
        self, inputs: Sequence[object], *, clone_outputs: bool | None = None, out: Sequence[object] | None = None
    ) -> list[Any]:
        """Set the inputs, run, and return the outputs, each an array or a Python scalar.

        Inputs are NumPy arrays of any strides, torch tensors, objects with `__dlpack__`, or Python scalars where the
        model takes them. If a torch tensor is among them, the outputs are torch tensors. Some are read where the caller
        has them (`borrowed_inputs`), during this call alone; after it `run` wants inputs to be set again.

        Outputs are the caller's own; with `clone_outputs=False` (None: as it was loaded) those in planned memory are
        views of it, and the next execution overwrites them. `out` has an array or a torch tensor for each output, of
        its shape and dtype, that gets it and is returned, or None. It is written during the run where nothing else of
        the method uses the output's memory, else behind it; its content after an error is undefined.

        Raises `InvalidArgument` or `InvalidType` for inputs or `out` that do not fit, `InvalidState` while another
        thread is executing this Method or where the caller has not set a buffer that has no planned memory, and
        whatever fault an instruction meets, with its place.
        """
        own = self._own if clone_outputs is None else clone_outputs
        with self._alone:
            targets = self._targets if out is None else self._new_targets(out, inputs)
            self._torch = any_torch_tensor(inputs)
            try:
                self._inputs.set(inputs, self._inputs.of_calls)
                self._run(own, targets)
                return self._get_outputs(own, targets)
            finally:
                if self._inputs.lent:
                    self._inputs.give_back()

    def set_inputs(self, inputs: Sequence[object]) -> None:
        """Set all inputs, for one `run` or several. Raises as `execute`.

        They are copied, but for those without planned memory; loaded with `inputs="borrow"`, the arrays of
        `borrowed_inputs` are read by each `run`, and must not go or change meanwhile.
        """
        with self._alone:
            self._torch = any_torch_tensor(inputs)
            self._inputs.set(inputs, self._inputs.of_steps)

    def set_outputs(self, out: Sequence[object] | None) -> None:
        """Let outputs go to `out`, as `execute` does, in each run from now on; None: no more. Raises as `execute`."""
        with self._alone:
            self._targets = None if out is None else self._new_targets(out, ())

    def run(self) -> None:
        """Execute on the inputs that were set last. Raises `InvalidState` if none were, and as `execute`."""
        with self._alone:
            self._run(self._own, self._targets)

    def get_outputs(self, *, clone_outputs: bool | None = None) -> list[Any]:
        """The outputs of the last run; see `execute`. Raises `InvalidState` if there was none, or it failed."""
        with self._alone:
            if not self._has_run:
                raise InvalidState(
                    f"method {self._plan.name!r} has no outputs yet: its last run failed, or none was made"
                )
            return self._get_outputs(self._own if clone_outputs is None else clone_outputs, self._targets)

    @cached_property
    def _new_targets(self) -> TargetCheck:
        own = [buffer for buffer in self._memory.planned_memory.buffers if isinstance(buffer, np.ndarray)]
        own += [buffer.array for buffer in self.state.buffers.values()]
        return TargetCheck(self._plan, self._values, own)

    def _run(self, own: bool, targets: Targets | None) -> None:
        if self._closed:
            raise DelegateInvalidHandle(f"method {self._plan.name!r} was closed; load it again")
        if not self._inputs.are_set:
            text = "are not set; execute reads them during its call alone" if self._has_run else "were never set"
            raise InvalidState(f"method {self._plan.name!r}: its inputs {text}")
        if self._caller_sets:
            self._check_set()
        if self._outputs.moves:
            self._outputs.prepare(own, targets)
        stop = self._runs.begin()
        try:
            self._execute(stop)
            if targets is not None:
                self._outputs.deliver(targets)
        except BaseException:
            self._has_run = False
            self._values.restore_scalars()
            raise
        finally:
            self._runs.end(stop)
        self._has_run = True
        if self._tracer is not None and self._tracer.debug_level >= DebugLevel.PROGRAM_OUTPUTS:
            for index in self._plan.outputs:
                self._tracer.log_value("output", self._values.slots[index], value_index=index)

    def cancel(self) -> bool:
        """End the execution that runs now, from another thread: it raises `Cancelled`, and can be started again.

        It ends before its next instruction; within one only if that is a delegate whose backend can be stopped. False
        if nothing runs.
        """
        return self._runs.cancel()

    def _get_outputs(self, own: bool, targets: Targets | None) -> list[Any]:
        if targets is not None and targets.take_all:
            return list(targets.passed)
        outputs = self._outputs.get(own)
        outputs = to_torch(outputs) if self._torch else outputs
        if targets is None:
            return outputs
        return [output if target is None else target for output, target in zip(outputs, targets.passed, strict=True)]

    # ---- state ----

    @property
    def arguments(self) -> Arguments:
        """The inputs' names, and how a call's arguments become inputs."""
        return self._inputs.arguments

    @property
    def borrowed_inputs(self) -> tuple[int, ...]:
        """The inputs, by position, that `execute` reads where the caller has them; all others it copies."""
        return self._inputs.borrowed

    @property
    def metadata(self) -> MethodMeta:
        """The method's inputs and outputs."""
        return MethodMeta(self._plan, self._contract)

    def get_attribute(self, name: str) -> Array:
        """The named mutable buffer: a view of its memory, to read or to set. Raises `NotFound`.

        One without planned memory holds zeros until it is set here, which has to be done before the first execution.
        """
        try:
            return self.state[name]
        except NotFound as error:
            raise NotFound(f"method {self._plan.name!r}: {error}") from None

    def _state_buffers(self) -> dict[str, StateBuffer]:
        """The buffers that the file names, those that methods share, and those that delegates keep."""
        shared = {} if self._shared is None else self._shared.buffers
        buffers = dict(self._delegates_buffers)
        for index, record in enumerate(self._plan.values):
            if isinstance(record, Tensor) and (name := buffer_name(record, self._shared)):
                buffer = shared.get(name) or self._state_buffer(index, record)
                if buffer is not None:
                    buffers[name] = buffer
        return dict(sorted(buffers.items()))

    def _state_buffer(self, index: int, record: Tensor) -> StateBuffer | None:
        """The buffer of a named tensor; None for a constant, and for a tensor on a device."""
        if record.allocation_info is not None:
            memory = self._memory.planned_memory.buffers[record.allocation_info.memory_id - 1]
            return planned_buffer(record, memory, self._sources) if isinstance(memory, np.ndarray) else None
        moving = self._values.moving.get(index)
        if moving is None or moving.memory is None or index in (*self._plan.inputs, *self._plan.outputs):
            return None
        return StateBuffer(moving.view(moving.bound), is_set=False)

    def copy_memory_of(self, other: Method) -> None:
        """Copy the planned memory and state of `other`, of the same program and name."""
        with self._alone:
            other._copy_memory_to(self)

    def _copy_memory_to(self, destination: Method) -> None:
        with self._alone:
            pairs = zip(destination._memory.planned_memory.buffers, self._memory.planned_memory.buffers, strict=True)
            for target, source in pairs:
                # Memory on a device has no state: each run computes it anew.
                if isinstance(target, np.ndarray) and isinstance(source, np.ndarray):
                    target[:] = source
            for name, buffer in self.state.buffers.items():
                destination.state.buffers[name].set(buffer.array)
                destination.state.buffers[name].is_set = buffer.is_set

    def _check_set(self) -> None:
        unset = sorted(name for name, buffer in self.state.buffers.items() if not buffer.is_set)
        if not unset:
            return
        raise InvalidState(
            f"method {self._plan.name!r}: nothing says what {', '.join(map(repr, unset))} holds at first:"
            " the program was lowered with alloc_mutable_buffers=False, which leaves that to the caller\n"
            f"  what to do: set it before the first execution, method.get_attribute({unset[0]!r})[:] = …, or lower"
            " with alloc_mutable_buffers=True, which keeps the model's value in the file"
        )

    @property
    def is_closed(self) -> bool:
        """Whether its delegates were destroyed."""
        return self._closed

    def close(self) -> None:
        """Destroy the delegates now, not when the last reference goes. The Method cannot run any more.

        Raises `Internal` if a backend's `destroy` raises; the other delegates are destroyed all the same.
        """
        with self._alone:
            self._closed = True
            try:
                self._destroy()
            except Exception as error:
                raise Internal(f"method {self._plan.name!r}: destroying a delegate: {error}") from error

    def __repr__(self) -> str:
        return (
            f"Method({self._plan.name!r}, {sum(len(chain.instructions) for chain in self._plan.chains)} instructions)"
        )

    def _repr_html_(self) -> str:
        """The HTML that notebooks show."""
        return self.metadata._repr_html_()


def _new_memory(
    program: Program, plan: ExecutionPlan, limits: Limits, shared: SharedState | None, callers_memory: Mapping[int, Any]
) -> MemoryManager:
    limits.require_planned(plan)
    backends = find_backends(plan, program.environment.backend_registry()) if plan.non_const_buffer_device else {}
    own = callers_buffers(callers_memory, plan.non_const_buffer_sizes[1:], 0 if shared is None else shared.memory_id)
    own |= {} if shared is None else {shared.memory_id: shared.memory}
    return MemoryManager(HierarchicalAllocator(planned_buffers(plan, program.environment.platform, backends, own)))


def _resetting(reset: Callable[[], None], inner: Finish) -> Finish:
    def finish(call: BoundCall, chain: int, instruction: int) -> BoundCall:
        call = inner(call, chain, instruction)

        def run() -> None:
            try:
                call()
            finally:
                reset()

        return run

    return finish


@contextmanager
def _only_ours(what: str) -> Iterator[None]:
    """Whatever else goes wrong, in a plug-in's hook or for want of memory, becomes an error of ours."""
    try:
        yield
    except DelegraphError:
        raise
    except MemoryError as error:
        raise MemoryAllocationFailed(f"{what}: the system did not give the memory for it") from error
    except Exception as error:
        raise Internal(f"{what}: {type(error).__name__}: {error}") from error


def _load_traced(tracer: EventTracer | None, method_name: str) -> AbstractContextManager[None]:
    if tracer is None:
        return nullcontext()
    tracer.create_event_block(f"{LOAD_METHOD} {method_name}")
    return tracer.profile(LOAD_METHOD, metadata=method_name.encode())


def _run_traced(
    tracer: EventTracer | None, method_name: str, execute: Callable[[Stop], None]
) -> Callable[[Stop], None]:
    if tracer is None:
        return execute

    def traced(stop: Stop) -> None:
        tracer.create_event_block(EXECUTE)
        with tracer.profile(EXECUTE, metadata=method_name.encode()):
            execute(stop)

    return traced
