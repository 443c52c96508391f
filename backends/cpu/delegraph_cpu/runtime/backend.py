"""Blob -> onnxruntime session -> outputs in planned memory."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from delegraph.interfaces import (
    Argument,
    Availability,
    BackendDevice,
    BackendExecutionContext,
    BackendInitContext,
    BackendInterface,
    Buffer,
    CallQueue,
    CompileSpec,
    Event,
    OptionValue,
    SharedEngines,
)
from delegraph.lazy_dataclass import replace
from delegraph_cpu.blob import (
    BLOB_VERSION,
    READABLE_VERSIONS,
    SUBMIT,
    unpack,
)
from delegraph_cpu.runtime.adaptive import ThreadedSession, call_of_the_moment
from delegraph_cpu.runtime.calls import OrtHandle, bound, fits, prepared, run_options
from delegraph_cpu.runtime.held_state import hold_states
from delegraph_cpu.runtime.onnx_files import onnx_files
from delegraph_cpu.runtime.open_session import TracedSession, open_session
from delegraph_cpu.runtime.opened import Opened
from delegraph_cpu.runtime.options import CpuOptions
from delegraph_cpu.runtime.stored import with_weights

if TYPE_CHECKING:
    from delegraph.interfaces import DelegateDescription


__all__ = ["CpuBackend"]

_IN_USE: Final = SharedEngines[Opened]()


class CpuBackend(BackendInterface):
    """Runs blobs of `delegraph_cpu.aot`. Handles that share no state may be executed at the same time."""

    blob_version = BLOB_VERSION
    oldest_blob_version = READABLE_VERSIONS[0]
    binds_again = True

    def __init__(self) -> None:
        self._options: CpuOptions | None = None
        self._queue = CallQueue("delegraph-cpu", os.cpu_count() or 1)

    def is_available(self) -> Availability:
        """Whether onnxruntime is installed."""
        return Availability.of_package("onnxruntime")

    def devices(self) -> Sequence[BackendDevice]:
        """The processor."""
        return [BackendDevice("CPU", f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores")]

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> OrtHandle:
        """Make a session of a blob. Its weights stay where they are, in `processed` or the named data.

        Raises `DelegateInvalidCompatibility` for a blob that is damaged or that onnxruntime refuses, and
        `InvalidArgument` for options (see `CpuOptions`) that do not exist or contradict those of earlier delegates.
        """
        options = self._defaults().updated(context.runtime_specs)
        cache = context.cache.in_folder(options.cache) if options.cache else context.cache
        tracer = context.event_tracer if options.profiling or options.intermediate_outputs else None

        def make() -> Opened:
            blob, weights = with_weights(unpack(processed), context.named_data)
            shared = [context.named_data[weight.key] for weight in blob.weights if weight.key is not None]
            session, memory = open_session(blob, weights, options, tracer, cache, [processed, *shared])
            return Opened(session, blob, memory)

        choices = None if tracer is not None else (options, cache)
        opened = _IN_USE.opened(processed, context.named_data, choices, make)
        submits = any(spec.key == SUBMIT for spec in compile_specs)
        return OrtHandle(opened, run_options(), hold_states(opened.blob, context.mutable_buffer), submits)

    def fork(self, context: BackendInitContext, handle: OrtHandle) -> OrtHandle | None:
        """The same session, which several threads may run at a time, on other states; None for one that is traced."""
        if isinstance(handle.session, TracedSession):
            return None
        return replace(handle, options=run_options(), states=hold_states(handle.blob, context.mutable_buffer))

    def execute(self, context: BackendExecutionContext, handle: OrtHandle, args: Sequence[Argument]) -> None:
        """Run once, writing each output into its planned memory; only a non-contiguous output is copied there."""
        prepared(context, handle, args)()

    def submits(self, handle: OrtHandle) -> bool:
        """Whether its partitioner was asked for it."""
        return handle.submits and not isinstance(handle.session, TracedSession)

    def submit(self, context: BackendExecutionContext, handle: OrtHandle, args: Sequence[Argument]) -> Event:
        """Bind the arguments here, and run in a thread."""
        return self._queue.submit(prepared(context, handle, args))

    def bind_submit(
        self, context: BackendExecutionContext, handle: OrtHandle, args: Sequence[Argument]
    ) -> Callable[[], Event] | None:
        """The call that `bind` gives, made in a thread."""
        call = self.bind(context, handle, args)
        return None if call is None else partial(self._queue.submit, call)

    def bind(
        self, context: BackendExecutionContext, handle: OrtHandle, args: Sequence[Argument]
    ) -> Callable[[], object] | None:
        """A call with inputs and outputs bound once, if all are arrays that onnxruntime can use in place, and the
        outputs' shapes follow from the inputs'. None for a traced session: one with a profile is replaced now and then.
        """
        infos = (*handle.blob.inputs, *handle.blob.outputs)
        if isinstance(handle.session, TracedSession) or len(args) != len(infos) or not all(map(fits, infos, args)):
            return None
        if isinstance(handle.session, ThreadedSession):
            return call_of_the_moment(handle.session, partial(bound, context, handle, args))
        return bound(context, handle, args, handle.session)

    def engine_files(
        self, name: str, processed: Buffer, named_data: Mapping[str, Buffer]
    ) -> Mapping[str, Sequence[Buffer]]:
        """The ONNX model, its weights in it or, where it would be too large, beside it."""
        blob, weights = with_weights(unpack(processed), named_data)
        return onnx_files(name, blob.graph, weights)

    def describe(
        self, processed: Buffer, compile_specs: Sequence[CompileSpec], named_data: Mapping[str, Buffer]
    ) -> DelegateDescription:
        """The nodes of the ONNX graph, and its weights; onnxruntime is not needed for it."""
        from delegraph_cpu.runtime.describing import described

        return described(unpack(processed), named_data)

    def cancel(self, handle: OrtHandle, requested: bool) -> None:
        """onnxruntime stops between two of its nodes, in the bodies of loops as well, not within a node."""
        handle.options.terminate = requested

    def num_outputs(self, handle: OrtHandle) -> int:
        """The number in the blob's header, which the session confirmed."""
        return len(handle.blob.outputs)

    def set_option(self, options: Mapping[str, OptionValue]) -> None:
        """Change the defaults for delegates loaded from now on; see `CpuOptions`."""
        self._options = self._defaults().updated(options)

    def get_option(self, keys: Sequence[str]) -> dict[str, OptionValue]:
        """The defaults for delegates that are loaded without options of their own."""
        return self._defaults().chosen(keys)

    def _defaults(self) -> CpuOptions:
        if self._options is None:
            self._options = CpuOptions.from_environment()
        return self._options
