"""GraphModule -> the same, symbolic sizes of specs as numbers: the largest they can be, or those of the example."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree
from torch.utils._sympy.value_ranges import ValueRanges

from delegraph.aot import ExportedProgramPassBase, ExportedProgramPassResult, graph_modules
from delegraph_executorch.exir.pass_base import PassBase, PassResult
from delegraph_executorch.exir.schema import TensorShapeDynamism
from delegraph_executorch.exir.sym_util import collect_free_symbols, eval_expr, eval_upper_bound
from delegraph_executorch.exir.tensor import TensorSpec

__all__ = ["ConstraintBasedSymShapeEvalPass", "HintBasedSymShapeEvalPass"]

Size = int | torch.SymInt


class ConstraintBasedSymShapeEvalPass(PassBase):
    """Sizes become their upper bounds. Delegraph plans memory by upper bounds in any case."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Change `shape` and `stride` of all specs, in place. Raises RuntimeError for a size without a bound."""
        return PassResult(graph_module, _evaluate(graph_module, eval_upper_bound))


class HintBasedSymShapeEvalPass(ExportedProgramPassBase):
    """Sizes become those of the example that the model was exported with.

    On a program, as in `ExecutorchBackendConfig(sym_shape_eval_pass=…)`, the ranges of its symbols end there too, so
    that memory is planned for the example: a larger input is refused at run time.
    """

    def __call__(self, exported_program: Any) -> Any:
        """Run it on a program, or, as ExecuTorch's, on a graph module alone."""
        if isinstance(exported_program, GraphModule):
            return PassResult(exported_program, _evaluate(exported_program, _hint_or_bound))
        return super().__call__(exported_program)

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Evaluate the specs, and narrow the ranges of symbols that have an example."""
        _evaluate(exported_program.graph_module, _hint_or_bound)
        ranges: dict[Any, Any] = dict(exported_program.range_constraints)
        for size in _input_sizes(exported_program):
            hint = eval_expr(size)
            for symbol in collect_free_symbols([size]) if hint is not None and size.node.expr.is_Symbol else ():
                ranges[symbol] = ranges.get(symbol, ValueRanges(0, hint)) & ValueRanges(0, hint)
        exported_program._range_constraints = ranges
        return ExportedProgramPassResult(exported_program, True)


def _input_sizes(program: ExportedProgram) -> Iterable[torch.SymInt]:
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        yield from (size for size in sizes if isinstance(size, torch.SymInt))


def _evaluate(graph_module: GraphModule, size: Callable[[Size], int]) -> bool:
    evaluated = False
    for _, module in graph_modules(graph_module):
        for node in module.graph.nodes:
            for spec in pytree.tree_leaves(node.meta.get("spec")):
                if isinstance(spec, TensorSpec):
                    spec.shape = [size(each) for each in spec.shape]
                    spec.stride = tuple(size(each) for each in spec.stride)
                    if spec.shape_dynamism == TensorShapeDynamism.DYNAMIC_UNBOUND:  # what it was before this
                        spec.shape_dynamism = TensorShapeDynamism.DYNAMIC_BOUND
                    evaluated = True
    return evaluated


def _hint_or_bound(size: Size) -> int:
    hint = eval_expr(size)
    return eval_upper_bound(size) if hint is None else hint
