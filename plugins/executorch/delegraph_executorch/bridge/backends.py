"""The backends that have names of their own here: backend id -> where its `BackendDetails` is in `executorch`."""

from __future__ import annotations

from typing import Final

__all__ = ["BACKENDS"]

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
