"""`"executorch:xnnpack{per_op_mode=true}"` -> ExecuTorch's partitioner with these options, bridged.

Each function is a factory behind an entry point of the group `delegraph.partitioners`. Its options are those that
ExecuTorch's own class or compile spec takes, under the same names; lists are written with spaces between their items.
What options cannot say (a set of operators to skip, say) is said to the class: `backends=[XnnpackPartitioner(…)]`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from delegraph.aot import Partitioner
from delegraph.errors import PluginError
from delegraph_executorch.bridge.imports import executorch
from delegraph_executorch.bridge.partitioner import bridged

__all__ = ["coreml", "ethos_u", "mps", "openvino", "tosa", "vgf", "vulkan", "xnnpack"]


def xnnpack(
    *,
    config_precisions: str = "",
    per_op_mode: bool = False,
    verbose: bool = False,
    force_non_static_weights_for_f32_linear: bool = False,
) -> Partitioner:
    """XNNPACK: CPUs. `config_precisions`: of FP32, STATIC_QUANT and DYNAMIC_QUANT those to take ("": all)."""
    known = executorch("backends.xnnpack.partition.config.xnnpack_config:ConfigPrecisionType")
    return bridged(
        executorch("backends.xnnpack.partition.xnnpack_partitioner:XnnpackPartitioner")(
            config_precisions=[_member(known, name, "config_precisions") for name in config_precisions.split()] or None,
            per_op_mode=per_op_mode,
            verbose=verbose,
            force_non_static_weights_for_f32_linear=force_non_static_weights_for_f32_linear,
        )
    )


def ethos_u(
    *,
    target: str = "ethos-u55-128",
    system_config: str | None = None,
    memory_mode: str | None = None,
    extra_flags: str = "",
    config_ini: str = "Arm/vela.ini",
) -> Partitioner:
    """Arm Ethos-U: quantized models, compiled by Vela (`pip install ethos-u-vela tosa-tools`)."""
    arm = executorch("backends.arm.ethosu")
    spec = arm.EthosUCompileSpec(target, system_config, memory_mode, extra_flags.split(), config_ini)
    return bridged(arm.EthosUPartitioner(spec))


def tosa(*, tosa_spec: str = "TOSA-1.0+FP") -> Partitioner:
    """TOSA flatbuffers, from which Arm's tools go on (`pip install tosa-tools`). `tosa_spec` with +INT is for quantized
    models, with +FP for float ones."""
    spec = executorch("backends.arm.tosa.compile_spec:TosaCompileSpec")(tosa_spec)
    return bridged(executorch("backends.arm.tosa.partitioner:TOSAPartitioner")(spec))


def vgf(*, tosa_spec: str | None = None, compiler_flags: str = "") -> Partitioner:
    """Arm VGF: Vulkan's ML extensions. Needs Arm's `model-converter`."""
    arm = executorch("backends.arm.vgf")
    return bridged(arm.VgfPartitioner(arm.VgfCompileSpec(tosa_spec, compiler_flags.split() or None)))


def vulkan(
    *,
    require_dynamic_shapes: bool = False,
    skip_bool_tensors: bool = False,
    skip_tag_memory_metadata: bool = False,
    downcast_64_bit: bool = True,
    force_fp16: bool = False,
) -> Partitioner:
    """Vulkan: GPUs."""
    options = {
        "require_dynamic_shapes": require_dynamic_shapes,
        "skip_bool_tensors": skip_bool_tensors,
        "skip_tag_memory_metadata": skip_tag_memory_metadata,
        "downcast_64_bit": downcast_64_bit,
        "force_fp16": force_fp16,
    }
    return bridged(executorch("backends.vulkan.partitioner.vulkan_partitioner:VulkanPartitioner")(options))


def openvino(*, device: str = "CPU") -> Partitioner:
    """Intel's OpenVINO (`pip install openvino`)."""
    spec = executorch("exir.backend.compile_spec_schema:CompileSpec")("device", device.encode())
    return bridged(executorch("backends.openvino.partitioner:OpenvinoPartitioner")([spec]))


def coreml(
    *,
    compute_unit: str = "ALL",
    compute_precision: str = "FLOAT16",
    skip_ops_for_coreml_delegation: str = "",
    take_over_mutable_buffer: bool = True,
    lower_full_graph: bool = False,
) -> Partitioner:
    """Apple's Core ML. `compute_unit` and `compute_precision` are members of coremltools' enumerations."""
    backend = executorch("backends.apple.coreml.compiler:CoreMLBackend")
    coremltools = import_module("coremltools")  # which the module of `backend` has imported
    specs = backend.generate_compile_specs(
        compute_unit=_member(coremltools.ComputeUnit, compute_unit, "compute_unit"),
        compute_precision=_member(coremltools.precision, compute_precision, "compute_precision"),
    )
    partitioner = executorch("backends.apple.coreml.partition:CoreMLPartitioner")
    return bridged(
        partitioner(
            compile_specs=specs,
            skip_ops_for_coreml_delegation=skip_ops_for_coreml_delegation.split(),
            take_over_mutable_buffer=take_over_mutable_buffer,
            lower_full_graph=lower_full_graph,
        )
    )


def mps(*, use_fp16: bool = True) -> Partitioner:
    """Apple's Metal Performance Shaders; ExecuTorch has deprecated it in favour of Core ML."""
    spec = executorch("exir.backend.compile_spec_schema:CompileSpec")("use_fp16", bytes([use_fp16]))
    return bridged(executorch("backends.apple.mps.partition:MPSPartitioner")([spec]))


def _member(enumeration: Any, name: str, option: str) -> Any:
    known = {member.name: member for member in enumeration}
    if name not in known:
        raise PluginError(f"the option {option} is {name!r}; it takes {', '.join(known)}")
    return known[name]
