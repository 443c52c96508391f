"""Blob -> model compiled for a device -> outputs in planned memory."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import Internal, InvalidArgument
from delegraph.interfaces import (
    Argument,
    Availability,
    BackendExecutionContext,
    BackendInitContext,
    BackendInterface,
    Buffer,
    CompileSpec,
    PlacesInfo,
    UnusableValue,
    missing_place,
    split_arguments,
)
from delegraph_openvino.blob import BACKEND_ID, BLOB_VERSION, INPUT, Blob, TensorInfo, damaged, unpack, weight_data
from delegraph_openvino.ir_check import check_ir
from delegraph_openvino.options import OPTION_NAMES, OpenVinoOptions, OptionValue
from delegraph_openvino.runtime.ir_files import ir_files
from delegraph_openvino.runtime.model import open_model
from delegraph_openvino.runtime.profiling import log_nodes
from delegraph_openvino.runtime.tensors import numpy_dtype, tensor_of, tensor_over

if TYPE_CHECKING:
    import openvino

    from delegraph.interfaces import EventTracer

__all__ = ["OpenVinoBackend"]


@dataclass(slots=True)
class Handle:
    """A compiled model and a request of one's own to it. `memory` is what the model reads without owning it.

    `ports` are, for each input of a call, its place among the model's; None for one that it does not read. `bound` is
    what the request's tensors were last set for; `tracer` is told of the nodes that ran, if options ask for that.
    """

    compiled: openvino.CompiledModel
    request: openvino.InferRequest
    blob: Blob
    ports: tuple[int | None, ...]
    memory: tuple[NDArray[Any], ...]
    bound: object = None
    tracer: EventTracer | None = None


class OpenVinoBackend(BackendInterface):
    """Runs what `delegraph_openvino.aot` wrote. Handles may be executed at the same time."""

    blob_version = BLOB_VERSION
    binds_again = True

    def __init__(self) -> None:
        self._options: dict[str, OptionValue] = {}

    def is_available(self) -> Availability:
        """Whether OpenVINO is installed; whether it has the device that a delegate is for shows in `init`."""
        if importlib.util.find_spec("openvino") is not None:
            return Availability(True)
        return Availability(False, "openvino is not installed", "pip install openvino")

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> Handle:
        """Compile a blob's model. Its weights stay where they are, in `processed` or the named data.

        Raises `DelegateInvalidCompatibility` for a blob that is damaged or that OpenVINO refuses, `NotSupported` for a
        device that is not here, and `InvalidArgument` for options that do not exist; see `OpenVinoOptions`.
        """
        blob = unpack(processed)
        check_ir(blob.xml, len(blob.bin))
        options = OpenVinoOptions.of_compile_specs(compile_specs).updated({**self._options, **context.runtime_specs})
        compiled, memory = open_model(_core(), blob, context.named_data, options)
        tracer = context.event_tracer if options.profiling else None
        request, ports = compiled.create_infer_request(), _ports(compiled, blob)
        return Handle(compiled, request, blob, ports, memory, tracer=tracer)

    def fork(self, context: BackendInitContext, handle: Handle) -> Handle:
        """A request of its own to the same compiled model."""
        return replace(handle, request=handle.compiled.create_infer_request(), bound=None)

    def execute(self, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]) -> None:
        """Run once, each output into its planned memory; one whose shape shows in the run alone is copied there."""
        inputs, outputs = _split(handle, args)
        arrays = _set_inputs(handle, inputs)
        copies = _set_outputs(context, handle, _sizes(handle, arrays), outputs)
        handle.bound = None
        _run(handle)
        for index, out in copies:
            result = handle.request.get_output_tensor(index)
            content = result.data.view(out.dtype)
            content = content[..., 0] if out.dtype == np.complex64 else content
            np.copyto(context.resize(out, content.shape), content)

    def bind(
        self, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]
    ) -> Callable[[], object] | None:
        """A call whose tensors are made once, if all arguments are arrays that OpenVINO can use in place, and the
        outputs' shapes follow from the inputs'."""
        inputs, outputs = _split(handle, args)
        arrays = [
            np.asarray(given, numpy_dtype(info.dtype)) for info, given in zip(handle.blob.inputs, inputs, strict=True)
        ]
        sizes = _sizes(handle, arrays)
        if not all(map(_usable, [*arrays, *outputs])):
            return None
        results = []
        for info, out in zip(handle.blob.outputs, outputs, strict=True):
            assert isinstance(out, np.ndarray)
            shape = _known_shape(info, sizes)
            if shape is None:
                return None
            results.append(out if out.shape == shape else context.resize(out, shape))
        given = [(port, tensor_over(a)) for port, a in zip(handle.ports, arrays, strict=True) if port is not None]
        taken = [(index, tensor_over(out)) for index, out in enumerate(results)]
        kept = (arrays, results)  # the tensors only point to them
        described = zip(handle.blob.inputs, arrays, strict=True)
        picking = [(info.places, array) for info, array in described if info.places]
        request = handle.request

        def run() -> None:
            for places, array in picking:
                _check_places(places, array)
            if handle.bound is not kept:
                for port, tensor in given:
                    request.set_input_tensor(port, tensor)
                for index, tensor in taken:
                    request.set_output_tensor(index, tensor)
                handle.bound = kept
            _run(handle)

        return run

    def num_outputs(self, handle: Handle) -> int:
        """What the blob's header says, and the model confirmed."""
        return len(handle.blob.outputs)

    def engine_files(
        self, name: str, processed: Buffer, named_data: Mapping[str, Buffer]
    ) -> Mapping[str, Sequence[Buffer]]:
        """The IR: an .xml, and a .bin with all weights."""
        blob = unpack(processed)
        check_ir(blob.xml, len(blob.bin))
        return ir_files(name, blob, [weight_data(weight, blob, named_data) for weight in blob.weights])

    def cancel(self, handle: Handle, requested: bool) -> None:
        """OpenVINO ends between two of its nodes; a run that has not begun is not stopped."""
        if requested:
            handle.request.cancel()

    def set_option(self, options: Mapping[str, OptionValue]) -> None:
        """Change the defaults for delegates loaded from now on; see `OpenVinoOptions`."""
        OpenVinoOptions().updated(options)
        self._options |= options

    def get_option(self, keys: Sequence[str]) -> dict[str, OptionValue]:
        """The defaults for delegates that are loaded without options of their own."""
        unknown = sorted(set(keys) - OPTION_NAMES)
        if unknown:
            raise InvalidArgument(
                f"{BACKEND_ID} has no option {', '.join(unknown)}; it has {', '.join(sorted(OPTION_NAMES))}"
            )
        defaults = OpenVinoOptions().updated(self._options)
        return {key: getattr(defaults, key) for key in keys}


@cache
def _core() -> openvino.Core:
    """OpenVINO's entry, which knows the devices: one for the process."""
    import openvino

    return openvino.Core()


def _ports(compiled: openvino.CompiledModel, blob: Blob) -> tuple[int | None, ...]:
    """Where the inputs of a call are among the model's."""
    names = [port.get_any_name() for port in compiled.inputs]
    wanted = [f"{INPUT}{index}" if info.used else None for index, info in enumerate(blob.inputs)]
    if sorted(names) != sorted(filter(None, wanted)) or len(compiled.outputs) != len(blob.outputs):
        raise damaged("its model has other inputs or outputs than its header")
    return tuple(None if name is None else names.index(name) for name in wanted)


# ---- running --------------------------------------------------------------------------------------------------------


def _split(handle: Handle, args: Sequence[Argument]) -> tuple[Sequence[Argument], Sequence[Argument]]:
    return split_arguments(BACKEND_ID, args, len(handle.blob.inputs), len(handle.blob.outputs))


def _usable(argument: Argument) -> bool:
    return isinstance(argument, np.ndarray) and argument.flags.c_contiguous and argument.flags.aligned


def _set_inputs(handle: Handle, inputs: Sequence[Argument]) -> list[NDArray[Any]]:
    """Set the inputs; returns the arrays, which must outlive the run."""
    arrays = []
    for info, port, given in zip(handle.blob.inputs, handle.ports, inputs, strict=True):
        array = np.require(given, numpy_dtype(info.dtype), ("C", "A"))
        _check_places(info.places, array)
        if port is not None:
            handle.request.set_input_tensor(port, tensor_over(array))
        arrays.append(array)
    return arrays


def _check_places(places: Sequence[PlacesInfo], array: NDArray[Any]) -> None:
    """Raise for a place that is not there, where OpenVINO picks zeros."""
    for info in places:
        told = missing_place(info, array)
        if told is not None:
            raise UnusableValue(told)


def _set_outputs(
    context: BackendExecutionContext, handle: Handle, sizes: Mapping[str, int], outputs: Sequence[Argument]
) -> list[tuple[int, NDArray[Any]]]:
    """Set the outputs to their planned memory; returns (index, out) of those that must be copied after the run."""
    copies = []
    for index, (info, out) in enumerate(zip(handle.blob.outputs, outputs, strict=True)):
        if not isinstance(out, np.ndarray):
            raise Internal(f"output {index} of a delegate of {BACKEND_ID} is {out!r:.40}, not a tensor")
        shape = _known_shape(info, sizes)
        if shape is not None and _usable(out):
            place = out if out.shape == shape else context.resize(out, shape)
            handle.request.set_output_tensor(index, tensor_over(place))
        else:
            handle.request.set_output_tensor(index, _own_tensor(info))
            copies.append((index, out))
    return copies


def _own_tensor(info: TensorInfo) -> openvino.Tensor:
    """Memory of OpenVINO's own, which grows as it is needed."""
    return tensor_of(info.dtype, [dim if isinstance(dim, int) else 0 for dim in info.shape])


def _known_shape(info: TensorInfo, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    shape = tuple(sizes.get(dim, -1) if isinstance(dim, str) else dim for dim in info.shape)
    return None if -1 in shape else shape


def _sizes(handle: Handle, arrays: Sequence[NDArray[Any]]) -> dict[str, int]:
    """The value of each symbol that is a dim of an input."""
    sizes: dict[str, int] = {}
    for info, array in zip(handle.blob.inputs, arrays, strict=True):
        if len(info.shape) != array.ndim:
            raise Internal(f"an input of a delegate of {BACKEND_ID} has {array.ndim} dims, not {len(info.shape)}")
        sizes.update({dim: size for dim, size in zip(info.shape, array.shape, strict=True) if isinstance(dim, str)})
    return sizes


def _run(handle: Handle) -> None:
    start = 0 if handle.tracer is None else handle.tracer.now()
    try:
        handle.request.infer(share_inputs=True, share_outputs=True)
    except Exception as error:  # pybind's exceptions have no common base
        raise Internal(f"OpenVINO failed in a delegate of {BACKEND_ID}: {error}") from error
    if handle.tracer is not None:
        log_nodes(handle.request, handle.tracer, start)
