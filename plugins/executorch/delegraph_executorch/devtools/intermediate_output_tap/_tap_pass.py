"""An exported program -> the same with further outputs: what selected nodes give, behind a `tap` each.

    y = linear(x)                 y = linear(x)
    return relu(y)                t = tap(y, "STATS")
                                  return relu(y), t

No backend has the operator `tap`, so that the value leaves every delegate.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from delegraph_executorch.devtools.intermediate_output_tap import custom_ops_lib  # noqa: F401 - registers the operator
from delegraph_executorch.devtools.intermediate_output_tap._reducers import STATS, StatReducer, get_reducer
from delegraph_executorch.devtools.intermediate_output_tap._selectors import (
    NodeSelector,
    module_class,
    module_path,
    select_all_call_function,
)
from delegraph_executorch.devtools.intermediate_output_tap._spec import TapSpec

__all__ = ["TapRule", "find_tap_nodes", "is_tap_node", "tap_intermediate_outputs_"]

TapRule: TypeAlias = "tuple[NodeSelector, str | StatReducer]"
"""Which nodes, and what is kept of them."""

_TAP = torch.ops.executorch_devtools.tap.Tensor
_TAP_NAME = "executorch_devtools.tap.Tensor"


def is_tap_node(n: Node) -> bool:
    """Whether `n` calls the operator `tap`, by its own name or by that of the edge dialect."""
    return n.op == "call_function" and (n.target is _TAP or _TAP_NAME in str(n.target))


def find_tap_nodes(gm: GraphModule) -> list[Node]:
    """The taps of a graph, in order."""
    return [node for node in gm.graph.nodes if is_tap_node(node)]


def tap_intermediate_outputs_(
    ep: ExportedProgram,
    rules: Sequence[TapRule] | TapRule | None = None,
    *,
    max_taps: int | None = None,
    error_on_empty: bool = True,
) -> tuple[ExportedProgram, list[TapSpec]]:
    """Tap `ep` in place: each call by the first rule that selects it (None: all, with STATS), `max_taps` at most.

    Lower it, then `strip_taps_(manager)`, then `to_executorch()`. Gives `ep` and what each tap is. Raises `ValueError`
    for no rules, an unknown reducer, or if nothing is selected; that is a warning without `error_on_empty`.
    """
    graph = ep.graph_module.graph
    output = graph.output_node()
    outputs = list(output.args[0])
    taps: list[Node] = []
    specs: list[TapSpec] = []
    for node, reducer in _selected(ep, _normalized(rules))[:max_taps]:
        with graph.inserting_after(node):
            tap = graph.call_function(_TAP, (node, reducer.name))
        tap.meta = {key: node.meta[key] for key in ("from_node", "stack_trace", "nn_module_stack") if key in node.meta}
        if isinstance(node.meta.get("val"), torch.Tensor):
            tap.meta["val"] = _TAP(node.meta["val"], reducer.name)
        specs.append(_spec(node, reducer, len(outputs) + len(taps)))
        taps.append(tap)
    if not taps:
        return _nothing(ep, error_on_empty)
    output.args = ((*outputs, *taps),)
    ep.graph_signature.output_specs.extend(
        OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(tap.name), None) for tap in taps
    )
    _extend_structure(ep, len(taps))
    graph.eliminate_dead_code()
    ep.graph_module.recompile()
    return ep, specs


def _normalized(rules: Any) -> list[tuple[NodeSelector, StatReducer]]:
    if rules is None:
        rules = [(select_all_call_function(), STATS)]
    elif isinstance(rules, tuple) and len(rules) == 2 and callable(rules[0]):
        rules = [rules]
    if not rules:
        raise ValueError("tap_intermediate_outputs_: `rules` must be non-empty.")
    return [(selector, get_reducer(reducer)) for selector, reducer in rules]


def _selected(ep: ExportedProgram, rules: Sequence[tuple[NodeSelector, StatReducer]]) -> list[tuple[Node, StatReducer]]:
    found = []
    for node in ep.graph_module.graph.nodes:
        if node.op == "call_function" and not is_tap_node(node):
            found += [(node, reducer) for selector, reducer in rules if selector(node)][:1]
    return found


def _nothing(ep: ExportedProgram, error_on_empty: bool) -> tuple[ExportedProgram, list[TapSpec]]:
    message = (
        "tap_intermediate_outputs_: no rule matched any node. Double-check your rule predicates, or pass"
        " `error_on_empty=False` to suppress this error."
    )
    if error_on_empty:
        raise ValueError(message)
    warnings.warn(message, UserWarning, stacklevel=3)
    return ep, []


def _spec(node: Node, reducer: StatReducer, output_index: int) -> TapSpec:
    innermost = next(reversed((node.meta.get("nn_module_stack") or {}).values()), None)
    return TapSpec(
        node.name,
        str(node.target),
        output_index,
        reducer.name,
        reducer.fields,
        node.meta.get("stack_trace"),
        module_path(innermost),
        module_class(innermost),
    )


def _extend_structure(ep: ExportedProgram, count: int) -> None:
    """Let the program's result be a tuple with `count` more elements.

    Their names stay empty: torch checks only names that are there, and lowering renames nodes.
    """
    for entry in ep.module_call_graph:
        if entry.fqn == "" and entry.signature is not None:
            before = pytree.tree_unflatten([0] * entry.signature.out_spec.num_leaves, entry.signature.out_spec)
            before = before if isinstance(before, tuple) else (before,)
            entry.signature.out_spec = pytree.tree_structure((*before, *([0] * count)))
            entry.signature.outputs.extend(TensorArgument(name="") for _ in range(count))
