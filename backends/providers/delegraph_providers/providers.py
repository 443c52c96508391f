"""Execution providers that come as plug-ins of onnxruntime, a row each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["QNN", "Provider"]


@dataclass(frozen=True, slots=True)
class Provider:
    """backend_id: of the delegates that it runs; package: what to import, and distribution: what to install for it.

    registration: the name under which onnxruntime gets to know it, and which its compiled binaries say they are of;
    device_library: the function of the package that gives the library for its device.
    """

    backend_id: str
    package: str
    distribution: str
    registration: str
    device_library: str


QNN: Final = Provider(
    "QnnProvider", "onnxruntime_qnn", "delegraph-providers[qnn]", "QNNExecutionProvider", "get_qnn_htp_path"
)
"""Qualcomm's HTP (onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html). On x86-64 its library compiles
for every Hexagon processor, and emulates one."""
