"""A provider -> sessions of onnxruntime on its device."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from delegraph.errors import NotSupported
from delegraph_cpu.engine import onnxruntime
from delegraph_providers.providers import Provider

__all__ = ["ProviderFailed", "session", "version_of"]

_LONGEST_ERROR: Final = 300
"""Characters of an error of onnxruntime's that stand in a reason."""

_lock = threading.Lock()


class ProviderFailed(Exception):
    """onnxruntime, or the provider in it, refuses a graph; the text is theirs."""


@cache
def _package(name: str) -> Any:
    return importlib.import_module(name)


def version_of(provider: Provider) -> str:
    """The provider's version, and onnxruntime's. Raises `NotSupported` if its package is not installed."""
    _devices(provider)
    return f"{provider.package} {_package(provider.package).__version__}, onnxruntime {onnxruntime.__version__}"


def _devices(provider: Provider) -> list[Any]:
    """The devices that the provider offers here, in its order; it is registered once in a process."""
    with _lock:
        names = {device.ep_name for device in onnxruntime.get_ep_devices()}
        if provider.registration not in names:
            try:
                library = _package(provider.package).get_library_path()
                onnxruntime.register_execution_provider_library(provider.registration, library)
            except ImportError as error:
                raise NotSupported(
                    f"{provider.package} is not installed: pip install '{provider.distribution}'"
                ) from error
            except Exception as error:  # pybind's exceptions have no common base
                raise NotSupported(f"onnxruntime does not load {provider.package}: {error}") from error
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == provider.registration]
    if not devices:
        raise NotSupported(f"{provider.package} finds no device of its own on this machine")
    return devices


def session(
    provider: Provider,
    model: bytes,
    options: Mapping[str, str],
    entries: Mapping[str, str] | None = None,
) -> onnxruntime.InferenceSession:
    """A session of `model` on the first device of the provider; `options` are the provider's, `entries` onnxruntime's
    (`onnxruntime_session_options_config_keys.h`). What the provider leaves runs on the CPU unless an entry forbids it.

    Raises `NotSupported` where there is no such provider, and `ProviderFailed`.
    """
    devices = _devices(provider)
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    library = getattr(_package(provider.package), provider.device_library)()
    settings.add_provider_for_devices(devices[:1], {"backend_path": library, **options})
    for key, value in (entries or {}).items():
        settings.add_session_config_entry(key, value)
    try:
        # without its fallback, which tries again on the CPU and reports what fails then
        return onnxruntime.InferenceSession(model, settings, enable_fallback=0)
    except Exception as error:  # pybind's exceptions have no common base
        raise ProviderFailed(" ".join(str(error).split())[:_LONGEST_ERROR]) from error
