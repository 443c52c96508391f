"""ExecuTorch's `executorch.exir.passes`: passes for code that was written for it.

New code on Delegraph needs none of them: lowering does what the rest of ExecuTorch's pipeline takes passes for.
"""

from delegraph_executorch.exir.pass_base import ExportPass
from delegraph_executorch.exir.passes.const_prop_pass import ConstPropPass
from delegraph_executorch.exir.passes.dead_code_elimination import dead_code_elimination_pass
from delegraph_executorch.exir.passes.debug_handle_generator_pass import DebugHandleGeneratorPass
from delegraph_executorch.exir.passes.debug_pass import DebugPass
from delegraph_executorch.exir.passes.dynamic_shapes import propagate_dynamic_shape
from delegraph_executorch.exir.passes.insert_write_back_for_buffers_pass import insert_write_back_for_buffers_pass
from delegraph_executorch.exir.passes.legalize_portable_dim_order_pass import LegalizePortableDimOrderPass
from delegraph_executorch.exir.passes.memory_format_ops_pass import MemoryFormatOpsPass
from delegraph_executorch.exir.passes.memory_planning_pass import MemoryPlanningPass
from delegraph_executorch.exir.passes.normalize_transpose_pass import NormalizeTransposePass
from delegraph_executorch.exir.passes.prune_empty_tensors_pass import PruneEmptyTensorsPass
from delegraph_executorch.exir.passes.quant_fusion_pass import QuantFusionPass
from delegraph_executorch.exir.passes.remove_noop_pass import RemoveNoopPass, RemoveToCopyPass
from delegraph_executorch.exir.passes.remove_unused_parameters_pass import remove_unused_parameters_pass
from delegraph_executorch.exir.passes.replace_aten_with_edge_pass import OpReplacePass
from delegraph_executorch.exir.passes.replace_broken_ops_with_function_ops_pass import (
    ReplaceBrokenOpsWithFunctionalOpsPass,
)
from delegraph_executorch.exir.passes.replace_edge_with_backend_pass import EdgeToBackendOpsPass
from delegraph_executorch.exir.passes.replace_sym_size_op_pass import ReplaceSymSizeOpPass
from delegraph_executorch.exir.passes.scalar_to_tensor_pass import ScalarToTensorPass
from delegraph_executorch.exir.passes.spec_prop_pass import SpecPropPass
from delegraph_executorch.exir.passes.sym_shape_eval_pass import HintBasedSymShapeEvalPass
from delegraph_executorch.exir.passes.sym_to_tensor_pass import SymToTensorPass
from delegraph_executorch.exir.passes.to_device_pass import ToDevicePass
from delegraph_executorch.exir.passes.to_out_var_pass import ToOutVarPass, make_alloc_node
from delegraph_executorch.exir.passes.weights_to_outputs_pass import weights_to_outputs_pass

__all__ = [
    "ConstPropPass",
    "DebugHandleGeneratorPass",
    "DebugPass",
    "EdgeToBackendOpsPass",
    "ExportPass",
    "HintBasedSymShapeEvalPass",
    "LegalizePortableDimOrderPass",
    "MemoryFormatOpsPass",
    "MemoryPlanningPass",
    "NormalizeTransposePass",
    "OpReplacePass",
    "PruneEmptyTensorsPass",
    "QuantFusionPass",
    "RemoveNoopPass",
    "RemoveToCopyPass",
    "ReplaceBrokenOpsWithFunctionalOpsPass",
    "ReplaceSymSizeOpPass",
    "ScalarToTensorPass",
    "SpecPropPass",
    "SymToTensorPass",
    "ToDevicePass",
    "ToOutVarPass",
    "dead_code_elimination_pass",
    "insert_write_back_for_buffers_pass",
    "make_alloc_node",
    "propagate_dynamic_shape",
    "remove_unused_parameters_pass",
    "weights_to_outputs_pass",
]
