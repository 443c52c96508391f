"""Passes that give every node the `TensorSpec` of its value, and its sizes numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree
from torch.utils._sympy.value_ranges import ValueRanges

from delegraph.aot import (
    ExportedProgramPassBase,
    ExportedProgramPassResult,
    ResolvedSignature,
    graph_modules,
    is_delegate_call,
)
from delegraph.errors import LoweringError
from delegraph_executorch.exir.pass_base import ExportPass, PassBase, PassResult, ProxyValue
from delegraph_executorch.exir.schema import TensorShapeDynamism
from delegraph_executorch.exir.tensor import TensorSpec, collect_free_symbols, eval_expr, eval_upper_bound


class DynamicMemoryPlanningMode(IntEnum):
    """By upper bounds, or by symbolic sizes (which no runtime has)."""

    UPPER_BOUND = 0
    SYMBOLIC = 1


# Delegraph's lowering knows no specs: this is for passes and partitioners that read them.


def make_spec(x: Any) -> Any:
    """The spec of a value: of a tensor a `TensorSpec`, a number as it is, anything else None."""
    if isinstance(x, ProxyValue):
        return make_spec(x.node.meta["val"])
    if isinstance(x, torch.Tensor):
        return TensorSpec.from_tensor(x)
    return x if isinstance(x, (int, bool, float)) else None


class SpecPropPass(ExportPass):
    """Traces the graph anew and gives every value its spec; what passes a value on shares its spec."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """The graph with specs, those of bodies included."""
        result = super().call(graph_module)
        for _, module in graph_modules(result.graph_module):
            for node in module.graph.nodes:
                node.meta["spec"] = _spec_of(node)
        return result

    def update_placeholder_tensor_specs(self, exported_program: ExportedProgram, graph_module: GraphModule) -> None:
        """Set `const` of the specs of weights: parameters, constants, and buffers that no run changes."""
        constants = {node.name for node in ResolvedSignature.of(exported_program).constants}
        for node in graph_module.graph.find_nodes(op="placeholder"):
            if "spec" not in node.meta:
                raise RuntimeError(f"placeholder {node.name} has no meta['spec']: run SpecPropPass before")
            if node.name in constants:
                node.meta["spec"].const = True


def _spec_of(node: Node) -> Any:
    if node.op == "output":
        return pytree.tree_map_only(Node, lambda value: value.meta.get("spec"), node.args[0])
    if node.target is operator.getitem:
        return node.args[0].meta["spec"][node.args[1]]  # type: ignore[union-attr]
    if is_delegate_call(node) and "spec" in node.meta:
        return node.meta["spec"]
    return pytree.tree_map(make_spec, node.meta.get("val"))


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


def propagate_dynamic_shape(
    dynamic_memory_planning_mode: DynamicMemoryPlanningMode = DynamicMemoryPlanningMode.UPPER_BOUND,
) -> list[Any]:
    """The passes, in order, for a backend that wants sizes as numbers."""
    if dynamic_memory_planning_mode is not DynamicMemoryPlanningMode.UPPER_BOUND:
        raise LoweringError("memory is planned by upper bounds: use DynamicMemoryPlanningMode.UPPER_BOUND")
    return [SpecPropPass(), HintBasedSymShapeEvalPass()]
