"""Program -> outputs, without torch. The public names, each imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delegraph.runtime.backends import (
        Availability,
        BackendExecutionContext,
        BackendInitContext,
        BackendInterface,
        BackendRegistry,
        Compatibility,
        Verdict,
    )
    from delegraph.runtime.data_loader import BufferDataLoader, DataLoader, FileDataLoader, MmapDataLoader
    from delegraph.runtime.kernels import Kernel, KernelContext, KernelLibrary, KernelRegistry
    from delegraph.runtime.memory import HierarchicalAllocator, MemoryAllocator, MemoryManager
    from delegraph.runtime.method import Method
    from delegraph.runtime.method_meta import MethodMeta, TensorInfo
    from delegraph.runtime.module import Module, load
    from delegraph.runtime.platform import LogLevel, Platform
    from delegraph.runtime.program import Program, Verification
    from delegraph.runtime.runtime import OperatorRegistry, Runtime
    from delegraph.runtime.tracing import DebugLevel, EventTracer

_MODULES: Final = {
    "backends": (
        "Availability",
        "BackendExecutionContext",
        "BackendInitContext",
        "BackendInterface",
        "BackendRegistry",
        "Compatibility",
        "Verdict",
    ),
    "data_loader": ("BufferDataLoader", "DataLoader", "FileDataLoader", "MmapDataLoader"),
    "kernels": ("Kernel", "KernelContext", "KernelLibrary", "KernelRegistry"),
    "memory": ("HierarchicalAllocator", "MemoryAllocator", "MemoryManager"),
    "method": ("Method",),
    "method_meta": ("MethodMeta", "TensorInfo"),
    "module": ("Module", "load"),
    "platform": ("LogLevel", "Platform"),
    "program": ("Program", "Verification"),
    "runtime": ("OperatorRegistry", "Runtime"),
    "tracing": ("DebugLevel", "EventTracer"),
}

__all__ = [
    "Availability",
    "BackendExecutionContext",
    "BackendInitContext",
    "BackendInterface",
    "BackendRegistry",
    "BufferDataLoader",
    "Compatibility",
    "DataLoader",
    "DebugLevel",
    "EventTracer",
    "FileDataLoader",
    "HierarchicalAllocator",
    "Kernel",
    "KernelContext",
    "KernelLibrary",
    "KernelRegistry",
    "LogLevel",
    "MemoryAllocator",
    "MemoryManager",
    "Method",
    "MethodMeta",
    "MmapDataLoader",
    "Module",
    "OperatorRegistry",
    "Platform",
    "Program",
    "Runtime",
    "TensorInfo",
    "Verdict",
    "Verification",
    "load",
]

_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return __all__
