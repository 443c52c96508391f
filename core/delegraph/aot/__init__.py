"""Model -> program, ahead of time; needs torch. The public names, each imported when it is first used.

The one call that does it all is `delegraph.lower` (here `lower` is the module that has it). Names that ExecuTorch has
too mean the same here: code written for it changes its imports to this package's.

Lowering in steps
    to_edge, to_edge_transform_and_lower -> EdgeProgramManager -> ExecutorchProgramManager; Lowered is what
    `delegraph.lower` gives, LoweringReport says which node went where and why
    to_backend, MethodProgramsPartitionerSpec: a program lowered by itself, onto one backend or by one partitioner;
    LoweredBackendModule, what it gives, may stand in a larger model
    ETRecord, generate_etrecord, parse_etrecord: which instruction came from which node, for an Inspector
    serialize_exported_program, deserialize_exported_program, SerializedExportedProgram: a program as JSON and tensors
    EdgeCompileConfig, ExecutorchBackendConfig, LoweringConfig: the settings; MemoryPlanningPass is one of the second,
    MethodMemory and MethodPlan are what it is handed and gives; PropagateDeviceConfig is another
    Lowering: what flows through the stages, and a plug-in's own, which may edit what copy_program gives;
    Stage, StageWatcher: what `lower(progress=…)` tells a watcher
A backend's AOT half
    Partitioner, PartitionResult, DelegationSpec; BackendDetails, PreprocessResult, CompileSpec
    NamedDataStore, NamedDataStoreOutput, SharedWeights: data that several blobs share
    external_tag, layout_of: which `.ptd` a weight goes to, and how it lies there
    DelegateMappingBuilder: which nodes stand behind a backend's own instructions
    tag_constant_data, tag_mutated_buffer: what a partitioner takes besides calls
    edge_program: what a partitioner is shown of an exported program
    validation_disabled: a partitioner may change the graph
A backend's quantizer
    Recipe, recipe_named: what `quantize(recipe=…)` asks for; activation_spec, weight_spec: torchao's specs of it
    HistogramObserver, PercentileObserver: torchao's observers, but fast
    annotate, annotation_of, shared_spec, joined_specs: what is said of a call; operands_of, fused_calls: what it takes,
    and what is computed with it; is_float_tensor, is_quantized, is_read_once, is_weight: of values
    float_operand: why a call that takes grids as they are has none
    channel_dim: the channels in a layer's weight; VALUE_MOVES: what only moves values; normalized_sums: what needs more
    than 8 bits
    cut_attention: attention as its products and its softmax, each of which gets a grid
    QuantizationReport, MethodQuantization, LayerQuantization: what `quantize` gives beside the programs
A pass
    ExportPass, PassBase, PassResult: of a graph; NodeMetadata, ProxyValue: what an ExportPass works with
    ExportedProgramPassBase, ExportedProgramPassResult: of a program; program_with_graph: a program with an edited graph
    PropagateDevicePass: copies around delegates for a device; device_of: where a node's results lie after it
    verify, Dialect; ATEN, FUNCTIONAL, CORE_ATEN, EDGE: what each dialect admits
Reading a graph
    exir_ops, EdgeOpOverload, EdgeOpOverloadPacket, BackendOpOverload, BackendOpOverloadPacket: operators by their names
    use_edge_operators: a graph of torch's operators calls them by those names
    graph_modules: a graph and the bodies of its control flow
    is_delegate_call, is_scalar, lifted_number, get_lowered_module, schema_arguments, user_location: of a node
    number_overload: `mul.Scalar` for `mul.Tensor`
    get_dim_order, get_memory_format: torch's memory formats <-> dim orders
    ResolvedSignature, HeldTensor, WriteBack: which placeholder is which weight, which buffer changes
    memory_use, MemoryUse: which results show or overwrite the memory of others, in a program that was emitted
    program_text: the whole program as text
    condensed_order, DependencyCycle: groups of nodes in an order in which they can run
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegraph.lazy import lazy_names

if TYPE_CHECKING:
    from delegraph.aot.backend_api import MethodProgramsPartitionerSpec, to_backend
    from delegraph.aot.config import EdgeCompileConfig, ExecutorchBackendConfig, LoweringConfig, PropagateDeviceConfig
    from delegraph.aot.delegation.delegate_mapping import DelegateMappingBuilder
    from delegraph.aot.delegation.forms import edge_program
    from delegraph.aot.delegation.lowered_module import LoweredBackendModule, get_lowered_module, is_delegate_call
    from delegraph.aot.delegation.named_data_store import NamedDataStore
    from delegraph.aot.delegation.partition import (
        DependencyCycle,
        condensed_order,
        tag_constant_data,
        tag_mutated_buffer,
        validation_disabled,
    )
    from delegraph.aot.delegation.propagate_device import PropagateDevicePass
    from delegraph.aot.delegation.report import LoweringReport
    from delegraph.aot.delegation.shared_weights import SharedWeights
    from delegraph.aot.edge.dialects import ATEN, CORE_ATEN, EDGE, FUNCTIONAL, Dialect, verify
    from delegraph.aot.edge.edge_ops import (
        BackendOpOverload,
        BackendOpOverloadPacket,
        EdgeOpOverload,
        EdgeOpOverloadPacket,
        exir_ops,
        use_edge_operators,
    )
    from delegraph.aot.edge.memory_formats import get_dim_order, get_memory_format
    from delegraph.aot.edge.tensor_operands import lifted_number, number_overload
    from delegraph.aot.emission.manager import ExecutorchProgramManager
    from delegraph.aot.etrecord.archive import read_zip_members
    from delegraph.aot.etrecord.program_json import (
        SerializedExportedProgram,
        deserialize_exported_program,
        serialize_exported_program,
    )
    from delegraph.aot.etrecord.record import (
        ETRecord,
        ETRecordReservedFileNames,
        generate_etrecord,
        parse_etrecord,
    )
    from delegraph.aot.graph.bodies import graph_modules
    from delegraph.aot.graph.devices import device_of
    from delegraph.aot.graph.edit import copy_program
    from delegraph.aot.graph.external_constants import external_tag
    from delegraph.aot.graph.memory_use import MemoryUse, memory_use
    from delegraph.aot.graph.scalars import is_scalar
    from delegraph.aot.graph.schema_binding import schema_arguments
    from delegraph.aot.graph.signature import HeldTensor, ResolvedSignature, WriteBack
    from delegraph.aot.graph.source_location import user_location
    from delegraph.aot.graph.stored_tensor import layout_of
    from delegraph.aot.graph.text import program_text
    from delegraph.aot.lower import EdgeProgramManager, Lowered, to_edge, to_edge_transform_and_lower
    from delegraph.aot.memory_planning import MemoryPlanningPass, MethodMemory, MethodPlan
    from delegraph.aot.passes import (
        PROTECTED_KEYS,
        ExportedProgramPassBase,
        ExportedProgramPassResult,
        ExportPass,
        NodeMetadata,
        PassBase,
        PassResult,
        ProxyValue,
        program_with_graph,
    )
    from delegraph.aot.passes.weights_to_outputs import WeightsToOutputs
    from delegraph.aot.quantize.annotation.observers import HistogramObserver, PercentileObserver
    from delegraph.aot.quantize.annotation.residual_sums import normalized_sums
    from delegraph.aot.quantize.annotation.specs import activation_spec, weight_spec
    from delegraph.aot.quantize.annotations import (
        VALUE_MOVES,
        annotate,
        annotation_of,
        float_operand,
        fused_calls,
        is_float_tensor,
        is_quantized,
        is_read_once,
        is_weight,
        joined_specs,
        operands_of,
        shared_spec,
    )
    from delegraph.aot.quantize.measurement.report import LayerQuantization, MethodQuantization, QuantizationReport
    from delegraph.aot.quantize.recipes import Recipe, recipe_named
    from delegraph.aot.quantize.rewrites.attention import cut_attention
    from delegraph.aot.quantize.weights.layer_weights import channel_dim
    from delegraph.aot.stage import Lowering, Stage, StageWatcher
    from delegraph.interfaces.lowering import (
        BackendDetails,
        BlobVariant,
        CompileSpec,
        DelegationSpec,
        NamedDataStoreOutput,
        Partitioner,
        PartitionResult,
        PreprocessResult,
    )


__all__ = [
    "ATEN",
    "CORE_ATEN",
    "EDGE",
    "FUNCTIONAL",
    "PROTECTED_KEYS",
    "VALUE_MOVES",
    "BackendDetails",
    "BackendOpOverload",
    "BackendOpOverloadPacket",
    "BlobVariant",
    "CompileSpec",
    "DelegateMappingBuilder",
    "DelegationSpec",
    "DependencyCycle",
    "Dialect",
    "ETRecord",
    "ETRecordReservedFileNames",
    "EdgeCompileConfig",
    "EdgeOpOverload",
    "EdgeOpOverloadPacket",
    "EdgeProgramManager",
    "ExecutorchBackendConfig",
    "ExecutorchProgramManager",
    "ExportPass",
    "ExportedProgramPassBase",
    "ExportedProgramPassResult",
    "HeldTensor",
    "HistogramObserver",
    "LayerQuantization",
    "Lowered",
    "LoweredBackendModule",
    "Lowering",
    "LoweringConfig",
    "LoweringReport",
    "MemoryPlanningPass",
    "MemoryUse",
    "MethodMemory",
    "MethodPlan",
    "MethodProgramsPartitionerSpec",
    "MethodQuantization",
    "NamedDataStore",
    "NamedDataStoreOutput",
    "NodeMetadata",
    "PartitionResult",
    "Partitioner",
    "PassBase",
    "PassResult",
    "PercentileObserver",
    "PreprocessResult",
    "PropagateDeviceConfig",
    "PropagateDevicePass",
    "ProxyValue",
    "QuantizationReport",
    "Recipe",
    "ResolvedSignature",
    "SerializedExportedProgram",
    "SharedWeights",
    "Stage",
    "StageWatcher",
    "WeightsToOutputs",
    "WriteBack",
    "activation_spec",
    "annotate",
    "annotation_of",
    "channel_dim",
    "condensed_order",
    "copy_program",
    "cut_attention",
    "deserialize_exported_program",
    "device_of",
    "edge_program",
    "exir_ops",
    "external_tag",
    "float_operand",
    "fused_calls",
    "generate_etrecord",
    "get_dim_order",
    "get_lowered_module",
    "get_memory_format",
    "graph_modules",
    "is_delegate_call",
    "is_float_tensor",
    "is_quantized",
    "is_read_once",
    "is_scalar",
    "is_weight",
    "joined_specs",
    "layout_of",
    "lifted_number",
    "memory_use",
    "normalized_sums",
    "number_overload",
    "operands_of",
    "parse_etrecord",
    "program_text",
    "program_with_graph",
    "read_zip_members",
    "recipe_named",
    "schema_arguments",
    "serialize_exported_program",
    "shared_spec",
    "tag_constant_data",
    "tag_mutated_buffer",
    "to_backend",
    "to_edge",
    "to_edge_transform_and_lower",
    "use_edge_operators",
    "user_location",
    "validation_disabled",
    "verify",
    "weight_spec",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "delegraph.aot.backend_api": ("MethodProgramsPartitionerSpec", "to_backend"),
        "delegraph.aot.config": (
            "EdgeCompileConfig",
            "ExecutorchBackendConfig",
            "LoweringConfig",
            "PropagateDeviceConfig",
        ),
        "delegraph.aot.delegation.delegate_mapping": ("DelegateMappingBuilder",),
        "delegraph.aot.delegation.forms": ("edge_program",),
        "delegraph.aot.delegation.lowered_module": ("LoweredBackendModule", "get_lowered_module", "is_delegate_call"),
        "delegraph.aot.delegation.named_data_store": ("NamedDataStore",),
        "delegraph.aot.delegation.partition": (
            "DependencyCycle",
            "condensed_order",
            "tag_constant_data",
            "tag_mutated_buffer",
            "validation_disabled",
        ),
        "delegraph.aot.delegation.propagate_device": ("PropagateDevicePass",),
        "delegraph.aot.delegation.report": ("LoweringReport",),
        "delegraph.aot.delegation.shared_weights": ("SharedWeights",),
        "delegraph.aot.edge.dialects": ("ATEN", "CORE_ATEN", "EDGE", "FUNCTIONAL", "Dialect", "verify"),
        "delegraph.aot.edge.edge_ops": (
            "BackendOpOverload",
            "BackendOpOverloadPacket",
            "EdgeOpOverload",
            "EdgeOpOverloadPacket",
            "exir_ops",
            "use_edge_operators",
        ),
        "delegraph.aot.edge.memory_formats": ("get_dim_order", "get_memory_format"),
        "delegraph.aot.edge.tensor_operands": ("lifted_number", "number_overload"),
        "delegraph.aot.emission.manager": ("ExecutorchProgramManager",),
        "delegraph.aot.etrecord.archive": ("read_zip_members",),
        "delegraph.aot.etrecord.program_json": (
            "SerializedExportedProgram",
            "deserialize_exported_program",
            "serialize_exported_program",
        ),
        "delegraph.aot.etrecord.record": (
            "ETRecord",
            "ETRecordReservedFileNames",
            "generate_etrecord",
            "parse_etrecord",
        ),
        "delegraph.aot.graph.bodies": ("graph_modules",),
        "delegraph.aot.graph.devices": ("device_of",),
        "delegraph.aot.graph.edit": ("copy_program",),
        "delegraph.aot.graph.external_constants": ("external_tag",),
        "delegraph.aot.graph.memory_use": ("MemoryUse", "memory_use"),
        "delegraph.aot.graph.scalars": ("is_scalar",),
        "delegraph.aot.graph.schema_binding": ("schema_arguments",),
        "delegraph.aot.graph.signature": ("HeldTensor", "ResolvedSignature", "WriteBack"),
        "delegraph.aot.graph.source_location": ("user_location",),
        "delegraph.aot.graph.stored_tensor": ("layout_of",),
        "delegraph.aot.graph.text": ("program_text",),
        "delegraph.aot.lower": ("EdgeProgramManager", "Lowered", "to_edge", "to_edge_transform_and_lower"),
        "delegraph.aot.memory_planning": ("MemoryPlanningPass", "MethodMemory", "MethodPlan"),
        "delegraph.aot.passes": (
            "PROTECTED_KEYS",
            "ExportedProgramPassBase",
            "ExportedProgramPassResult",
            "ExportPass",
            "NodeMetadata",
            "PassBase",
            "PassResult",
            "ProxyValue",
            "program_with_graph",
        ),
        "delegraph.aot.passes.weights_to_outputs": ("WeightsToOutputs",),
        "delegraph.aot.quantize.annotation.observers": ("HistogramObserver", "PercentileObserver"),
        "delegraph.aot.quantize.annotation.residual_sums": ("normalized_sums",),
        "delegraph.aot.quantize.annotation.specs": ("activation_spec", "weight_spec"),
        "delegraph.aot.quantize.annotations": (
            "VALUE_MOVES",
            "annotate",
            "annotation_of",
            "float_operand",
            "fused_calls",
            "is_float_tensor",
            "is_quantized",
            "is_read_once",
            "is_weight",
            "joined_specs",
            "operands_of",
            "shared_spec",
        ),
        "delegraph.aot.quantize.measurement.report": ("LayerQuantization", "MethodQuantization", "QuantizationReport"),
        "delegraph.aot.quantize.recipes": ("Recipe", "recipe_named"),
        "delegraph.aot.quantize.rewrites.attention": ("cut_attention",),
        "delegraph.aot.quantize.weights.layer_weights": ("channel_dim",),
        "delegraph.aot.stage": ("Lowering", "Stage", "StageWatcher"),
        "delegraph.interfaces.lowering": (
            "BackendDetails",
            "BlobVariant",
            "CompileSpec",
            "DelegationSpec",
            "NamedDataStoreOutput",
            "Partitioner",
            "PartitionResult",
            "PreprocessResult",
        ),
    },
)
