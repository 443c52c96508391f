"""Program -> the same, quantize calls of halves and dequantize calls to them in float32, for calls left to kernels.

    before                                                       after
    q = quantize_per_tensor(x, …)              x: bfloat16       f = _to_copy(x, dtype=float32)
                                                                 q = quantize_per_tensor(f, …)
    w = dequantize_per_channel(c, …, out_dtype=bfloat16)         d = dequantize_per_channel(c, …, out_dtype=float32)
                                                                 w = _to_copy(d, dtype=bfloat16)

ExecuTorch's kernels (`kernels/quantized/cpu/op_quantize.cpp`, `op_dequantize.cpp`) take and give no bfloat16, and stop
the process. The results are the same: torch computes them in float32, too, and rounds once. Backends see the calls as
the user's model has them.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot.edge.dialects import ATEN, Dialect
from delegraph.aot.graph.bodies import all_nodes, attributes
from delegraph.aot.graph.edit import with_graph
from delegraph.aot.graph.fake_values import fake_tensor
from delegraph.interfaces.graph_pass import ExportedProgramPassBase, ExportedProgramPassResult

__all__ = ["Float32Quantization"]

_HALVES: Final = frozenset({torch.float16, torch.bfloat16})
_QUANTIZE: Final = ("quantized_decomposed::quantize_per_", "quantized_decomposed::choose_qparams")
_DEQUANTIZE: Final = "quantized_decomposed::dequantize_per_"


class Float32Quantization(ExportedProgramPassBase):
    """Puts casts before calls that quantize half precision, and behind those that dequantize to it."""

    required_dialect: Dialect | None = ATEN

    def call(self, program: ExportedProgram) -> ExportedProgramPassResult:
        """Edit `program`, and the bodies of its control flow."""
        changed = False
        for node in list(all_nodes(program.graph_module)):
            name = node.target.name() if isinstance(node.target, torch._ops.OpOverload) else ""
            if name.startswith(_QUANTIZE):
                changed = _widen_input(node) or changed
            elif name.startswith(_DEQUANTIZE):
                changed = _widen_result(node) or changed
        if changed:  # an output may have another name now
            program = with_graph(program, attributes(program.graph_module), program.graph)
        return ExportedProgramPassResult(program, changed)


def _widen_input(node: Node) -> bool:
    source = node.args[0]
    assert isinstance(source, Node)
    if fake_tensor(source).dtype not in _HALVES:
        return False
    with node.graph.inserting_before(node):
        wide = _cast(node, source, torch.float32)
    node.replace_input_with(source, wide)
    return True


def _widen_result(node: Node) -> bool:
    dtype = node.meta["val"].dtype
    if dtype not in _HALVES:
        return False
    node.args = tuple(torch.float32 if arg == dtype else arg for arg in node.args)
    node.kwargs = {name: torch.float32 if arg == dtype else arg for name, arg in node.kwargs.items()}
    node.meta["val"] = node.meta["val"].to(torch.float32)
    with node.graph.inserting_after(node):
        narrow = _cast(node, node, dtype)
    node.replace_all_uses_with(narrow, delete_user_cb=lambda user: user is not narrow)
    return True


def _cast(call: Node, value: Node, dtype: torch.dtype) -> Node:
    """A cast of `value` that stands where `call` does in the user's code."""
    cast = value.graph.call_function(torch.ops.aten._to_copy.default, (value,), {"dtype": dtype})
    cast.meta = {**call.meta, "val": value.meta["val"].to(dtype)}
    return cast
