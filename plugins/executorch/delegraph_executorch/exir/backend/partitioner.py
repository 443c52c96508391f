"""ExecuTorch's `executorch.exir.backend.partitioner`."""

from torch.export import ExportedProgram

from delegraph.aot import CompileSpec, DelegationSpec, Partitioner, PartitionResult
from delegraph_executorch.exir.backend.backend_details import enforcedmethod

__all__ = ["CompileSpec", "DelegationSpec", "ExportedProgram", "PartitionResult", "Partitioner", "enforcedmethod"]
