"""Lowering, its settings and managers (ExecuTorch's `executorch.exir`). Each name is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram, ExportGraphSignature

    from delegraph_executorch.exir.capture import (
        CallSpec,
        CaptureConfig,
        EdgeCompileConfig,
        ExecutorchBackendConfig,
        _capture_legacy_do_not_use,
        capture,
    )
    from delegraph_executorch.exir.emit import EmitterOutput, emit_program
    from delegraph_executorch.exir.program import (
        EdgeProgramManager,
        ExecutorchProgram,
        ExecutorchProgramManager,
        ExirExportedProgram,
        _to_edge,
        edge_to_executorch_passes,
        to_edge,
        to_edge_transform_and_lower,
    )
    from delegraph_executorch.exir.serde.serialize import load, save
    from delegraph_executorch.exir.tracer import ExirDynamoConfig, Value

__all__ = [
    "CallSpec",
    "CaptureConfig",
    "EdgeCompileConfig",
    "EdgeProgramManager",
    "EmitterOutput",
    "ExecutorchBackendConfig",
    "ExecutorchProgram",
    "ExecutorchProgramManager",
    "ExirDynamoConfig",
    "ExirExportedProgram",
    "ExportGraphSignature",
    "ExportedProgram",
    "Value",
    "_capture_legacy_do_not_use",
    "_to_edge",
    "capture",
    "edge_to_executorch_passes",
    "emit_program",
    "load",
    "save",
    "to_edge",
    "to_edge_transform_and_lower",
]

_HOMES = {
    "torch.export": ("ExportGraphSignature", "ExportedProgram"),
    f"{__name__}.capture._capture": ("CallSpec", "_capture_legacy_do_not_use", "capture"),
    f"{__name__}.capture._config": ("CaptureConfig", "EdgeCompileConfig", "ExecutorchBackendConfig"),
    f"{__name__}.emit": ("EmitterOutput", "emit_program"),
    f"{__name__}.program": (
        "EdgeProgramManager",
        "ExecutorchProgram",
        "ExecutorchProgramManager",
        "ExirExportedProgram",
        "_to_edge",
        "edge_to_executorch_passes",
        "to_edge",
        "to_edge_transform_and_lower",
    ),
    f"{__name__}.serde.serialize": ("load", "save"),
    f"{__name__}.tracer": ("ExirDynamoConfig", "Value"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
