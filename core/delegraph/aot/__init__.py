"""Model -> program, ahead of time; needs torch. The public names, each imported when it is first used.

Names that ExecuTorch has too mean the same here: code written for it changes its imports to this package's. The one
call that does it all is `delegraph.lower` (here `lower` is the module that has it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegraph.lazy import lazy_names

if TYPE_CHECKING:
    from delegraph.aot.config import EdgeCompileConfig, ExecutorchBackendConfig, LoweringConfig
    from delegraph.aot.delegation.named_data_store import NamedDataStore
    from delegraph.aot.delegation.partition import tag_constant_data, tag_mutated_buffer
    from delegraph.aot.delegation.report import LoweringReport
    from delegraph.aot.delegation.shared_weights import SharedWeights
    from delegraph.aot.edge.edge_ops import EdgeOpOverload, exir_ops
    from delegraph.aot.emission.manager import ExecutorchProgramManager
    from delegraph.aot.graph.signature import HeldTensor, ResolvedSignature, WriteBack
    from delegraph.aot.graph.text import program_text
    from delegraph.aot.lower import EdgeProgramManager, Lowered, to_edge, to_edge_transform_and_lower
    from delegraph.aot.passes import ExportPass, PassResult
    from delegraph.interfaces.lowering import (
        BackendDetails,
        CompileSpec,
        DelegationSpec,
        NamedDataStoreOutput,
        Partitioner,
        PartitionResult,
        PreprocessResult,
    )


__all__ = [
    "BackendDetails",
    "CompileSpec",
    "DelegationSpec",
    "EdgeCompileConfig",
    "EdgeOpOverload",
    "EdgeProgramManager",
    "ExecutorchBackendConfig",
    "ExecutorchProgramManager",
    "ExportPass",
    "HeldTensor",
    "Lowered",
    "LoweringConfig",
    "LoweringReport",
    "NamedDataStore",
    "NamedDataStoreOutput",
    "PartitionResult",
    "Partitioner",
    "PassResult",
    "PreprocessResult",
    "ResolvedSignature",
    "SharedWeights",
    "WriteBack",
    "exir_ops",
    "program_text",
    "tag_constant_data",
    "tag_mutated_buffer",
    "to_edge",
    "to_edge_transform_and_lower",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "config": ("EdgeCompileConfig", "ExecutorchBackendConfig", "LoweringConfig"),
        ".interfaces.lowering": (
            "BackendDetails",
            "CompileSpec",
            "DelegationSpec",
            "NamedDataStoreOutput",
            "PartitionResult",
            "Partitioner",
            "PreprocessResult",
        ),
        "delegation.named_data_store": ("NamedDataStore",),
        "delegation.partition": ("tag_constant_data", "tag_mutated_buffer"),
        "delegation.report": ("LoweringReport",),
        "delegation.shared_weights": ("SharedWeights",),
        "edge.edge_ops": ("EdgeOpOverload", "exir_ops"),
        "emission.manager": ("ExecutorchProgramManager",),
        "graph.signature": ("HeldTensor", "ResolvedSignature", "WriteBack"),
        "graph.text": ("program_text",),
        "lower": ("EdgeProgramManager", "Lowered", "to_edge", "to_edge_transform_and_lower"),
        "passes": ("ExportPass", "PassResult"),
    },
)
