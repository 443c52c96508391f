"""Blob -> model compiled for a device -> outputs in planned memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import Internal
from delegraph.interfaces import (
    Argument,
    Availability,
    BackendCache,
    BackendDevice,
    BackendExecutionContext,
    BackendInitContext,
    BackendInterface,
    Buffer,
    CompileSpec,
    OptionValue,
    PlacesInfo,
    SharedEngines,
    UnusableValue,
    is_used_in_place,
    leave_at_fork,
    missing_place,
    shape_in_run,
    sizes_in_run,
    split_arguments,
)
from delegraph.lazy_dataclass import dataclass, field, replace
from delegraph_openvino.blob import BACKEND_ID, BLOB_VERSION, INPUT, Blob, damaged, unpack, weight_data
from delegraph_openvino.engine import LEFT, core
from delegraph_openvino.ir.reading import read_ir, written_ir
from delegraph_openvino.options import OpenVinoOptions
from delegraph_openvino.runtime.ir_files import ir_files
from delegraph_openvino.runtime.model import open_model
from delegraph_openvino.runtime.profiling import NodeTimes, log_nodes
from delegraph_openvino.runtime.tapping import add_values, log_values
from delegraph_openvino.runtime.tensors import numpy_dtype, tensor_of, tensor_over

if TYPE_CHECKING:
    import openvino

    from delegraph.interfaces import DelegateDescription, EventTracer

__all__ = ["OpenVinoBackend"]


@dataclass(slots=True, eq=False, weakref_slot=True)
class Opened:
    """A compiled model, which loads of the same memory share. It reads `memory`, and does not own it. `ports` are, for
    each input of a call, its place among the model's; None for one that it does not read. `times` are its nodes', where
    they are asked for."""

    compiled: openvino.CompiledModel
    blob: Blob
    ports: tuple[int | None, ...]
    memory: tuple[NDArray[Any], ...]
    times: NodeTimes = field(default_factory=NodeTimes)

    def __post_init__(self) -> None:
        leave_at_fork(self._leave)

    def _leave(self) -> object:
        left, self.compiled = self.compiled, LEFT
        return left


_IN_USE: Final = SharedEngines[Opened]()


@dataclass(slots=True, eq=False, weakref_slot=True)
class Handle:
    """A request of its own to a compiled model.

    `bound` is the call for which the request's tensors were last set; `log` is called before a run, if a tracer is to
    be told of its nodes, and gives what is to be called behind it.
    """

    opened: Opened
    request: openvino.InferRequest
    bound: object = None
    log: Callable[[openvino.InferRequest], Callable[[], object]] | None = None

    def __post_init__(self) -> None:
        leave_at_fork(self._leave)

    def _leave(self) -> object:
        left, self.request = self.request, LEFT
        return left

    @property
    def blob(self) -> Blob:
        """The blob of the model."""
        return self.opened.blob


class OpenVinoBackend(BackendInterface):
    """Runs blobs of `delegraph_openvino.aot`. Handles may be executed at the same time."""

    blob_version = BLOB_VERSION
    binds_again = True

    def __init__(self) -> None:
        self._options: dict[str, OptionValue] = {}

    def is_available(self) -> Availability:
        """Whether OpenVINO is installed; `init` checks whether it has a delegate's device."""
        return Availability.of_package("openvino")

    def devices(self) -> Sequence[BackendDevice]:
        """OpenVINO's: the option `device` chooses one."""
        if not self.is_available():
            return []
        return [
            BackendDevice(device.partition(".")[0], f"{device}: {core().get_property(device, 'FULL_DEVICE_NAME')}")
            for device in core().available_devices
        ]

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> Handle:
        """Compile a blob's model. Its weights stay where they are, in `processed` or the named data.

        Raises `DelegateInvalidCompatibility` for a blob that is damaged or that OpenVINO refuses, `NotSupported` for a
        device that is not here, and `InvalidArgument` for options that do not exist; see `OpenVinoOptions`.
        """
        options = OpenVinoOptions.of_compile_specs(compile_specs).updated({**self._options, **context.runtime_specs})
        cache = context.cache.in_folder(options.cache) if options.cache else context.cache
        tracer = context.event_tracer
        if tracer is not None and options.intermediate_outputs:
            return _tapped(context, processed, options, tracer)

        def make() -> Opened:
            blob = _written(processed)
            compiled, memory = open_model(core(), blob, context.named_data, options, cache)
            return Opened(compiled, blob, _ports(compiled, blob, len(blob.outputs)), memory)

        opened = _IN_USE.opened(processed, context.named_data, (options, cache), make)
        log = None
        if options.profiling and tracer is not None:
            log = partial(log_nodes, tracer=tracer, times=opened.times)
        return Handle(opened, opened.compiled.create_infer_request(), log=log)

    def fork(self, context: BackendInitContext, handle: Handle) -> Handle:
        """A request of its own to the same compiled model."""
        return replace(handle, request=handle.opened.compiled.create_infer_request(), bound=None)

    def execute(self, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]) -> None:
        """Run once, each output into its planned memory; an output whose shape only a run tells is copied there."""
        inputs, outputs = split_arguments(BACKEND_ID, args, len(handle.blob.inputs), len(handle.blob.outputs))
        arrays = _set_inputs(handle, inputs)
        places = _places(context, handle, arrays, outputs)
        for index, (info, place) in enumerate(zip(handle.blob.outputs, places, strict=True)):
            tensor = tensor_of(info.dtype, info.shape) if place is None else tensor_over(place)
            handle.request.set_output_tensor(index, tensor)
        handle.bound = None
        _run(handle)
        for index, (place, out) in enumerate(zip(places, outputs, strict=True)):
            if place is None and isinstance(out, np.ndarray):
                content = handle.request.get_output_tensor(index).data.view(out.dtype)
                content = content[..., 0] if out.dtype == np.complex64 else content
                np.copyto(context.resize(out, content.shape), content)

    def bind(
        self, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]
    ) -> Callable[[], object] | None:
        """A call whose tensors are made once, if all arguments are arrays that OpenVINO can use in place, and the
        outputs' shapes follow from the inputs'."""
        inputs, outputs = split_arguments(BACKEND_ID, args, len(handle.blob.inputs), len(handle.blob.outputs))
        infos = handle.blob.inputs
        arrays = [np.asarray(argument, numpy_dtype(info.dtype)) for info, argument in zip(infos, inputs, strict=True)]
        if not all(map(is_used_in_place, [*arrays, *outputs])):
            return None
        places = _places(context, handle, arrays, outputs)
        results = [place for place in places if place is not None]
        if len(results) < len(places):
            return None
        read = [(port, tensor_over(a)) for port, a in zip(handle.opened.ports, arrays, strict=True) if port is not None]
        written = [(index, tensor_over(out)) for index, out in enumerate(results)]
        kept = (arrays, results)  # the tensors only point to them
        picking = [(info.places, array) for info, array in zip(infos, arrays, strict=True) if info.places]

        def run() -> None:
            for places, array in picking:
                _check_places(places, array)
            if handle.bound is not kept:
                for port, tensor in read:
                    handle.request.set_input_tensor(port, tensor)
                for index, tensor in written:
                    handle.request.set_output_tensor(index, tensor)
                handle.bound = kept
            _run(handle)

        return run

    def num_outputs(self, handle: Handle) -> int:
        """The number in the blob's header, which the model confirmed."""
        return len(handle.blob.outputs)

    def engine_files(
        self, name: str, processed: Buffer, named_data: Mapping[str, Buffer]
    ) -> Mapping[str, Sequence[Buffer]]:
        """The IR: an .xml, and a .bin with all weights."""
        blob = unpack(processed)
        net = read_ir(blob.xml, len(blob.bin))
        return ir_files(name, blob, net, [weight_data(weight, blob, named_data) for weight in blob.weights])

    def describe(
        self, processed: Buffer, compile_specs: Sequence[CompileSpec], named_data: Mapping[str, Buffer]
    ) -> DelegateDescription:
        """The operations of the IR, and its weights; OpenVINO is not needed for it."""
        from delegraph_openvino.runtime.describing import described

        blob = unpack(processed)
        return described(blob, read_ir(blob.xml, len(blob.bin)), named_data)

    def cancel(self, handle: Handle, requested: bool) -> None:
        """OpenVINO stops between two of its nodes; a run that has not begun is not stopped."""
        if requested:
            handle.request.cancel()

    def set_option(self, options: Mapping[str, OptionValue]) -> None:
        """Change the defaults for delegates loaded from now on; see `OpenVinoOptions`."""
        OpenVinoOptions().updated(options)
        self._options |= options

    def get_option(self, keys: Sequence[str]) -> dict[str, OptionValue]:
        """The defaults for delegates that are loaded without options of their own."""
        return OpenVinoOptions().updated(self._options).chosen(keys)


def _written(processed: Buffer) -> Blob:
    """The blob, with its IR written by us."""
    blob = unpack(processed)
    return replace(blob, xml=written_ir(read_ir(blob.xml, len(blob.bin))))


def _tapped(context: BackendInitContext, processed: Buffer, options: OpenVinoOptions, tracer: EventTracer) -> Handle:
    """A model of its own, whose runs log the value of each node."""
    blob = _written(processed)
    places: dict[str, int] = {}

    def change(model: openvino.Model) -> None:
        places.update(add_values(model))

    compiled, memory = open_model(core(), blob, context.named_data, options, BackendCache(BACKEND_ID), change)
    opened = Opened(compiled, blob, _ports(compiled, blob, len(compiled.outputs)), memory)
    log = partial(log_values, places=places, tracer=tracer)
    return Handle(opened, compiled.create_infer_request(), log=log)


def _ports(compiled: openvino.CompiledModel, blob: Blob, outputs: int) -> tuple[int | None, ...]:
    """The places of a call's inputs among the model's, which is to have so many `outputs`."""
    names = [port.get_any_name() for port in compiled.inputs]
    expected = [f"{INPUT}{index}" if info.used else None for index, info in enumerate(blob.inputs)]
    if sorted(names) != sorted(filter(None, expected)) or len(compiled.outputs) != outputs:
        raise damaged("its model has other inputs or outputs than its header")
    return tuple(None if name is None else names.index(name) for name in expected)


# ---- running --------------------------------------------------------------------------------------------------------


def _set_inputs(handle: Handle, inputs: Sequence[Argument]) -> list[NDArray[Any]]:
    """Set the inputs; returns the arrays, which must outlive the run."""
    arrays = []
    for info, port, argument in zip(handle.blob.inputs, handle.opened.ports, inputs, strict=True):
        array = np.require(argument, numpy_dtype(info.dtype), ("C", "A"))
        _check_places(info.places, array)
        if port is not None:
            handle.request.set_input_tensor(port, tensor_over(array))
        arrays.append(array)
    return arrays


def _check_places(places: Sequence[PlacesInfo], array: NDArray[Any]) -> None:
    """Raise for an index outside its tensor, for which OpenVINO would pick zeros."""
    for info in places:
        told = missing_place(info, array)
        if told is not None:
            raise UnusableValue(told)


def _places(
    context: BackendExecutionContext, handle: Handle, arrays: Sequence[NDArray[Any]], outputs: Sequence[Argument]
) -> list[NDArray[Any] | None]:
    """The planned memory of each output in a run on `arrays`; None of one that must be copied there after it."""
    sizes = sizes_in_run(BACKEND_ID, (info.shape for info in handle.blob.inputs), arrays)
    places: list[NDArray[Any] | None] = []
    for index, (info, out) in enumerate(zip(handle.blob.outputs, outputs, strict=True)):
        if not isinstance(out, np.ndarray):
            raise Internal(f"output {index} of a delegate of {BACKEND_ID} is {out!r:.40}, not a tensor")
        shape = shape_in_run(info.shape, sizes)
        if shape is None or not is_used_in_place(out):
            places.append(None)
        else:
            places.append(out if out.shape == shape else context.resize(out, shape))
    return places


def _run(handle: Handle) -> None:
    log = None if handle.log is None else handle.log(handle.request)
    infer = handle.request.infer  # outside of `try`: where the process was forked, this says so
    try:
        infer(share_inputs=True, share_outputs=True)
    except Exception as error:  # pybind's exceptions have no common base
        raise Internal(f"OpenVINO failed in a delegate of {BACKEND_ID}: {error}") from error
    if log is not None:
        log()
