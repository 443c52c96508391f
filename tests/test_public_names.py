"""What users may import, pinned: a name that goes or comes shows in this file."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

NAMES = {
    "delegraph": """
        DelegraphError EdgeCompileConfig EventTracer ExecutorchBackendConfig Lowered LoweringConfig LoweringError
        LoweringReport Method MethodMeta Module PluginError Program Runtime RuntimeFault load lower quantize
        to_edge to_edge_transform_and_lower
    """,
    "delegraph.aot": """
        BackendDetails CompileSpec DelegationSpec EdgeCompileConfig EdgeOpOverload EdgeProgramManager
        ExecutorchBackendConfig ExecutorchProgramManager ExportPass HeldTensor Lowered LoweringConfig LoweringReport
        NamedDataStore NamedDataStoreOutput PartitionResult Partitioner PassResult PreprocessResult ResolvedSignature
        SharedWeights WriteBack exir_ops program_text tag_constant_data tag_mutated_buffer to_edge
        to_edge_transform_and_lower
    """,
    "delegraph.interfaces": """
        Argument Availability BackendDetails BackendExecutionContext BackendInitContext BackendInterface BindContext
        BlobStamp BoundCall Compatibility CompileSpec DelegationSpec EventTracer ExportPass GraphPass Handle Kernel
        KernelContext KernelKey KernelLibrary KernelLibraryInterface Lifetime LogLevel MemoryPlanner
        NamedDataStoreOutput Options PartitionResult Partitioner PartitionerFactory PassFactory Plan PlanError Platform
        PreprocessResult ProgramPass Quantizer QuantizerFactory TensorMeta ToolHooks Verdict check_plan kernel_key_text
    """,
    "delegraph.runtime": """
        Availability BackendExecutionContext BackendInitContext BackendInterface BackendRegistry BufferDataLoader
        Compatibility DataLoader DebugLevel EventTracer FileDataLoader HierarchicalAllocator Kernel KernelContext
        KernelLibrary KernelRegistry LogLevel MemoryAllocator MemoryManager Method MethodMeta MmapDataLoader Module
        OperatorRegistry Platform Program Runtime TensorInfo Verdict Verification load
    """,
    "delegraph.program": """
        ExternalData FlatTensor Program ScalarType SegmentSource SerializationConfig deserialize_flat_tensor
        deserialize_program nbytes serialize_flat_tensor serialize_program to_text verify_program write_flat_tensor
        write_program
    """,
    "delegraph.plugins": """
        PLUGIN_API Offer PluginRegistry PluginWarning default_registry hookimpl use_registry
    """,
}

MODULES = {
    "delegraph.runtime.numpy_kernels.prepared": """
        Array Context Prepare Scalar content_dependent_kernel prepared_kernel when_constant
    """,
    "delegraph.runtime.numpy_kernels.promotion": """
        BOOL DType FLOAT32 FLOAT64 INT64 category check_floating check_index check_kind check_one_of check_result
        check_same_dtype check_same_kind compute_type float_type is_complex is_float8 is_floating is_integral
        is_wide_unsigned promote real_type requested_type result_type sum_type
    """,
    "delegraph.runtime.numpy_kernels.shapes": """
        Index Shape along broadcast broadcasts check_broadcasts check_rank check_shape full_shape per_dim reduced
        reduction_axes trailing wrap_dim wrap_dims
    """,
    "delegraph.runtime.numpy_kernels.evaluate": """
        Stage as_array begin_call copy_call function_call nothing stage stage_contiguous staged_call to_float8
        ufunc_call
    """,
}
"""Modules that are public as they are; they import NumPy."""


@pytest.mark.parametrize("package", NAMES | MODULES)
def test_the_names(package: str) -> None:
    module = import_module(package)
    assert sorted(module.__all__) == sorted((NAMES | MODULES)[package].split())
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", NAMES)
def test_a_name_that_is_not_there(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'lowre'"):
        _ = import_module(package).lowre


def test_importing_the_packages_imports_nothing_heavy() -> None:
    script = f"import sys, {', '.join(NAMES)}\nprint(*{{'torch', 'numpy', 'pluggy', 'flatbuffers'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_interfaces_are_there_without_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import delegraph.interfaces as i\n"
        "print(all(getattr(i, name) is not None for name in i.__all__))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "True\n"


def test_executorch_names_for_operators() -> None:
    """A delegate written for ExecuTorch changes this import and no code."""
    import torch

    from delegraph.aot import EdgeOpOverload, exir_ops

    assert exir_ops.edge.aten.add.Tensor is torch.ops.aten.add.Tensor
    assert isinstance(exir_ops.edge.dim_order_ops._to_dim_order_copy.default, EdgeOpOverload)
