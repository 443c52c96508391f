"""LoadedMethod -> Method: inputs set, instructions run, outputs given, state kept. One thread at a time."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from delegraph.errors import DelegateInvalidHandle, Internal, InvalidState, NotFound, cause_of
from delegraph.runtime.binding.schedule import ScheduledStep
from delegraph.runtime.calls.arguments import Arguments
from delegraph.runtime.loaded_program import LoadedProgram
from delegraph.runtime.loading import LoadedMethod
from delegraph.runtime.method_meta import MethodMeta
from delegraph.runtime.resolution.alternatives import DelegateChoice
from delegraph.runtime.state import require_set
from delegraph.runtime.values.tensors import any_torch_tensor, to_torch
from delegraph.runtime.values.values import Array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delegraph.runtime.calls.targets import TargetCheck, Targets


class Method:
    """One loaded method. Its state, planned memory with mutable buffers, lives as long as it does, or its SharedState.

    Made by `Program.load_method`. Several Methods, also of one name, may execute at the same time; one Method may not:
    a second thread gets `InvalidState`. (A `Module` may be called from any: it has Methods as they are needed.) After
    an error a Method can be used again.
    """

    def __init__(self, program: LoadedProgram, loaded: LoadedMethod) -> None:
        weakref.finalize(self, loaded.delegates.destroy)
        self.program = program
        self._loaded = loaded
        self.state = loaded.state
        """The mutable buffers, by name."""
        self._alone = loaded.alone
        self._targets: Targets | None = None
        self._has_run = False
        self._closed = False
        self._files_checked = False
        self._is_mapped = program.is_mapped
        self._torch = False
        """Whether the inputs that were set last have a torch tensor among them."""

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
        thread is executing this Method or where the caller has not set a buffer that has no planned memory,
        `InvalidProgram` or `InvalidExternalData` in the first run, for a file that is damaged where `integrity="lazy"`
        did not look at it before, `AccessFailed` for a mapped file that was changed since, and whatever fault an
        instruction meets, with its place.
        """
        loaded = self._loaded
        own = loaded.own_outputs if clone_outputs is None else clone_outputs
        with self._alone:
            targets = self._targets if out is None else self._new_targets(out, inputs)
            self._torch = any_torch_tensor(inputs)
            try:
                loaded.inputs.set(inputs, loaded.inputs.of_calls)
                self._run(own, targets)
                return self._get_outputs(own, targets)
            finally:
                if loaded.inputs.lent:
                    loaded.inputs.give_back()

    def set_inputs(self, inputs: Sequence[object]) -> None:
        """Set all inputs, for one `run` or several. Raises as `execute`.

        They are copied, but for those without planned memory; loaded with `inputs="borrow"`, the arrays of
        `borrowed_inputs` are read by each `run`, and must not go or change meanwhile.
        """
        with self._alone:
            self._torch = any_torch_tensor(inputs)
            self._loaded.inputs.set(inputs, self._loaded.inputs.of_steps)

    def set_outputs(self, out: Sequence[object] | None) -> None:
        """Let outputs go to `out`, as `execute` does, in each run from now on; None: no more. Raises as `execute`."""
        with self._alone:
            self._targets = None if out is None else self._new_targets(out, ())

    def run(self) -> None:
        """Execute on the inputs that were set last. Raises `InvalidState` if none were, and as `execute`."""
        with self._alone:
            self._run(self._loaded.own_outputs, self._targets)

    def get_outputs(self, *, clone_outputs: bool | None = None) -> list[Any]:
        """The outputs of the last run; see `execute`. Raises `InvalidState` if there was none, or it failed."""
        with self._alone:
            if not self._has_run:
                raise InvalidState(f"method {self._name!r} has no outputs yet: its last run failed, or none was made")
            own = self._loaded.own_outputs if clone_outputs is None else clone_outputs
            return self._get_outputs(own, self._targets)

    @cached_property
    def _new_targets(self) -> TargetCheck:
        from delegraph.runtime.calls.targets import TargetCheck  # which calls with `out=` alone need

        own: list[Array] = [buffer for buffer in self._loaded.planned_memory.buffers if isinstance(buffer, np.ndarray)]
        own += [buffer.memory for buffer in self.state.buffers.values()]
        return TargetCheck(self._loaded.plan, self._loaded.values, own)

    def _run(self, own: bool, targets: Targets | None) -> None:
        loaded = self._loaded
        if self._closed:
            raise DelegateInvalidHandle(f"method {self._name!r} was closed; load it again")
        if not loaded.inputs.are_set:
            text = "are not set; execute reads them during its call alone" if self._has_run else "were never set"
            raise InvalidState(f"method {self._name!r}: its inputs {text}")
        if self._is_mapped:
            self.program.require_unchanged()
        if not self._files_checked:
            self.program.check_files(loaded.plan, loaded.delegates.named_keys)
            self._files_checked = True
        if loaded.caller_sets:
            require_set(self.state, self._name)
        if loaded.outputs.moves:
            loaded.outputs.prepare(own, targets)
        stop = loaded.runs.begin()
        try:
            loaded.execute(stop)
            if self._is_mapped:
                self.program.require_unchanged()
            if targets is not None:
                loaded.outputs.deliver(targets)
        except BaseException:
            self._has_run = False
            loaded.values.restore_scalars()
            raise
        finally:
            loaded.runs.end(stop)
        self._has_run = True
        if loaded.event_tracer is not None and loaded.event_tracer.keeps_outputs:
            for index in loaded.plan.outputs:
                loaded.event_tracer.log_value("output", loaded.values.slots[index], value_index=index)

    def cancel(self, *, next_run: bool = False) -> bool:
        """End the execution that runs now, from another thread: it raises `Cancelled`, and can be started again.

        It ends before its next instruction; within one only if that is a delegate whose backend can be stopped. False
        if nothing runs. With `next_run`, the next execution ends as it begins, where nothing runs; until `cancel()`.
        """
        return self._loaded.runs.cancel(next_run=next_run)

    def _get_outputs(self, own: bool, targets: Targets | None) -> list[Any]:
        if targets is not None and targets.take_all:
            return list(targets.passed)
        outputs = self._loaded.outputs.get(own)
        outputs = to_torch(outputs) if self._torch else outputs
        if targets is None:
            return outputs
        return [output if target is None else target for output, target in zip(outputs, targets.passed, strict=True)]

    # ---- what was loaded ----

    @property
    def delegate_choices(self) -> tuple[DelegateChoice, ...]:
        """For each delegate that has several blobs or a fall-back in the file, which of them runs here, and why."""
        return self._loaded.chosen.choices

    @property
    def _name(self) -> str:
        return self._loaded.plan.name

    @property
    def kernels(self) -> dict[str, str]:
        """Which kernel library each operator runs on."""
        return {kernel.op: kernel.library for kernel in self._loaded.kernels.values()}

    @property
    def arguments(self) -> Arguments:
        """The inputs' names, and how a call's arguments become inputs."""
        return self._loaded.inputs.arguments

    @property
    def borrowed_inputs(self) -> tuple[int, ...]:
        """The inputs, by position, that `execute` reads where the caller has them; all others it copies."""
        return self._loaded.inputs.borrowed

    @property
    def schedule(self) -> list[ScheduledStep]:
        """The order in which the instructions run, decided when the method was loaded: that of the file, but where
        delegates are submitted, to be at work beside each other and beside kernels, and waited for later."""
        return self._loaded.schedule.steps(self._loaded.plan)

    @property
    def metadata(self) -> MethodMeta:
        """The method's inputs and outputs."""
        return self.program.metadata(self._name)

    # ---- state ----

    def get_attribute(self, name: str) -> NDArray[Any]:
        """The named mutable buffer: a view of its memory, to read or to set. Raises `NotFound`.

        One without planned memory holds zeros until it is set here, which has to be done before the first execution.
        """
        try:
            return self.state[name]
        except NotFound as error:
            raise NotFound(f"method {self._name!r}: {error}") from None

    def copy_memory_of(self, other: Method) -> None:
        """Copy the planned memory and state of `other`, of the same program and name."""
        with self._alone:
            other._copy_memory_to(self)

    def _copy_memory_to(self, destination: Method) -> None:
        with self._alone:
            buffers = (loaded.planned_memory.buffers for loaded in (destination._loaded, self._loaded))
            for target, source in zip(*buffers, strict=True):
                # Memory on a device has no state: each run computes it anew.
                if isinstance(target, np.ndarray) and isinstance(source, np.ndarray):
                    target[:] = source
            for name, buffer in self.state.buffers.items():
                destination.state.buffers[name].set(buffer.array)
                destination.state.buffers[name].is_set = buffer.is_set

    @property
    def keeps_state(self) -> bool:
        """Whether an execution may read what an earlier one left: a mutable buffer, or planned memory that it reads
        before it writes there. A backend's own memory is not known of."""
        if self.state or self._loaded.caller_sets:
            return True
        from delegraph.program.memory.kept import reads_earlier_runs  # where several callers meet

        delegates = self._loaded.delegates.all
        return reads_earlier_runs(self._loaded.plan, lambda call: delegates[call.delegate_index].num_outputs)

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
                self._loaded.delegates.destroy()
            except Exception as error:
                raise Internal(f"method {self._name!r}: destroying a delegate: {cause_of(error)}") from error

    def __repr__(self) -> str:
        count = sum(len(chain.instructions) for chain in self._loaded.plan.chains)
        return f"Method({self._name!r}, {count} instructions)"

    def _repr_html_(self) -> str:
        """The HTML that notebooks show."""
        return self.metadata._repr_html_()
