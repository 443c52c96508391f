"""Blob -> a session of MNN's -> outputs in planned memory."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import DelegateInvalidCompatibility, Internal, NotSupported
from delegraph.interfaces import (
    Argument,
    Availability,
    BackendDevice,
    BackendExecutionContext,
    BackendInitContext,
    BackendInterface,
    Buffer,
    CompileSpec,
    OptionValue,
    SharedEngines,
    UnusableValue,
    leave_at_fork,
    missing_place,
    shape_in_run,
    sizes_in_run,
    split_arguments,
)
from delegraph.lazy_dataclass import dataclass, replace
from delegraph_cpu.blob import Blob, bytes_of
from delegraph_cpu.runtime.onnx_files import onnx_files
from delegraph_cpu.runtime.stored import with_weights
from delegraph_mnn.blob import BACKEND_ID, FORMAT, unpack
from delegraph_mnn.engine import LEFT, ConversionFailed, mnn, version
from delegraph_mnn.options import MnnOptions
from delegraph_mnn.runtime.conversion import MODEL, convert_into
from delegraph_mnn.runtime.tracing import Place, Run, run_of, with_negated

if TYPE_CHECKING:
    from delegraph.interfaces import DelegateDescription

__all__ = ["MnnBackend"]


@dataclass(slots=True, eq=False, weakref_slot=True)
class Opened:
    """MNN's graph (an `Interpreter`), which loads of the same memory share."""

    interpreter: Any
    blob: Blob

    def __post_init__(self) -> None:
        leave_at_fork(self._leave)

    def _leave(self) -> object:
        left, self.interpreter = self.interpreter, LEFT
        return left


_IN_USE: Final = SharedEngines[Opened]()


@dataclass(slots=True, eq=False, weakref_slot=True)
class Handle:
    """A session of its own on a graph. `inputs` and `outputs` are the places for the sizes of the last run; an input
    that the graph does not read has none. `run` lets the session compute, and may tell a tracer of it."""

    opened: Opened
    options: MnnOptions
    run: Run
    session: Any = None
    shapes: tuple[tuple[int, ...], ...] = ()
    inputs: tuple[Place | None, ...] = ()
    outputs: tuple[Place, ...] = ()

    def __post_init__(self) -> None:
        self.session = self.opened.interpreter.createSession(self.options.session())
        leave_at_fork(self._leave)

    def _leave(self) -> object:
        left = self.session, self.inputs, self.outputs
        self.session, self.inputs, self.outputs = LEFT, (), ()
        return left


class MnnBackend(BackendInterface):
    """Runs blobs of `delegraph_mnn.aot`. Handles may be executed at the same time; a run is not stopped."""

    blob_version = FORMAT.version

    def __init__(self) -> None:
        self._options: dict[str, OptionValue] = {}

    def is_available(self) -> Availability:
        """Whether MNN is installed."""
        return Availability.of_package("MNN")

    def devices(self) -> Sequence[BackendDevice]:
        """The processor."""
        return [BackendDevice("CPU", f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores")]

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> Handle:
        """Convert a blob's graph with MNN's converter, in a process of its own, or take what an earlier load kept in
        the user's cache; and make a session.

        Raises `DelegateInvalidCompatibility` for a blob that is damaged or that MNN refuses, `NotSupported` where MNN's
        converter cannot run, and `InvalidArgument` for options that do not exist; see `MnnOptions`.
        """
        options = MnnOptions.of_compile_specs(compile_specs).updated({**self._options, **context.runtime_specs})
        tracer = context.event_tracer if options.profiling or options.intermediate_outputs else None
        tapped = tracer is not None and options.intermediate_outputs

        def make() -> Opened:
            blob, weights = with_weights(unpack(processed), context.named_data)
            source = replace(blob, graph=with_negated(blob.graph)) if tapped else blob
            pieces = [source.graph, *(bytes_of(array) for array in weights.values())]
            kept = context.cache.kept(
                partial(_convert, source, weights), driver=f"delegraph-mnn, MNN {version()}", blob=pieces
            )
            return Opened(_converted_now(source, weights) if kept is None else _interpreter(kept), blob)

        opened = _IN_USE.opened(processed, context.named_data, (context.cache, tapped), make)
        return Handle(opened, options, run_of(opened.blob, tracer, tapped))

    def fork(self, context: BackendInitContext, handle: Handle) -> Handle:
        """A session of its own on the same graph."""
        return Handle(handle.opened, handle.options, handle.run)

    def execute(self, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]) -> None:
        """Run once, and copy each output into its planned memory. Raises `UnusableValue` for an index outside its
        tensor, which MNN does not look at."""
        blob = handle.opened.blob
        inputs, outputs = split_arguments(BACKEND_ID, args, len(blob.inputs), len(blob.outputs))
        arrays = [
            np.asarray(argument) if info.dtype else None for info, argument in zip(blob.inputs, inputs, strict=True)
        ]
        _check_places(blob, arrays)
        sizes = sizes_in_run(BACKEND_ID, (info.shape for info in blob.inputs), arrays)
        expected = [shape_in_run(info.shape, sizes) for info in blob.outputs]
        if all(shape is not None and 0 in shape for shape in expected):
            _give_nothing(context, outputs, expected)
            return
        shapes = tuple(() if array is None else array.shape for array in arrays)
        if shapes != handle.shapes or not handle.outputs:
            _resize(handle, shapes, expected)
        for place, array in zip(handle.inputs, arrays, strict=True):
            if place is not None and array is not None:
                np.copyto(place.array, array, casting="unsafe")
                _require(place.tensor.copyFrom(place.host), "read an input")
        _require(handle.run(handle.opened.interpreter, handle.session) == _DONE, "run")
        for place, out in zip(handle.outputs, outputs, strict=True):
            assert isinstance(out, np.ndarray)
            _require(place.tensor.copyToHostTensor(place.host), "give an output")
            target = out if out.shape == place.array.shape else context.resize(out, place.array.shape)
            np.copyto(target, place.array, casting="unsafe")

    def engine_files(
        self, name: str, processed: Buffer, named_data: Mapping[str, Buffer]
    ) -> Mapping[str, Sequence[Buffer]]:
        """The ONNX model that MNN converts, its weights in it or, where it would be too large, beside it."""
        blob, weights = with_weights(unpack(processed), named_data)
        return onnx_files(name, blob.graph, weights)

    def describe(
        self, processed: Buffer, compile_specs: Sequence[CompileSpec], named_data: Mapping[str, Buffer]
    ) -> DelegateDescription:
        """The nodes of the ONNX graph, and its weights; MNN is not needed for it."""
        from delegraph_cpu.runtime.describing import described

        return described(unpack(processed), named_data)

    def num_outputs(self, handle: Handle) -> int:
        """The number in the blob's header, which the session confirmed."""
        return len(handle.opened.blob.outputs)

    def set_option(self, options: Mapping[str, OptionValue]) -> None:
        """Change the defaults for delegates loaded from now on; see `MnnOptions`."""
        MnnOptions().updated(options)
        self._options |= options

    def get_option(self, keys: Sequence[str]) -> dict[str, OptionValue]:
        """The defaults for delegates that are loaded without options of their own."""
        return MnnOptions().updated(self._options).chosen(keys)


def _convert(blob: Blob, weights: Mapping[str, NDArray[Any]], folder: Path) -> None:
    """Write MNN's graph into `folder`. Raises `DelegateInvalidCompatibility` for a graph that MNN refuses."""
    try:
        convert_into(folder, blob.graph, weights)
    except ConversionFailed as error:
        raise DelegateInvalidCompatibility(
            f"MNN {version()} refuses a graph that was lowered with MNN {blob.onnxruntime:.80}: {error}"
        ) from error


def _converted_now(blob: Blob, weights: Mapping[str, NDArray[Any]]) -> Any:
    """The graph without a cache. Raises `NotSupported` where this process may write no file and start no process."""
    try:
        with tempfile.TemporaryDirectory(prefix="delegraph-mnn-") as folder:
            _convert(blob, weights, Path(folder))
            return _interpreter(Path(folder))
    except OSError as error:
        raise NotSupported(
            f"MNN's converter needs a folder and a process of its own, which there are none for here: {error}; where a"
            " program is isolated, load it with the cache in which a load without isolated=True kept what it made"
        ) from error


def _interpreter(folder: Path) -> Any:
    make = mnn().Interpreter  # outside of `try`: where the process was forked, this says so
    try:
        return make(str(folder / MODEL))
    except Exception as error:  # MNN's exceptions have no common base
        raise DelegateInvalidCompatibility(
            f"MNN {version()} does not read what its converter wrote: {error}"
        ) from error


# ---- running --------------------------------------------------------------------------------------------------------


_DONE: Final = 0
"""The result of a run that did not fail (`MNN/ErrorCode.hpp`)."""


def _require(done: bool, what: str) -> None:
    if not done:
        raise Internal(f"MNN failed to {what} of a delegate of {BACKEND_ID}")


def _check_places(blob: Blob, arrays: Sequence[NDArray[Any] | None]) -> None:
    named = {info.name: array for info, array in zip(blob.inputs, arrays, strict=True)}
    for places in blob.places:
        array = named.get(places.input)
        told = None if array is None else missing_place(places, array)
        if told is not None:
            raise UnusableValue(told)


def _give_nothing(
    context: BackendExecutionContext, outputs: Sequence[Argument], shapes: Sequence[tuple[int, ...] | None]
) -> None:
    for out, shape in zip(outputs, shapes, strict=True):
        assert isinstance(out, np.ndarray) and shape is not None
        context.resize(out, shape)


def _resize(handle: Handle, shapes: tuple[tuple[int, ...], ...], expected: Sequence[tuple[int, ...] | None]) -> None:
    """Let the session compute on inputs of these sizes. Raises `Internal` where its outputs are not as `expected`."""
    interpreter, blob = handle.opened.interpreter, handle.opened.blob
    handle.outputs = ()
    tensors = [_tensor(interpreter.getSessionInput, handle, info.name) for info in blob.inputs]
    for tensor, asked in zip(tensors, shapes, strict=True):
        if tensor is not None and tuple(tensor.getShape()) != asked:
            interpreter.resizeTensor(tensor, asked)
    interpreter.resizeSession(handle.session)
    handle.inputs = tuple(Place.of(t, of) if _is_read(t) else None for t, of in zip(tensors, shapes, strict=True))
    results = [_tensor(interpreter.getSessionOutput, handle, info.name) for info in blob.outputs]
    own_sizes = [() if tensor is None else tuple(map(int, tensor.getShape())) for tensor in results]
    for info, tensor, own, shape in zip(blob.outputs, results, own_sizes, expected, strict=True):
        if tensor is None or shape not in (None, own):
            raise Internal(f"MNN gives {info.name!r:.80} of a delegate of {BACKEND_ID} the sizes {own}, not {shape}")
    handle.outputs = tuple(map(Place.of, results, own_sizes))
    handle.shapes = shapes


def _is_read(tensor: Any) -> bool:
    """Whether the session reads an input: it has no memory of one that its graph needs nothing of."""
    try:
        return tensor is not None and tensor.getHost() is not None
    except ValueError:  # of a capsule around no address
        return False


def _tensor(get: Callable[[Any, str], Any], handle: Handle, name: str) -> Any:
    """A tensor of the session; None: its graph has none of the name."""
    try:
        return get(handle.session, name)
    except Exception:  # MNN's exceptions have no common base
        return None
