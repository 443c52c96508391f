"""Blob of a provider that compiles at load -> a session of its graph on the device -> outputs in planned memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import DelegateInvalidCompatibility, NotSupported
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
    missing_place,
)
from delegraph.lazy_dataclass import dataclass, replace
from delegraph_providers.blob import BLOB_VERSION
from delegraph_providers.graph_blob import GraphBlob, unpack_graph
from delegraph_providers.options import GraphOptions, graph_options
from delegraph_providers.providers import (
    MIGRAPHX,
    MLX,
    OPENVINO_EP,
    PROVIDER,
    TENSORRT_RTX,
    WEBGPU,
    WINDOWSML,
    Provider,
)

if TYPE_CHECKING:
    from delegraph.interfaces import DelegateDescription, EventTracer
    from delegraph_cpu.runtime.opened import Opened

__all__ = [
    "AnyBackend",
    "GraphBackend",
    "MiGraphXBackend",
    "MlxBackend",
    "OpenVinoBackend",
    "StateOnDevice",
    "TensorRtRtxBackend",
    "WebGpuBackend",
    "WindowsMlBackend",
]

_IN_USE: Final[SharedEngines[Any]] = SharedEngines()


@dataclass(frozen=True, slots=True)
class _Handle:
    """A delegate: what `delegraph_cpu.runtime.calls` runs, and where its states are."""

    ort: Any
    states_on_device: bool


class GraphBackend(BackendInterface):
    """Runs blobs of `delegraph_providers.aot` on the device of a provider: the base of a class for each."""

    provider: ClassVar[Provider]
    blob_version = BLOB_VERSION

    def __init__(self) -> None:
        self._options: dict[str, OptionValue] = {}

    def is_available(self) -> Availability:
        """Whether the provider is installed and has a device here."""
        from delegraph_providers.engine import availability

        if self.provider == PROVIDER and "package" not in self._options:
            return Availability(True)  # `init` asks for the package
        return availability(self._defaults().chosen_provider)

    def devices(self) -> Sequence[BackendDevice]:
        """Those that the provider offers; where it is not installed, those of the machine that it would drive."""
        from delegraph_providers.engine import devices_told

        if self.provider == PROVIDER and "package" not in self._options:
            return []  # a package that nobody has named
        return devices_told(self._defaults().chosen_provider)

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> _Handle:
        """Give the blob's graph to the provider. Its weights stay where they are until the device has copied them.

        Raises `DelegateInvalidCompatibility` for a blob that is damaged or that the provider does not take whole,
        `NotSupported` without a provider or its device, or if that has no float16 and the delegate is in it, and
        `InvalidArgument` for options that do not exist; see `GraphOptions`.
        """
        from delegraph_cpu.runtime.calls import OrtHandle, run_options
        from delegraph_cpu.runtime.opened import Opened
        from delegraph_cpu.runtime.stored import with_weights

        options = (
            graph_options(self.provider).of_file(compile_specs).updated({**self._options, **context.runtime_specs})
        )

        tracer = context.event_tracer if options.profiling or options.intermediate_outputs else None

        def make() -> Opened:
            blob, weights = with_weights(unpack_graph(processed, self.provider), context.named_data)
            made = _session(blob, weights, options) if tracer is None else _traced(blob, weights, options, tracer)
            return Opened(made, blob, tuple(weights.values()))

        choices = (self.provider.backend_id, options) if tracer is None else None
        opened = _IN_USE.opened(processed, context.named_data, choices, make)
        on_device = options.states == "device"
        handle = OrtHandle(opened, run_options(), self._states(context, opened, on_device))
        return _Handle(handle, on_device)

    def fork(self, context: BackendInitContext, handle: _Handle) -> _Handle | None:
        """The same session on other states; None for one that is traced."""
        from delegraph_cpu.runtime.calls import run_options
        from delegraph_cpu.runtime.open_session import TracedSession

        if isinstance(handle.ort.session, TracedSession):
            return None
        states = self._states(context, handle.ort.opened, handle.states_on_device)
        return replace(handle, ort=replace(handle.ort, options=run_options(), states=states))

    def execute(self, context: BackendExecutionContext, handle: _Handle, args: Sequence[Argument]) -> None:
        """Run once, each output into its planned memory. Raises `UnusableValue` for an index outside its tensor, which
        a device does not look at."""
        from delegraph_cpu.runtime.calls import prepared
        from delegraph_providers.engine import ONE_AT_A_TIME

        blob = handle.ort.blob
        arguments = {info.name: argument for info, argument in zip(blob.inputs, args, strict=False)}
        for places in blob.places:
            told = missing_place(places, np.asarray(arguments[places.input])) if places.input in arguments else None
            if told is not None:
                raise UnusableValue(told)
        with ONE_AT_A_TIME:
            prepared(context, handle.ort, args)()

    def engine_files(
        self, name: str, processed: Buffer, named_data: Mapping[str, Buffer]
    ) -> Mapping[str, Sequence[Buffer]]:
        """The ONNX model, its weights in it or, where it would be too large, beside it."""
        from delegraph_cpu.runtime.onnx_files import onnx_files
        from delegraph_cpu.runtime.stored import with_weights

        blob, weights = with_weights(unpack_graph(processed, self.provider), named_data)
        return onnx_files(name, blob.graph, weights)

    def describe(
        self, processed: Buffer, compile_specs: Sequence[CompileSpec], named_data: Mapping[str, Buffer]
    ) -> DelegateDescription:
        """The nodes of the ONNX graph, and its weights; the provider is not needed for it."""
        from delegraph_cpu.runtime.describing import described

        return described(unpack_graph(processed, self.provider), named_data)

    def cancel(self, handle: _Handle, requested: bool) -> None:
        """onnxruntime stops between two nodes, or parts, that it gives to the provider."""
        handle.ort.options.terminate = requested

    def num_outputs(self, handle: _Handle) -> int:
        """The number in the blob's header, which the session confirmed."""
        return len(handle.ort.blob.outputs)

    def set_option(self, options: Mapping[str, OptionValue]) -> None:
        """Change the defaults for delegates loaded from now on; see `GraphOptions`."""
        self._defaults().updated(options)
        self._options |= options

    def get_option(self, keys: Sequence[str]) -> dict[str, OptionValue]:
        """The defaults for delegates that are loaded without options of their own."""
        return self._defaults().chosen(keys)

    def _defaults(self) -> GraphOptions:
        return graph_options(self.provider)().updated(self._options)

    def _states(self, context: BackendInitContext, opened: Opened, on_device: bool) -> tuple[Any, ...]:
        """The states, each in memory that the runtime gives, or on the device, one value for each buffer."""
        from delegraph_cpu.runtime.held_state import hold_states, initial_value

        blob = opened.blob
        if not on_device:
            return hold_states(blob, context.mutable_buffer)
        states = []
        for index, state in enumerate(blob.states, len(blob.outputs)):
            value = context.device_buffer(state.buffer, initial_value(state, blob), StateOnDevice)
            device = self.provider.memory
            states.append(_DeviceState(state.name, state.output, index, device, opened.session, value))
        return tuple(states)


def _traced(blob: GraphBlob, weights: Mapping[str, NDArray[Any]], options: GraphOptions, tracer: EventTracer) -> Any:
    """A session that tells `tracer` the values of its nodes, or their times."""
    from delegraph_cpu.runtime.describing import node_names
    from delegraph_cpu.runtime.profiling import ProfiledSession
    from delegraph_cpu.runtime.tapping import tapped

    if options.intermediate_outputs:
        return tapped(blob, lambda graph: _session(replace(blob, graph=graph), weights, options), tracer)
    return ProfiledSession(partial(_session, blob, weights, options), tracer, node_names(blob))


def _session(
    blob: GraphBlob, weights: Mapping[str, NDArray[Any]], options: GraphOptions, profile: str | None = None
) -> Any:
    """A session that gives the CPU nothing but what the blob says."""
    from delegraph_providers.engine import ProviderFailed, left_to_the_cpu, require_precision, session, version_of

    provider = options.chosen_provider
    borders = [tensor.dtype for tensor in (*blob.inputs, *blob.outputs)]
    require_precision(provider, options, [*borders, *(weight.dtype for weight in blob.weights)])
    entries = {"session.record_ep_graph_assignment_info": "1", "session.load_model_format": "ONNX"}
    if not blob.on_host:
        entries["session.disable_cpu_ep_fallback"] = "1"
    try:
        made = session(provider, blob.graph, {}, entries, weights=weights, kind=options.device, profile=profile)
    except ProviderFailed as error:
        raise DelegateInvalidCompatibility(
            f"{version_of(provider)} refuses a graph that was lowered with {blob.onnxruntime:.80}: {error}"
        ) from error
    left = sorted({op_type for name, op_type in left_to_the_cpu(made) if name not in blob.on_host})
    if left:
        raise DelegateInvalidCompatibility(
            f"{version_of(provider)} leaves {', '.join(left)} to the CPU, of a graph that was lowered with"
            f" {blob.onnxruntime:.80}; lower the program again where this provider is installed"
        )
    return made


# ---- states on the device --------------------------------------------------------------------------------------------


class StateOnDevice:
    """A buffer's value, an `OrtValue`: in the runtime's `memory` before the first run and where somebody has looked at
    it, on the device after a run, in memory of the session that wrote it, which has to outlive it."""

    def __init__(self, memory: NDArray[Any]) -> None:
        from delegraph_cpu.runtime.ort_values import ort_value

        self._memory = memory
        self._in_memory = self.value = ort_value(memory)
        self._session: Any = None

    def copy_to_host(self) -> None:
        """The value, where a run has left it on the device, into the runtime's memory. Raises `NotSupported` where
        onnxruntime does not read the device's."""
        from delegraph_providers.engine import ONE_AT_A_TIME

        if self._session is None:
            return
        with ONE_AT_A_TIME:
            try:
                np.copyto(self._memory, self.value.numpy())
            except Exception as error:  # pybind's exceptions have no common base
                raise NotSupported(
                    f"onnxruntime does not read a state back from the device ({error}); load with states=host, where"
                    " it can be read, saved, set and forked"
                ) from error
            self.value, self._session = self._in_memory, None

    def take(self, value: Any, session: Any) -> None:
        """The value that a run of `session` has left on the device."""
        self.value, self._session = value, session

    def __del__(self) -> None:
        self.value = None  # before the session: its memory would be given back to nobody


@dataclass(frozen=True, slots=True)
class _DeviceState:
    """A buffer of one delegate, as `delegraph_cpu.runtime.held_state.HeldState`: the graph's input `name` and its
    output `output`, the binding's output `index`. Each run writes a new value, since no shader reads what it writes."""

    name: str
    output: str
    index: int
    device: str
    session: Any
    buffer: StateOnDevice

    def bind(self, binding: Any) -> None:
        """Bind the value, and a place on the device for the new one."""
        binding.bind_ortvalue_input(self.name, self.buffer.value)
        binding.bind_output(self.output, self.device)

    def take_over(self, binding: Any) -> None:
        """After a run: the new value becomes the buffer's value, where it is."""
        self.buffer.take(binding.get_outputs()[self.index], self.session)


# ---- the rows --------------------------------------------------------------------------------------------------------


def _backend_for(row: Provider) -> type[GraphBackend]:
    """The class of a row, for its entry point."""
    return type(f"{row.backend_id}Backend", (GraphBackend,), {"provider": row, "__doc__": f"Drives {row.drives}."})


WebGpuBackend: Final = _backend_for(WEBGPU)
TensorRtRtxBackend: Final = _backend_for(TENSORRT_RTX)
MlxBackend: Final = _backend_for(MLX)
MiGraphXBackend: Final = _backend_for(MIGRAPHX)
WindowsMlBackend: Final = _backend_for(WINDOWSML)
OpenVinoBackend: Final = _backend_for(OPENVINO_EP)
AnyBackend: Final = _backend_for(PROVIDER)
