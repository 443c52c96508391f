"""Program -> outputs, without torch. The public names, each imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegraph.lazy import lazy_names

if TYPE_CHECKING:
    from delegraph.interfaces.backend import (
        Availability,
        BackendExecutionContext,
        BackendInitContext,
        BackendInterface,
        Compatibility,
        Verdict,
    )
    from delegraph.interfaces.data_loader import DataLoader
    from delegraph.interfaces.kernel import Kernel, KernelContext, KernelLibrary
    from delegraph.interfaces.platform import LogLevel, Platform
    from delegraph.runtime.data_loader import (
        BufferDataLoader,
        FileDataLoader,
        MmapDataLoader,
        UrlDataLoader,
    )
    from delegraph.runtime.execution.etdump import make_etdump
    from delegraph.runtime.execution.limits import Limits
    from delegraph.runtime.execution.tracing import DebugLevel, EventTracer, ProfileEvent
    from delegraph.runtime.method import Method
    from delegraph.runtime.method_meta import MethodMeta, TensorInfo
    from delegraph.runtime.module import Module, load
    from delegraph.runtime.pool import Pool
    from delegraph.runtime.program import Program, Verification
    from delegraph.runtime.resolution.backends import BackendRegistry
    from delegraph.runtime.resolution.kernels import KernelRegistry
    from delegraph.runtime.runtime import OperatorRegistry, Runtime
    from delegraph.runtime.shared_state import SharedState
    from delegraph.runtime.state import State
    from delegraph.runtime.values.borrowing import Borrowing
    from delegraph.runtime.values.memory import HierarchicalAllocator, MemoryAllocator, MemoryManager
    from delegraph.runtime.values.tensors import as_array, to_torch


__all__ = [
    "Availability",
    "BackendExecutionContext",
    "BackendInitContext",
    "BackendInterface",
    "BackendRegistry",
    "Borrowing",
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
    "Limits",
    "LogLevel",
    "MemoryAllocator",
    "MemoryManager",
    "Method",
    "MethodMeta",
    "MmapDataLoader",
    "Module",
    "OperatorRegistry",
    "Platform",
    "Pool",
    "ProfileEvent",
    "Program",
    "Runtime",
    "SharedState",
    "State",
    "TensorInfo",
    "UrlDataLoader",
    "Verdict",
    "Verification",
    "as_array",
    "load",
    "make_etdump",
    "to_torch",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".interfaces.backend": (
            "Availability",
            "BackendExecutionContext",
            "BackendInitContext",
            "BackendInterface",
            "Compatibility",
            "Verdict",
        ),
        ".interfaces.kernel": ("Kernel", "KernelContext", "KernelLibrary"),
        ".interfaces.data_loader": ("DataLoader",),
        ".interfaces.platform": ("LogLevel", "Platform"),
        "resolution.backends": ("BackendRegistry",),
        "data_loader": ("BufferDataLoader", "FileDataLoader", "MmapDataLoader", "UrlDataLoader"),
        "execution.etdump": ("make_etdump",),
        "resolution.kernels": ("KernelRegistry",),
        "values.borrowing": ("Borrowing",),
        "execution.limits": ("Limits",),
        "values.memory": ("HierarchicalAllocator", "MemoryAllocator", "MemoryManager"),
        "method": ("Method",),
        "method_meta": ("MethodMeta", "TensorInfo"),
        "module": ("Module", "load"),
        "pool": ("Pool",),
        "program": ("Program", "Verification"),
        "runtime": ("OperatorRegistry", "Runtime"),
        "shared_state": ("SharedState",),
        "state": ("State",),
        "values.tensors": ("as_array", "to_torch"),
        "execution.tracing": ("DebugLevel", "EventTracer", "ProfileEvent"),
    },
)
