"""A loaded blob and a call's arguments -> a run of its session, with inputs, outputs and states bound.

For every provider of onnxruntime: what is bound lies in the host's memory, and is copied where the device has another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from delegraph.errors import Internal
from delegraph.interfaces import (
    Argument,
    BackendExecutionContext,
    BlobTensor,
    is_used_in_place,
    shape_in_run,
    sizes_in_run,
    split_arguments,
)
from delegraph.lazy_dataclass import dataclass
from delegraph_cpu.blob import BACKEND_ID, Blob
from delegraph_cpu.runtime.adaptive import ThreadedSession
from delegraph_cpu.runtime.faults import fault_of
from delegraph_cpu.runtime.held_state import HeldState
from delegraph_cpu.runtime.open_session import FATAL_ONLY, Session
from delegraph_cpu.runtime.opened import Opened
from delegraph_cpu.runtime.ort_values import as_array, ort_value

if TYPE_CHECKING:
    import onnxruntime
    from numpy.typing import NDArray

__all__ = ["OrtHandle", "bound", "fits", "prepared", "run_options"]


@dataclass(frozen=True, slots=True)
class OrtHandle:
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


def prepared(context: BackendExecutionContext, handle: OrtHandle, args: Sequence[Argument]) -> Callable[[], None]:
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


def fits(info: BlobTensor, argument: Argument) -> bool:
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
            raise Internal(f"output {index} of a delegate on onnxruntime is {out!r:.40}, not a tensor")
        if shape is not None and out.shape != shape:
            out = context.resize(out, shape)
        if shape is not None and is_used_in_place(out):
            binding.bind_ortvalue_output(info.name, ort_value(out))
        else:
            binding.bind_output(info.name)
            copies.append((index, out))
    return copies


def _bind_states(binding: onnxruntime.IOBinding, handle: OrtHandle) -> None:
    """Bind the states as inputs, and their new values as outputs behind the others."""
    for state in handle.states:
        state.bind(binding)


def _output_shapes(handle: OrtHandle, inputs: Sequence[NDArray[Any] | None]) -> list[tuple[int, ...] | None]:
    """The output shapes of a run on `inputs`; None where a size is no input's."""
    sizes = sizes_in_run(BACKEND_ID, (info.shape for info in handle.blob.inputs), inputs)
    return [shape_in_run(info.shape, sizes) for info in handle.blob.outputs]


def _gives_nothing(handle: OrtHandle, shapes: Sequence[tuple[int, ...] | None]) -> bool:
    """Whether a run has no elements to compute: a batch of 0, which several of onnxruntime's kernels refuse."""
    return not handle.states and all(shape is not None and 0 in shape for shape in shapes)


def run_options() -> onnxruntime.RunOptions:
    from delegraph_cpu.engine import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = FATAL_ONLY
    # No capture of graphs, of which CPUs have none: onnxruntime looks this entry up in each run, and where it is
    # missing that costs an exception, 40 us (1.31, `_graph_annotation_id` in onnxruntime_inference_collection.py).
    options.add_run_config_entry("gpu_graph_id", "-1")
    return options


def bound(
    context: BackendExecutionContext,
    handle: OrtHandle,
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

    run, raw = run_of(session, binding)
    return partial(_run_bound, run, raw, handle.options, handle.states, handle.blob, inputs, binding)


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
        state.take_over(binding)
