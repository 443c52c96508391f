"""A provider -> what this machine has of it, and sessions of onnxruntime on its device."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import NotSupported
from delegraph.interfaces import Availability, BackendDevice, BlobTensor, Buffer
from delegraph_providers.context_model import one_node_model
from delegraph_providers.hardware import hardware_here
from delegraph_providers.options import GraphOptions
from delegraph_providers.providers import Provider

__all__ = [
    "ONE_AT_A_TIME",
    "ProviderFailed",
    "availability",
    "devices_of",
    "devices_told",
    "left_to_the_cpu",
    "require_precision",
    "session",
    "version_of",
]

_LONGEST_ERROR: Final = 300
"""Characters of an error of onnxruntime's that stand in a reason."""

_lock = threading.Lock()

ONE_AT_A_TIME: Final = threading.RLock()
"""Whoever makes a session on a device, or runs one, holds it: sessions of WebGPU share the device, and two threads that
ran at once ended the process (1.27); DirectML's documentation forbids it."""


class ProviderFailed(Exception):
    """onnxruntime, or the provider in it, refuses a graph; the text is theirs."""


@cache
def _package(name: str) -> Any:
    return importlib.import_module(name)


def version_of(provider: Provider) -> str:
    """The provider's version, and onnxruntime's. Raises `NotSupported` if it is not installed."""
    from delegraph_cpu.engine import onnxruntime

    if _is_plugged(provider):
        return f"{provider.package} {_version(provider)}, onnxruntime {onnxruntime.__version__}"
    _require(provider)
    return f"{provider.built_into} {onnxruntime.__version__}"


def _version(provider: Provider) -> str:
    version = getattr(_package(provider.package), "__version__", None)
    names = importlib.metadata.packages_distributions().get(provider.package, ()) if version is None else ()
    return str(version or next((importlib.metadata.version(name) for name in names), "of an unknown version"))


# ---- what is here ---------------------------------------------------------------------------------------------------


def availability(provider: Provider) -> Availability:
    """Whether the provider is installed and has a device here; if not, why, and what to install."""
    try:
        _require(provider)
        if not _is_plugged(provider):
            _try(provider)
    except NotSupported as error:
        told = "; ".join(filter(None, [str(error).partition(": pip")[0], provider.caveat]))
        return Availability(False, told, _remedy(provider))
    return Availability(True)


def devices_told(provider: Provider) -> list[BackendDevice]:
    """The devices that a provider drives here, or would drive if it were installed, in words."""
    there = availability(provider)
    if not there:
        return [
            BackendDevice(hardware.kind, hardware.name, there.reason, there.fix)
            for hardware in hardware_here()
            if hardware.kind in provider.kinds and (not provider.vendors or hardware.vendor in provider.vendors)
        ]
    if not _is_plugged(provider):
        return [BackendDevice(provider.kinds[0], f"the one that {provider.built_into} chooses", remark=provider.caveat)]
    offered = [device.device for device in devices_of(provider)]
    return [BackendDevice(device.type.name, _name(device, provider), remark=provider.caveat) for device in offered]


def _name(device: Any, provider: Provider) -> str:
    """The words for a device (`onnxruntime.OrtHardwareDevice`), which may be there to emulate another."""
    if device.type.name not in provider.kinds:
        return f"{provider.drives}, emulated"
    return f"{device.vendor} {device.device_id:04x}"


def _remedy(provider: Provider) -> str:
    return f"see what it needs: {provider.promises}" if _is_installed(provider) else provider.install


def _is_plugged(provider: Provider) -> bool:
    """Whether the plug-in is installed, which comes before what is built in."""
    return bool(provider.package) and importlib.util.find_spec(provider.package) is not None


def _is_installed(provider: Provider) -> bool:
    from delegraph_cpu.engine import onnxruntime

    return _is_plugged(provider) or provider.ep_name in onnxruntime.get_available_providers()


def _require(provider: Provider) -> list[Any]:
    """The devices that the plug-in offers, or none where the provider is built in. Raises `NotSupported`."""
    if _is_plugged(provider):
        return devices_of(provider)
    if not _is_installed(provider):
        absent = provider.package or provider.built_into or "its package"
        raise NotSupported(f"{absent} is not installed: {provider.install}")
    return []


def devices_of(provider: Provider) -> list[Any]:
    """The devices that a plug-in offers here (`onnxruntime.OrtEpDevice`), in its order; it is registered once in a
    process. Raises `NotSupported` if it is not installed, does not load, or offers none."""
    from delegraph_cpu.engine import onnxruntime

    with _lock:
        name = provider.ep_name or provider.package
        if name not in _registered:
            try:
                library = getattr(_package(provider.package), provider.library)()
                onnxruntime.register_execution_provider_library(name, library)
            except ImportError as error:
                raise NotSupported(f"{provider.package} is not installed: {provider.install}") from error
            except Exception as error:  # pybind's exceptions have no common base
                raise NotSupported(f"onnxruntime does not load {provider.package}: {error}") from error
            _registered[name] = str(library)
    devices = [device for device in onnxruntime.get_ep_devices() if _is_of(device, provider)]
    if not devices:
        raise NotSupported(f"{provider.package} finds no device of its own on this machine")
    return sorted(devices, key=lambda device: _rank(device, provider))


_registered: Final[dict[str, str]] = {}
"""The libraries that were registered in this process, by the name of the registration."""


def _is_of(device: Any, provider: Provider) -> bool:
    if provider.ep_name:
        return bool(device.ep_name == provider.ep_name)
    return bool(device.ep_metadata.get("library_path") == _registered[provider.package])


def _rank(device: Any, provider: Provider) -> int:
    kind = device.device.type.name
    return provider.kinds.index(kind) if kind in provider.kinds else len(provider.kinds)


@cache
def _try(provider: Provider) -> None:
    """Make a session of one addition, since what is built in lists no device. Raises `NotSupported`."""
    try:
        session(provider, _addition("float32"), {})
    except ProviderFailed as error:
        raise NotSupported(f"{provider.built_into} finds no device on this machine: {error}") from error


def require_precision(provider: Provider, options: GraphOptions, dtypes: Iterable[str]) -> None:
    """Raise `NotSupported` if a delegate of these options, which has tensors of `dtypes`, is in float16 or takes or
    gives such, and the device has none."""
    if (options.precision == "f16" or "float16" in dtypes) and not _adds_float16(provider, options.device):
        raise NotSupported(
            f"the device of {provider.name} on this machine has no float16: lower a model in float32, with"
            " precision=f32"
        )


@cache
def _adds_float16(provider: Provider, kind: str) -> bool:
    """Whether an addition runs: a session of it is made on devices that have no float16, too."""
    made = session(provider, _addition("float16"), {}, kind=kind)
    try:
        with ONE_AT_A_TIME:
            made.run(None, {"x": np.ones(1, np.float16)})
    except Exception:  # pybind's exceptions have no common base
        return False
    return True


def _addition(dtype: str) -> bytes:
    x = BlobTensor("x", dtype, (1,))
    return one_node_model("Add", (), "", [x, x], [replace(x, name="y")])


# ---- sessions -------------------------------------------------------------------------------------------------------


def session(
    provider: Provider,
    model: Buffer,
    options: Mapping[str, str],
    entries: Mapping[str, str] | None = None,
    *,
    weights: Mapping[str, NDArray[Any]] | None = None,
    kind: str = "",
    profile: str | None = None,
) -> Any:
    """A session (`onnxruntime.InferenceSession`) of `model` on the first device of the provider, of this `kind` if one
    is named; `options` are the provider's, `entries` onnxruntime's (`onnxruntime_session_options_config_keys.h`).
    `weights` are the contents of initializers that the model refers to, which have to outlive the session. What the
    provider leaves runs on the CPU unless an entry forbids it. Its profile goes to a file whose name begins with
    `profile`.

    Raises `NotSupported` where there is no such provider or device, and `ProviderFailed`.
    """
    from delegraph_cpu.engine import onnxruntime
    from delegraph_cpu.runtime.ort_values import ort_value

    devices = _of_kind(provider, _require(provider), kind)
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.enable_mem_pattern = provider.plans_memory
    if profile is not None:
        settings.enable_profiling, settings.profile_file_prefix = True, profile
    for key, value in (entries or {}).items():
        settings.add_session_config_entry(key, value)
    if weights:
        settings.add_external_initializers(list(weights), list(map(ort_value, weights.values())))
    if provider.device_library:
        options = {"backend_path": getattr(_package(provider.package), provider.device_library)(), **options}
    if devices:
        settings.add_provider_for_devices(devices[:1], dict(options))
    providers = None if devices else [(provider.ep_name, dict(options))]
    try:
        with ONE_AT_A_TIME:
            # without its fallback, which tries again on the CPU and reports what fails then
            return onnxruntime.InferenceSession(bytes(model), settings, providers=providers, enable_fallback=0)
    except Exception as error:  # pybind's exceptions have no common base
        raise ProviderFailed(" ".join(str(error).split())[:_LONGEST_ERROR]) from error


def _of_kind(provider: Provider, devices: list[Any], kind: str) -> list[Any]:
    """The devices of this kind. Raises `NotSupported` where a plug-in offers others alone."""
    chosen = [device for device in devices if not kind or device.device.type.name == kind]
    if devices and not chosen:
        offered = ", ".join(sorted({device.device.type.name for device in devices}))
        raise NotSupported(f"{provider.package} offers no {kind} on this machine; it offers {offered}")
    return chosen


def left_to_the_cpu(made: Any) -> Iterable[tuple[str, str]]:
    """The names and operators of the nodes of a session that no provider but the CPU's took. The session's entry
    `session.record_ep_graph_assignment_info` has to be set."""
    parts = made.get_provider_graph_assignment_info()
    cpu = (part for part in parts if part.ep_name == "CPUExecutionProvider")
    return [(node.name, node.op_type) for part in cpu for node in part.get_nodes()]
