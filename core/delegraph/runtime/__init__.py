"""Program -> outputs, without torch. The public names, each imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegraph.lazy import DeprecatedName, lazy_names

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
    from delegraph.program.limits import Limits
    from delegraph.program.steps import StepKind
    from delegraph.runtime.binding.schedule import ScheduledStep
    from delegraph.runtime.concurrency import Concurrency
    from delegraph.runtime.data_loader import (
        BufferDataLoader,
        FileDataLoader,
        MmapDataLoader,
        UrlDataLoader,
    )
    from delegraph.runtime.execution.etdump import make_etdump
    from delegraph.runtime.execution.tracing import DebugLevel, EventTracer, ProfileEvent
    from delegraph.runtime.isolation.module import IsolatedMethod, IsolatedModule, IsolatedState
    from delegraph.runtime.method import Method
    from delegraph.runtime.method_meta import MethodMeta, TensorInfo
    from delegraph.runtime.module import Module, load
    from delegraph.runtime.program import Program, Verification
    from delegraph.runtime.resolution.alternatives import DelegateChoice
    from delegraph.runtime.resolution.backends import BackendRegistry
    from delegraph.runtime.resolution.kernels import KernelRegistry
    from delegraph.runtime.runtime import OperatorRegistry, Runtime
    from delegraph.runtime.shared_state import SharedState
    from delegraph.runtime.state import State
    from delegraph.runtime.submitted_calls import Call
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
    "Call",
    "Compatibility",
    "Concurrency",
    "DataLoader",
    "DebugLevel",
    "DelegateChoice",
    "EventTracer",
    "FileDataLoader",
    "HierarchicalAllocator",
    "IsolatedMethod",
    "IsolatedModule",
    "IsolatedState",
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
    "ProfileEvent",
    "Program",
    "Runtime",
    "ScheduledStep",
    "SharedState",
    "State",
    "StepKind",
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
        "delegraph.interfaces.backend": (
            "Availability",
            "BackendExecutionContext",
            "BackendInitContext",
            "BackendInterface",
            "Compatibility",
            "Verdict",
        ),
        "delegraph.interfaces.data_loader": ("DataLoader",),
        "delegraph.interfaces.kernel": ("Kernel", "KernelContext", "KernelLibrary"),
        "delegraph.interfaces.platform": ("LogLevel", "Platform"),
        "delegraph.program.limits": ("Limits",),
        "delegraph.program.steps": ("StepKind",),
        "delegraph.runtime.binding.schedule": ("ScheduledStep",),
        "delegraph.runtime.concurrency": ("Concurrency",),
        "delegraph.runtime.data_loader": ("BufferDataLoader", "FileDataLoader", "MmapDataLoader", "UrlDataLoader"),
        "delegraph.runtime.execution.etdump": ("make_etdump",),
        "delegraph.runtime.execution.tracing": ("DebugLevel", "EventTracer", "ProfileEvent"),
        "delegraph.runtime.isolation.module": ("IsolatedMethod", "IsolatedModule", "IsolatedState"),
        "delegraph.runtime.method": ("Method",),
        "delegraph.runtime.method_meta": ("MethodMeta", "TensorInfo"),
        "delegraph.runtime.module": ("Module", "load"),
        "delegraph.runtime.program": ("Program", "Verification"),
        "delegraph.runtime.resolution.alternatives": ("DelegateChoice",),
        "delegraph.runtime.resolution.backends": ("BackendRegistry",),
        "delegraph.runtime.resolution.kernels": ("KernelRegistry",),
        "delegraph.runtime.runtime": ("OperatorRegistry", "Runtime"),
        "delegraph.runtime.shared_state": ("SharedState",),
        "delegraph.runtime.state": ("State",),
        "delegraph.runtime.submitted_calls": ("Call",),
        "delegraph.runtime.values.borrowing": ("Borrowing",),
        "delegraph.runtime.values.memory": ("HierarchicalAllocator", "MemoryAllocator", "MemoryManager"),
        "delegraph.runtime.values.tensors": ("as_array", "to_torch"),
    },
    {"Pool": DeprecatedName("Concurrency", "2.0", "delegraph.runtime.pool")},
)
