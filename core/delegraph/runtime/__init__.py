"""Program -> outputs, without torch. The public names, each imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegraph.lazy import lazy_names

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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
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
    },
)
