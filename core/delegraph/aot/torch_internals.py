"""torch's private names, in the one place where the core takes them: each with what it is for, and a way without it.

A torch that moves one breaks here, and `make test-torch` says so. Three stand wherever they are needed, as in
ExecuTorch: the classes of operators in `torch._ops`, fake tensors, and `torch.utils._pytree`. Attributes of programs
that have no public setter are set in `graph/edit.py`.
"""

from __future__ import annotations

import torch

# torch's own decompositions, which ours call. When they go: out of `torch.export.default_decompositions()`.
from torch._decomp import get_decompositions
from torch._decomp.decompositions import _upsample_linear as upsample_linear
from torch._decomp.decompositions import index_add, index_copy, upsample_compute_output_size

# Decompositions that are registered for Python's dispatcher hold in traces. When it goes: as `make_fx` is called within
# `ExportedProgram.run_decompositions`.
from torch._dispatch.python import enable_python_dispatcher

# Programs as an ETRecord has them. When they go: as `torch.export.save` writes a program. The reader is handed records
# and tensors that `etrecord/` has read, never bytes or text that torch would unpickle or evaluate.
from torch._export.serde import schema as torch_schema
from torch._export.serde.serialize import _SYM_OPS as SYM_OPERATORS
from torch._export.serde.serialize import ExportedProgramDeserializer, serialize
from torch._export.serde.union import _Union as SchemaUnion

# Composite operators stay whole in a trace. When they go: as `ExportedProgram.run_decompositions` keeps them.
from torch._export.utils import _is_preservable_cia_op as is_preservable_composite
from torch._export.utils import _special_op_to_preserve_cia as preserve_composite

# A program with another graph is checked by torch. When they go: by our own `edge/dialects.py` alone.
from torch._export.verifier import TrainingIRVerifier, Verifier

# Who notes for torch.export what is assigned to buffers, which it does with some of them: `export_state.py` writes them
# itself. When they go: torch.export writes them twice, which is as right but for buffers that swap their places.
from torch._functorch._aot_autograd.utils import register_buffer_assignment_hook

# A call that writes, as `run_decompositions` makes it of views, and as it stands in our graphs. When they go:
# `functional/auto_functionalized.py` reads the new form; the other becomes a higher-order operator of our own.
from torch._higher_order_ops.auto_functionalize import (
    AsStridedViewInfo,
    SliceViewInfo,
    auto_functionalized,
    auto_functionalized_v2,
    can_auto_functionalize,
    get_mutable_args,
    read_view_information_from_args,
)

# The call of a delegate, which ExecuTorch shares with us. When it goes: from where its `exir/delegate.py` has it.
from torch._higher_order_ops.executorch_call_delegate import executorch_call_delegate

# Script objects among fake values, for a type. When it goes: `object`.
from torch._library.fake_class_registry import FakeScriptObject

# Layouts of tensors whose sizes are symbols, without a guard on one. When they go: comparing strides.
from torch._prims_common import (
    is_contiguous_for_memory_format_or_false,
    is_contiguous_or_false,
    suggest_memory_format,
)

# Programs with another graph, as torch makes them. When they go: as `ExportedProgram._update` does it.
from torch.export.exported_program import _common_getitem_elimination_pass as common_getitem_elimination
from torch.export.exported_program import _override_composite_implicit_decomp as override_composites
from torch.fx._lazy_graph_module import _LazyGraphModule as LazyGraphModule

# Arguments in the order of an `in_spec`. When it goes: `torch.utils._pytree` on the dumped spec.
from torch.fx._pytree import tree_flatten_spec
from torch.nn.modules.module import _global_buffer_registration_hooks as buffer_registration_hooks

# Whether a weight is one of torchao's. When it goes: whether it has `__tensor_flatten__`.
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

# The functions of which sizes are made, their bounds, and a size computed in a graph again. When they go: those that
# `torch.export` puts into shapes then.
from torch.utils._sympy import functions as sympy_functions
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Max, Min, Mod, PythonMod
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

__all__ = [
    "SYM_OPERATORS",
    "AsStridedViewInfo",
    "CleanDiv",
    "DispatchKey",
    "DispatchModeKey",
    "ExportedProgramDeserializer",
    "FakeScriptObject",
    "FloorDiv",
    "LazyGraphModule",
    "Max",
    "Min",
    "Mod",
    "PythonMod",
    "PythonReferenceAnalysis",
    "SchemaUnion",
    "SliceViewInfo",
    "TrainingIRVerifier",
    "ValueRanges",
    "Verifier",
    "all_operator_names",
    "auto_functionalized",
    "auto_functionalized_v2",
    "bound_sympy",
    "buffer_registration_hooks",
    "can_auto_functionalize",
    "common_getitem_elimination",
    "dispatch_has_kernel",
    "dispatch_mode",
    "enable_python_dispatcher",
    "executorch_call_delegate",
    "get_decompositions",
    "get_mutable_args",
    "get_tensor_data",
    "index_add",
    "index_copy",
    "is_contiguous_for_memory_format_or_false",
    "is_contiguous_or_false",
    "is_preservable_composite",
    "is_traceable_wrapper_subclass",
    "mkldnn_enabled",
    "override_composites",
    "parse_schema",
    "preserve_composite",
    "read_view_information_from_args",
    "register_buffer_assignment_hook",
    "serialize",
    "set_mkldnn_enabled",
    "set_tensor_data",
    "suggest_memory_format",
    "sympy_functions",
    "sympy_interp",
    "torch_schema",
    "tree_flatten_spec",
    "upsample_compute_output_size",
    "upsample_linear",
]

# A schema that is written out. When it goes: torchgen's `FunctionSchema.parse`.
parse_schema = torch._C.parse_schema

# Every registered operator, for a message. When it goes: those in `torch.ops`.
all_operator_names = torch._C._dispatch_get_all_op_names

# Whether an operator is composite, and what kernels it has. When they go: `OpOverload.has_kernel_for_dispatch_key`.
DispatchKey = torch._C.DispatchKey
dispatch_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key

# The fake tensor mode that is on. When they go: `torch._guards.detect_fake_mode`.
DispatchModeKey = torch._C._TorchDispatchModeKey
dispatch_mode = torch._C._get_dispatch_mode

# An LSTM is traced into what every device has. When they go: `torch.backends.mkldnn.flags`.
mkldnn_enabled = torch._C._get_mkldnn_enabled
set_mkldnn_enabled = torch._C._set_mkldnn_enabled

# How a mode is told that `tensor.data` is read or set. When they go: `.data` is refused, as torch.export does it.
get_tensor_data = torch.Tensor.data.__get__  # type: ignore[attr-defined]
set_tensor_data = torch.Tensor.data.__set__  # type: ignore[attr-defined]
