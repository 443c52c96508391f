"""Blob -> onnxruntime session -> outputs in planned memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import Internal
from delegraph.interfaces import (
    Argument,
    Availability,
    BackendExecutionContext,
    BackendInitContext,
    BackendInterface,
    BlobTensor,
    Buffer,
    CallQueue,
    CompileSpec,
    Event,
    OptionValue,
    is_used_in_place,
    shape_in_run,
    sizes_in_run,
    split_arguments,
)
from delegraph_cpu.blob import (
    BACKEND_ID,
    BLOB_VERSION,
    READABLE_VERSIONS,
    SUBMIT,
    Blob,
    Weight,
    unpack,
)
from delegraph_cpu.graphs.rewriting import rewritten
from delegraph_cpu.runtime.adaptive import ThreadedSession, call_of_the_moment
from delegraph_cpu.runtime.faults import fault_of
from delegraph_cpu.runtime.held_state import HeldState, hold_states
from delegraph_cpu.runtime.onnx_files import onnx_files
from delegraph_cpu.runtime.open_session import FATAL_ONLY, Session, open_session
from delegraph_cpu.runtime.opened import Opened, opened_once
from delegraph_cpu.runtime.options import CpuOptions
from delegraph_cpu.runtime.ort_values import array_in, as_array, ort_value, type_in_graph
from delegraph_cpu.runtime.profiling import ProfiledSession
from delegraph_cpu.runtime.unpacking import unpacked_weights

if TYPE_CHECKING:
    import onnxruntime

    from delegraph.interfaces import DelegateDescription


__all__ = ["CpuBackend"]


@dataclass(frozen=True, slots=True)
class CpuHandle:
    """A loaded blob. Forks, and other loads of the same memory, share what was `opened`.

    `options` stop its runs; `states` are the buffers that it changes, whose memory is the runtime's.
    """

    opened: Opened
    options: onnxruntime.RunOptions
    states: tuple[HeldState, ...] = ()
    submits: bool = False

    @property
    def session(self) -> Session:
        """An onnxruntime session, a `ThreadedSession` that has the one for each call, or a `ProfiledSession` around one
        after the other."""
        return self.opened.session

    @property
    def blob(self) -> Blob:
        """The blob, with the graph that the engine got."""
        return self.opened.blob

    @property
    def memory(self) -> tuple[NDArray[Any], ...]:
        """The weights, which the session reads and does not own."""
        return self.opened.memory


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

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> CpuHandle:
        """Make a session of a blob. Its weights stay where they are, in `processed` or the named data.

        Raises `DelegateInvalidCompatibility` for a blob that is damaged or that onnxruntime refuses, and
        `InvalidArgument` for options (see `CpuOptions`) that do not exist or contradict those of earlier delegates.
        """
        options = self._defaults().updated(context.runtime_specs)
        cache = context.cache.in_folder(options.cache) if options.cache else context.cache
        tracer = context.event_tracer if options.profiling else None

        def make() -> Opened:
            blob, weights = _opened(processed, context.named_data)
            shared = [context.named_data[weight.key] for weight in blob.weights if weight.key is not None]
            session, memory = open_session(blob, weights, options, tracer, cache, [processed, *shared])
            return Opened(session, blob, memory, (processed, *context.named_data.values()))

        choices = None if tracer is not None else (options, cache)
        opened = opened_once(processed, context.named_data, choices, make)
        submits = any(spec.key == SUBMIT for spec in compile_specs)
        return CpuHandle(opened, _run_options(), hold_states(opened.blob, context.mutable_buffer), submits)

    def fork(self, context: BackendInitContext, handle: CpuHandle) -> CpuHandle | None:
        """The same session, which several threads may run at a time, on other states; None for one with a profile."""
        if isinstance(handle.session, ProfiledSession):
            return None
        return replace(handle, options=_run_options(), states=hold_states(handle.blob, context.mutable_buffer))

    def execute(self, context: BackendExecutionContext, handle: CpuHandle, args: Sequence[Argument]) -> None:
        """Run once, writing each output into its planned memory; only a non-contiguous output is copied there."""
        _prepared(context, handle, args)()

    def submits(self, handle: CpuHandle) -> bool:
        """Whether its partitioner was asked for it."""
        return handle.submits and not isinstance(handle.session, ProfiledSession)

    def submit(self, context: BackendExecutionContext, handle: CpuHandle, args: Sequence[Argument]) -> Event:
        """Bind the arguments here, and run in a thread."""
        return self._queue.submit(_prepared(context, handle, args))

    def bind_submit(
        self, context: BackendExecutionContext, handle: CpuHandle, args: Sequence[Argument]
    ) -> Callable[[], Event] | None:
        """The call that `bind` gives, made in a thread."""
        bound = self.bind(context, handle, args)
        return None if bound is None else partial(self._queue.submit, bound)

    def bind(
        self, context: BackendExecutionContext, handle: CpuHandle, args: Sequence[Argument]
    ) -> Callable[[], object] | None:
        """A call with inputs and outputs bound once, if all are arrays that onnxruntime can use in place, and the
        outputs' shapes follow from the inputs'. None for a profiled session, which is replaced from time to time.
        """
        infos = (*handle.blob.inputs, *handle.blob.outputs)
        if isinstance(handle.session, ProfiledSession) or len(args) != len(infos) or not all(map(_fits, infos, args)):
            return None
        if isinstance(handle.session, ThreadedSession):
            return call_of_the_moment(handle.session, partial(_bound, context, handle, args))
        return _bound(context, handle, args, handle.session)

    def engine_files(
        self, name: str, processed: Buffer, named_data: Mapping[str, Buffer]
    ) -> Mapping[str, Sequence[Buffer]]:
        """The ONNX model, its weights in it or, where it would be too large, beside it."""
        blob, weights = _opened(processed, named_data)
        return onnx_files(name, blob.graph, weights)

    def describe(
        self, processed: Buffer, compile_specs: Sequence[CompileSpec], named_data: Mapping[str, Buffer]
    ) -> DelegateDescription:
        """The nodes of the ONNX graph, and its weights; onnxruntime is not needed for it."""
        from delegraph_cpu.runtime.describing import described

        return described(processed, named_data)

    def cancel(self, handle: CpuHandle, requested: bool) -> None:
        """onnxruntime stops between two of its nodes, in the bodies of loops as well, not within a node."""
        handle.options.terminate = requested

    def num_outputs(self, handle: CpuHandle) -> int:
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


# ---- loading ------------------------------------------------------------------------------------------------------


def _opened(processed: Buffer, named_data: Mapping[str, Buffer]) -> tuple[Blob, dict[str, NDArray[Any]]]:
    """A blob, with its graph written anew for the engine; and the weights of that graph, which reads no file."""
    blob = unpack(processed)
    lying = {weight.name: _array(weight, blob, named_data) for weight in blob.weights}
    elsewhere = {weight.key: weight.nbytes for weight in blob.weights if weight.key is not None}
    weights = unpacked_weights(blob.unpacked, lying, len(blob.data) + sum(elsewhere.values()))
    types = {name: type_in_graph(array) for name, array in weights.items()}
    return replace(blob, graph=rewritten(blob.graph, types)), weights


def _array(weight: Weight, blob: Blob, named_data: Mapping[str, Buffer]) -> NDArray[Any]:
    """A weight's content, where it lies."""
    return np.require(array_in(blob.bytes_of(weight, named_data), weight.dtype, weight.shape), requirements="A")


# ---- running ------------------------------------------------------------------------------------------------------


def _prepared(context: BackendExecutionContext, handle: CpuHandle, args: Sequence[Argument]) -> Callable[[], None]:
    """A run, with inputs and outputs bound."""
    arguments, outputs = split_arguments(BACKEND_ID, args, len(handle.blob.inputs), len(handle.blob.outputs))
    session = handle.session.session() if isinstance(handle.session, ThreadedSession) else handle.session
    binding = session.io_binding()
    inputs = _bind_inputs(binding, handle.blob.inputs, arguments)
    shapes = _output_shapes(handle, inputs)
    copies = _bind_outputs(context, binding, handle.blob.outputs, shapes, outputs)
    if not copies and _gives_nothing(handle, shapes):
        return lambda: None
    _bind_states(binding, handle)

    def run() -> None:
        _run_bound(session.run_with_iobinding, binding, handle.options, handle.states, handle.blob, inputs)
        if copies:
            results = binding.get_outputs()
            for index, out in copies:
                result = as_array(results[index], handle.blob.outputs[index].dtype)
                np.copyto(context.resize(out, result.shape), result)

    return run


def _fits(info: BlobTensor, argument: Argument) -> bool:
    """Whether `argument` is a number, which never changes, or an array that onnxruntime can use in place."""
    return info.scalar or (is_used_in_place(argument))


def _bind_inputs(
    binding: onnxruntime.IOBinding, infos: Sequence[BlobTensor], args: Sequence[Argument]
) -> list[NDArray[Any] | None]:
    """Bind the inputs; returns the arrays, which must outlive the run. An argument without dtype is not the graph's."""
    arrays: list[NDArray[Any] | None] = []
    for info, argument in zip(infos, args, strict=False):
        array = None
        if info.dtype:
            array = np.require(argument, info.dtype if info.scalar else None, ("C", "A"))
            binding.bind_ortvalue_input(info.name, ort_value(array))
        arrays.append(array)
    return arrays


def _bind_outputs(
    context: BackendExecutionContext,
    binding: onnxruntime.IOBinding,
    infos: Sequence[BlobTensor],
    shapes: Sequence[tuple[int, ...] | None],
    outputs: Sequence[Argument],
) -> list[tuple[int, NDArray[Any]]]:
    """Bind the outputs to their planned memory; returns (index, out) of those that must be copied after the run."""
    copies = []
    for index, (info, shape, out) in enumerate(zip(infos, shapes, outputs, strict=True)):
        if not isinstance(out, np.ndarray):
            raise Internal(f"output {index} of a delegate of CpuBackend is {out!r:.40}, not a tensor")
        if shape is not None and out.shape != shape:
            out = context.resize(out, shape)
        if shape is not None and is_used_in_place(out):
            binding.bind_ortvalue_output(info.name, ort_value(out))
        else:
            binding.bind_output(info.name)
            copies.append((index, out))
    return copies


def _bind_states(binding: onnxruntime.IOBinding, handle: CpuHandle) -> None:
    """Bind the states as inputs, and their new values as outputs behind the others."""
    for state in handle.states:
        binding.bind_ortvalue_input(state.name, state.value)
        binding.bind_ortvalue_output(state.output, state.new_value)


def _output_shapes(handle: CpuHandle, inputs: Sequence[NDArray[Any] | None]) -> list[tuple[int, ...] | None]:
    """The output shapes of a run on `inputs`; None where a size is no input's."""
    sizes = sizes_in_run(BACKEND_ID, (info.shape for info in handle.blob.inputs), inputs)
    return [shape_in_run(info.shape, sizes) for info in handle.blob.outputs]


def _gives_nothing(handle: CpuHandle, shapes: Sequence[tuple[int, ...] | None]) -> bool:
    """Whether a run has no elements to compute: a batch of 0, which several of onnxruntime's kernels refuse."""
    return not handle.states and all(shape is not None and 0 in shape for shape in shapes)


def _run_options() -> onnxruntime.RunOptions:
    from delegraph_cpu.engine import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = FATAL_ONLY
    # No capture of graphs, of which CPUs have none: onnxruntime looks this entry up in each run, and where it is
    # missing that costs an exception, 40 us (1.31, `_graph_annotation_id` in onnxruntime_inference_collection.py).
    options.add_run_config_entry("gpu_graph_id", "-1")
    return options


def _bound(
    context: BackendExecutionContext,
    handle: CpuHandle,
    args: Sequence[Argument],
    session: onnxruntime.InferenceSession,
) -> Callable[[], object] | None:
    """A call of `session`; None if outputs must be copied."""
    binding = session.io_binding()
    inputs = _bind_inputs(binding, handle.blob.inputs, args)
    shapes = _output_shapes(handle, inputs)
    if _bind_outputs(context, binding, handle.blob.outputs, shapes, args[len(handle.blob.inputs) :]):
        return None
    if _gives_nothing(handle, shapes):
        return lambda: None  # there is nothing to compute
    _bind_states(binding, handle)
    from delegraph_cpu.sessions import run_of

    run, bound = run_of(session, binding)
    return partial(_run_bound, run, bound, handle.options, handle.states, handle.blob, inputs, binding)


def _run_bound(
    run: Callable[[Any, onnxruntime.RunOptions], object],
    binding: object,
    options: onnxruntime.RunOptions,
    states: Sequence[HeldState],
    blob: Blob,
    inputs: Sequence[NDArray[Any] | None],
    keep: object = None,
) -> None:
    """Run `binding`. The arguments live as long as the call: `inputs`, to which the binding only points, and `keep`."""
    try:
        run(binding, options)
    except Exception as error:  # pybind's exceptions have no common base
        raise fault_of(error, blob, inputs) from error
    for state in states:
        state.take_over()
