"""A module of ExecuTorch by its name -> the module, imported now; or an error that says what to install."""

from __future__ import annotations

import warnings
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from delegraph.errors import PluginUnavailable

INSTALL = 'pip install "delegraph-executorch[bridge]"'


def executorch(name: str) -> Any:
    """What `name`, `exir.backend.partitioner` or `exir.backend.partitioner:Partitioner`, is in `executorch`.

    Raises `PluginUnavailable` where the wheel, or something that this part of it needs, is not installed.
    """
    module, _, attribute = name.partition(":")
    try:
        found = import_module(f"executorch.{module}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "executorch" and not _is_installed():
            raise PluginUnavailable(f"ExecuTorch is not installed; what to do: {INSTALL}") from None
        raise PluginUnavailable(f"executorch.{module} cannot be imported here: {error}") from error
    except Exception as error:  # a part of the wheel may look for its vendor's tools when it is imported
        problem = f"{type(error).__name__}: {error}"
        raise PluginUnavailable(f"executorch.{module} cannot be imported here: {problem}") from error
    return getattr(found, attribute) if attribute else found


def _is_installed() -> bool:
    try:
        import_module("executorch.exir")
    except ModuleNotFoundError:
        return False
    return True


#
# torch refuses a second definition of an operator: the wheel could not be imported after ours.


def let_wheel_define_operators() -> None:
    """Import ExecuTorch if it is installed. Call it before looking whether an operator of its is there.

    Its warnings about itself are not shown: where warnings are errors they would end the import half-way.
    """
    with suppress(Exception), warnings.catch_warnings():  # not installed, or broken: what uses the wheel says so
        warnings.simplefilter("ignore")
        import_module("executorch.exir")


BACKENDS: Final = {
    "XnnpackBackend": "backends.xnnpack.xnnpack_preprocess:XnnpackBackend",
    "EthosUBackend": "backends.arm.ethosu:EthosUBackend",
    "TOSABackend": "backends.arm.tosa.backend:TOSABackend",
    "VgfBackend": "backends.arm.vgf:VgfBackend",
    "VulkanBackend": "backends.vulkan.vulkan_preprocess:VulkanBackend",
    "OpenvinoBackend": "backends.openvino.preprocess:OpenvinoBackend",
    "CoreMLBackend": "backends.apple.coreml.compiler.coreml_preprocess:CoreMLBackend",
    "MPSBackend": "backends.apple.mps.mps_preprocess:MPSBackend",
}
