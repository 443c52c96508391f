"""The classes that plug-ins implement: one for each thing, once. No torch; derive from these, or write what fits them.

An entry-point group, the class that its objects fit, the half that uses it, and what it is there for:

    delegraph.partitioners      `PartitionerFactory`; it makes a `Partitioner`   AOT      chooses nodes for a backend
    delegraph.partitioner_adapters  `PartitionerAdapter`                         AOT      makes others' partitioners fit
    delegraph.lowerings         `BackendDetails`                                 AOT      compiles partitions into blobs
    delegraph.quantizers        `QuantizerFactory`; it makes a `Quantizer`       AOT      says how values are quantized
    delegraph.passes            `PassFactory`; it makes a `GraphPass`            AOT      rewrites graphs
    delegraph.pass_adapters     `PassAdapter`                                    AOT      makes others' passes fit
    delegraph.stages            `StageFactory`; it makes a `PipelineStage`       AOT      a step of lowering
    delegraph.dialect_rules     `DialectRuleFactory`; it makes a `DialectRule`   AOT      what programs must satisfy
    delegraph.memory_planners   `MemoryPlanner`                                  AOT      places tensors in memory
    delegraph.backends          `BackendInterface`                               runtime  runs blobs
    delegraph.kernels           `KernelLibraryInterface`, mostly `KernelLibrary` runtime  has kernels of operators
    delegraph.platforms         `PlatformFactory`; it makes a `Platform`         runtime  clock, log and memory
    delegraph.data_loaders      `DataLoaderFactory`; it makes a `DataLoader`     runtime  reads files from URLs
    delegraph.conformance_kits  `ConformanceKit`                                 either   proves plug-ins
    delegraph.plugins           `ToolHooks`                                      either   wraps and watches the others

What is checked when a plug-in is loaded, and what tools may wrap, is read off these classes (`delegraph.plugins`): the
public methods that a class defines, with their parameters, and the attributes to which it gives values. Call them
*hooks*. An object fits if it has every hook and can be called with those parameters by position; it may call them
otherwise, and have more where they have defaults.

    backend.py           one blob's life: is_available, check, init, execute, destroy; what these are handed
    backend_cache.py      a backend's part of the user's cache
    compilation_cache.py  what backends compile at load, kept for the next one
    host.py              this machine, as code compiled for it depends on it
    forks.py             engines that a forked process cannot use
    places.py            inputs that hold places of a tensor, and which of them it has not
    delegate_checks.py   what the runtime half of every backend asks of blobs and calls
    submission.py        a delegate's run that goes on beside the host's
    description.py       what is in a blob: nodes, weights, device
    device.py            memory of a device, and tensors in it
    external_memory.py   tensors in memory that somebody else owns, as a device's allocator imports them
    dlpack.py            capsules of DLPack, read and written
    dma_buf.py           tensors in DMA-bufs
    stamp.py             who made a blob
    blob.py              a blob's bytes: a header, named sections and their digests
    former.py            what had these places before
    records.py           JSON that strangers wrote, as dataclasses
    kernel.py            kernels, their keys, libraries of them; what a kernel is handed
    memory_hierarchy.py  a board's TOML file -> its memories
    memory_planner.py    lifetimes -> plan, and when a plan is sound
    lowering.py          partitioners and preprocess
    quantizer.py         quantizers
    graph_pass.py        passes
    pipeline.py          stages, and rules of dialects
    conformance_kit.py   what proves plug-ins
    tool.py              events, and the hooks that may be wrapped
    options.py           what a user wrote beside a plug-in's name
    platform.py          the machine: clock, log, abort, allocation
    data_loader.py       where files come from
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegraph.lazy import DeprecatedName, lazy_names

if TYPE_CHECKING:
    from delegraph.interfaces.backend import (
        Argument,
        Availability,
        BackendDevice,
        BackendExecutionContext,
        BackendInitContext,
        BackendInterface,
        Compatibility,
        DeviceBuffer,
        EventTracer,
        Handle,
        Verdict,
    )
    from delegraph.interfaces.backend_cache import BackendCache
    from delegraph.interfaces.blob import BlobFormat, BlobTensor, UnpackedBlob
    from delegraph.interfaces.compilation_cache import CacheChoice, CacheEntry, CompilationCache
    from delegraph.interfaces.conformance_kit import ConformanceKit
    from delegraph.interfaces.data_loader import DataLoader, DataLoaderFactory
    from delegraph.interfaces.delegate_checks import (
        is_used_in_place,
        shape_in_run,
        shared_data,
        sizes_in_run,
        split_arguments,
    )
    from delegraph.interfaces.description import (
        DelegateDescription,
        DelegateNode,
        DelegateWeight,
        DescribedTensor,
    )
    from delegraph.interfaces.device import DeviceAllocator, DeviceMemoryBuffer, DeviceTensor
    from delegraph.interfaces.dma_buf import DmaBuf
    from delegraph.interfaces.external_memory import ExternalTensor
    from delegraph.interfaces.forks import leave_at_fork
    from delegraph.interfaces.graph_pass import (
        ExportedProgramPassBase,
        ExportedProgramPassResult,
        GraphPass,
        PassAdapter,
        PassFactory,
    )
    from delegraph.interfaces.kernel import (
        BindContext,
        BoundCall,
        Kernel,
        KernelContext,
        KernelKey,
        KernelLibrary,
        KernelLibraryInterface,
        TensorMeta,
        kernel_key_text,
    )
    from delegraph.interfaces.lowering import (
        BackendDetails,
        BlobVariant,
        CompileSpec,
        DelegationSpec,
        NamedDataStoreOutput,
        Partitioner,
        PartitionerAdapter,
        PartitionerFactory,
        PartitionResult,
        PreprocessResult,
    )
    from delegraph.interfaces.memory_hierarchy import Memory, MemoryHierarchy, read_memory_hierarchy
    from delegraph.interfaces.memory_planner import Lifetime, MemoryPlanner, Plan, PlanError, check_plan
    from delegraph.interfaces.options import DelegateOptions, Options, OptionValue
    from delegraph.interfaces.pipeline import DialectRule, DialectRuleFactory, PipelineStage, StageFactory
    from delegraph.interfaces.places import PlacesInfo, UnusableValue, missing_place
    from delegraph.interfaces.platform import LogLevel, Platform, PlatformFactory
    from delegraph.interfaces.quantizer import Quantizer, QuantizerFactory
    from delegraph.interfaces.records import Size, read_record
    from delegraph.interfaces.shared_engines import SharedEngines
    from delegraph.interfaces.stamp import BlobStamp, read_stamp
    from delegraph.interfaces.submission import CallQueue, Event
    from delegraph.interfaces.tool import WRAPPABLE, ToolHooks
    from delegraph.program.devices import Device
    from delegraph.program.schema import Buffer


__all__ = [
    "WRAPPABLE",
    "Argument",
    "Availability",
    "BackendCache",
    "BackendDetails",
    "BackendDevice",
    "BackendExecutionContext",
    "BackendInitContext",
    "BackendInterface",
    "BindContext",
    "BlobFormat",
    "BlobStamp",
    "BlobTensor",
    "BlobVariant",
    "BoundCall",
    "Buffer",
    "CacheChoice",
    "CacheEntry",
    "CallQueue",
    "Compatibility",
    "CompilationCache",
    "CompileSpec",
    "ConformanceKit",
    "DataLoader",
    "DataLoaderFactory",
    "DelegateDescription",
    "DelegateNode",
    "DelegateOptions",
    "DelegateWeight",
    "DelegationSpec",
    "DescribedTensor",
    "Device",
    "DeviceAllocator",
    "DeviceBuffer",
    "DeviceMemoryBuffer",
    "DeviceTensor",
    "DialectRule",
    "DialectRuleFactory",
    "DmaBuf",
    "Event",
    "EventTracer",
    "ExportedProgramPassBase",
    "ExportedProgramPassResult",
    "ExternalTensor",
    "GraphPass",
    "Handle",
    "Kernel",
    "KernelContext",
    "KernelKey",
    "KernelLibrary",
    "KernelLibraryInterface",
    "Lifetime",
    "LogLevel",
    "Memory",
    "MemoryHierarchy",
    "MemoryPlanner",
    "NamedDataStoreOutput",
    "OptionValue",
    "Options",
    "PartitionResult",
    "Partitioner",
    "PartitionerAdapter",
    "PartitionerFactory",
    "PassAdapter",
    "PassFactory",
    "PipelineStage",
    "PlacesInfo",
    "Plan",
    "PlanError",
    "Platform",
    "PlatformFactory",
    "PreprocessResult",
    "Quantizer",
    "QuantizerFactory",
    "SharedEngines",
    "Size",
    "StageFactory",
    "TensorMeta",
    "ToolHooks",
    "UnpackedBlob",
    "UnusableValue",
    "Verdict",
    "check_plan",
    "is_used_in_place",
    "kernel_key_text",
    "leave_at_fork",
    "missing_place",
    "read_memory_hierarchy",
    "read_record",
    "read_stamp",
    "shape_in_run",
    "shared_data",
    "sizes_in_run",
    "split_arguments",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "delegraph.interfaces.backend": (
            "Argument",
            "Availability",
            "BackendDevice",
            "BackendExecutionContext",
            "BackendInitContext",
            "BackendInterface",
            "Compatibility",
            "DeviceBuffer",
            "EventTracer",
            "Handle",
            "Verdict",
        ),
        "delegraph.interfaces.backend_cache": ("BackendCache",),
        "delegraph.interfaces.blob": ("BlobFormat", "BlobTensor", "UnpackedBlob"),
        "delegraph.interfaces.compilation_cache": ("CacheChoice", "CacheEntry", "CompilationCache"),
        "delegraph.interfaces.conformance_kit": ("ConformanceKit",),
        "delegraph.interfaces.data_loader": ("DataLoader", "DataLoaderFactory"),
        "delegraph.interfaces.delegate_checks": (
            "is_used_in_place",
            "shape_in_run",
            "shared_data",
            "sizes_in_run",
            "split_arguments",
        ),
        "delegraph.interfaces.description": (
            "DelegateDescription",
            "DelegateNode",
            "DelegateWeight",
            "DescribedTensor",
        ),
        "delegraph.interfaces.device": ("DeviceAllocator", "DeviceMemoryBuffer", "DeviceTensor"),
        "delegraph.interfaces.dma_buf": ("DmaBuf",),
        "delegraph.interfaces.external_memory": ("ExternalTensor",),
        "delegraph.interfaces.forks": ("leave_at_fork",),
        "delegraph.interfaces.graph_pass": (
            "ExportedProgramPassBase",
            "ExportedProgramPassResult",
            "GraphPass",
            "PassAdapter",
            "PassFactory",
        ),
        "delegraph.interfaces.kernel": (
            "BindContext",
            "BoundCall",
            "Kernel",
            "KernelContext",
            "KernelKey",
            "KernelLibrary",
            "KernelLibraryInterface",
            "TensorMeta",
            "kernel_key_text",
        ),
        "delegraph.interfaces.lowering": (
            "BackendDetails",
            "BlobVariant",
            "CompileSpec",
            "DelegationSpec",
            "NamedDataStoreOutput",
            "Partitioner",
            "PartitionerAdapter",
            "PartitionerFactory",
            "PartitionResult",
            "PreprocessResult",
        ),
        "delegraph.interfaces.memory_hierarchy": ("Memory", "MemoryHierarchy", "read_memory_hierarchy"),
        "delegraph.interfaces.memory_planner": ("Lifetime", "MemoryPlanner", "Plan", "PlanError", "check_plan"),
        "delegraph.interfaces.options": ("DelegateOptions", "Options", "OptionValue"),
        "delegraph.interfaces.pipeline": ("DialectRule", "DialectRuleFactory", "PipelineStage", "StageFactory"),
        "delegraph.interfaces.places": ("PlacesInfo", "UnusableValue", "missing_place"),
        "delegraph.interfaces.platform": ("LogLevel", "Platform", "PlatformFactory"),
        "delegraph.interfaces.quantizer": ("Quantizer", "QuantizerFactory"),
        "delegraph.interfaces.records": ("Size", "read_record"),
        "delegraph.interfaces.shared_engines": ("SharedEngines",),
        "delegraph.interfaces.stamp": ("BlobStamp", "read_stamp"),
        "delegraph.interfaces.submission": ("CallQueue", "Event"),
        "delegraph.interfaces.tool": ("WRAPPABLE", "ToolHooks"),
        "delegraph.program.devices": ("Device",),
        "delegraph.program.schema": ("Buffer",),
    },
    {
        "blob_compatibility": DeprecatedName("BackendInterface.check", "2.0", "delegraph.interfaces.former"),
        "pack_blob": DeprecatedName("BlobFormat.pack", "2.0", "delegraph.interfaces.former"),
        "unpack_blob": DeprecatedName("BlobFormat.unpack", "2.0", "delegraph.interfaces.former"),
    },
)
