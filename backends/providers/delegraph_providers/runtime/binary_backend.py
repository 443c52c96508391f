"""Blob of a provider that compiles at lowering -> a session that holds its binary -> outputs in planned memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from delegraph.errors import DelegateInvalidCompatibility, Internal
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
    split_arguments,
)
from delegraph.lazy_dataclass import dataclass
from delegraph_providers.blob import BLOB_VERSION, Blob, unpack
from delegraph_providers.context_model import context_model
from delegraph_providers.options import QnnOptions
from delegraph_providers.providers import QNN
from delegraph_providers.runtime.qnn_profile import QnnProfile, log_nodes

if TYPE_CHECKING:
    import onnxruntime

    from delegraph.interfaces import DelegateDescription

__all__ = ["QnnBackend"]


@dataclass(frozen=True, slots=True)
class Handle:
    """A session, and the names and dtypes of what it is fed, None for an argument that it does not read; and where the
    times of its nodes are, if a tracer is to be told of them."""

    session: onnxruntime.InferenceSession
    blob: Blob
    fed: tuple[tuple[str, np.dtype[Any]] | None, ...]
    profile: QnnProfile | None = None


class QnnBackend(BackendInterface):
    """Runs blobs of `delegraph_providers.aot` on Qualcomm's HTP, or on its emulator where that is what is here."""

    blob_version = BLOB_VERSION

    def __init__(self) -> None:
        self._options: dict[str, OptionValue] = {}

    def is_available(self) -> Availability:
        """Whether the provider is installed, and finds its device or the emulator."""
        from delegraph_providers.engine import availability

        return availability(QNN)

    def devices(self) -> Sequence[BackendDevice]:
        """Those that the provider offers; where it is not installed, those of the machine that it would drive."""
        from delegraph_providers.engine import devices_told

        return devices_told(QNN)

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> Handle:
        """Give the blob's binary to the provider.

        Raises `DelegateInvalidCompatibility` for a blob that is damaged or that the provider refuses, `NotSupported`
        without a provider, and `InvalidArgument` for options that do not exist; see `QnnOptions`.
        """
        from delegraph_providers.engine import ProviderFailed, session, version_of

        blob = unpack(processed, QNN)
        options = QnnOptions.of_file(compile_specs).updated({**self._options, **context.runtime_specs})
        profile = QnnProfile() if options.profiling and context.event_tracer is not None else None
        asked = options.of_provider() | ({} if profile is None else profile.options)
        entries = {"session.disable_cpu_ep_fallback": "1"}
        try:
            made = session(QNN, context_model(blob, QNN.ep_name), asked, entries)
        except ProviderFailed as error:
            raise DelegateInvalidCompatibility(
                f"{version_of(QNN)} refuses a binary that {blob.provider:.80} compiled for soc_model"
                f" {options.soc_model}, htp_arch {options.htp_arch}: {error}"
            ) from error
        fed = tuple((t.name, np.dtype(t.dtype)) if t.name in blob.read else None for t in blob.inputs)
        return Handle(made, blob, fed, profile)

    def execute(self, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]) -> None:
        """Run once, and copy each output into its planned memory."""
        blob = handle.blob
        inputs, outputs = split_arguments(QNN.backend_id, args, len(blob.inputs), len(blob.outputs))
        feeds = {
            fed[0]: np.require(value, fed[1], ("C", "A"))
            for fed, value in zip(handle.fed, inputs, strict=True)
            if fed is not None
        }
        tracer, profile = context.event_tracer, handle.profile
        if tracer is not None and profile is not None:
            profile.new_lines()  # of loading
            start = tracer.now()
        try:
            results = handle.session.run([output.name for output in blob.outputs], feeds)
        except Exception as error:  # pybind's exceptions have no common base
            raise Internal(f"{QNN.package} failed in a delegate of {QNN.backend_id}: {error}") from error
        if tracer is not None and profile is not None:
            log_nodes(profile.new_lines(), tracer, start)
        for result, out in zip(results, outputs, strict=True):
            assert isinstance(out, np.ndarray)
            np.copyto(context.resize(out, result.shape), result)

    def describe(
        self, processed: Buffer, compile_specs: Sequence[CompileSpec], named_data: Mapping[str, Buffer]
    ) -> DelegateDescription:
        """The nodes of which the blob's binary was made, its arguments and the device for which it was compiled."""
        from delegraph_providers.runtime.describing import described

        return described(unpack(processed, QNN), compile_specs)

    def num_outputs(self, handle: Handle) -> int:
        """The number in the blob's header, which the provider confirmed."""
        return len(handle.blob.outputs)

    def set_option(self, options: Mapping[str, OptionValue]) -> None:
        """Change the defaults for delegates loaded from now on; see `QnnOptions`."""
        QnnOptions().updated(options)
        self._options |= options

    def get_option(self, keys: Sequence[str]) -> dict[str, OptionValue]:
        """The defaults for delegates that are loaded without options of their own."""
        return QnnOptions().updated(self._options).chosen(keys)
