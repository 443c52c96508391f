"""An exported program -> the same with further outputs: what selected nodes give, behind a `tap` each; and back.

    y = linear(x)                 y = linear(x)
    return relu(y)                t = tap(y, "STATS")
                                  return relu(y), t

No backend has the operator `tap`, so that the value leaves every delegate.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
from torch.fx import GraphModule, Node
from torch.library import Library
from torch.utils import _pytree as pytree

from delegraph.aot import to_edge_transform_and_lower
from delegraph.runtime import Runtime
from delegraph_executorch.devtools.inspector._values import pandas, signal_to_noise
from delegraph_executorch.devtools.intermediate_output_tap._reducers import FULL_TENSOR, STATS, StatReducer, get_reducer
from delegraph_executorch.devtools.intermediate_output_tap._selectors import (
    NodeSelector,
    module_class,
    module_path,
    select_all_call_function,
)
from delegraph_executorch.exir.program._transform import name_outputs

#
# Eagerly it gives what the reducer does, so that an exported program that is tapped gives what the runtime is to give.


lib = Library("executorch_devtools", "FRAGMENT")

if not hasattr(torch.ops.executorch_devtools, "tap"):  # ExecuTorch's own package may be there too, and have done it
    lib.define("tap.Tensor(Tensor x, str reducer_name) -> Tensor")

    @torch.library.impl(lib, "tap.Tensor", "CompositeExplicitAutograd")
    def tap(x: torch.Tensor, reducer_name: str) -> torch.Tensor:
        return get_reducer(reducer_name).eager(x)


@dataclass(frozen=True)
class TapSpec:
    """One tap. `output_index` counts the program's flat outputs; `fields` name the elements of what the reducer gives.

    `node_name` and `op_target` are the source node's when it was tapped, `module_path` and `module_class` the innermost
    module's that it belongs to.
    """

    node_name: str
    op_target: str
    output_index: int
    reducer_name: str
    fields: tuple[str, ...]
    stack_trace: str | None = None
    module_path: str | None = None
    module_class: str | None = None


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


def strip_taps_(edge_manager: Any) -> None:
    """Put reducers in the place of the taps of all methods, in place: after `to_edge_transform_and_lower`, since no
    backend is to take them, and before `to_executorch`."""
    for method in edge_manager.methods:
        _strip_taps_in_exported_program(edge_manager.exported_program(method))


def _strip_taps_in_exported_program(ep: ExportedProgram) -> None:
    graph = ep.graph_module.graph
    taps = find_tap_nodes(ep.graph_module)
    if not taps:
        return
    output = graph.output_node()
    for tap in taps:
        source, reducer = tap.args[0], get_reducer(str(tap.args[1]))
        assert isinstance(source, Node)
        with graph.inserting_before(tap):
            reduced = reducer.emit(graph, source)
        for user in list(tap.users):
            user.replace_input_with(tap, reduced if user is output else source)
    graph.eliminate_dead_code()
    ep.graph_module.recompile()
    name_outputs(ep.graph_signature, ep.graph_module)


def tap_compare(
    model: torch.nn.Module,
    example_inputs: tuple[Any, ...],
    partitioner: list[Any] | None = None,
    *,
    rules: Sequence[TapRule] | TapRule | None = None,
    error_on_empty: bool = True,
) -> tuple[Any, list[TapSpec]]:
    """Export, tap (`rules` as in `tap_intermediate_outputs_`), lower onto `partitioner`, run, and compare.

    Gives the table of `compare_aot_runtime_dataframe`, and what each tap is.
    """
    tapped, specs = tap_intermediate_outputs_(
        torch.export.export(model, example_inputs, strict=True), rules=rules, error_on_empty=error_on_empty
    )
    expected = pytree.tree_leaves(tapped.module()(*example_inputs))
    edge = to_edge_transform_and_lower(tapped, partitioner=partitioner or [])
    strip_taps_(edge)
    method = Runtime.get().load_program(edge.to_executorch().buffer).load_method("forward")
    return compare_aot_runtime_dataframe(specs, expected, method.execute(pytree.tree_leaves(example_inputs))), specs


def compare_aot_runtime_dataframe(specs: Sequence[TapSpec], aot_flat: Sequence[Any], rt_flat: Sequence[Any]) -> Any:
    """A pandas DataFrame with a row for each tap, from the flat outputs of the tapped program and of the runtime.

    Of a reducer with fields each as `aot_<field>` and `rt_<field>`; of whole tensors the signal-to-noise ratio in dB.
    """
    rows = [_row(spec, _numbers(aot_flat[spec.output_index]), _numbers(rt_flat[spec.output_index])) for spec in specs]
    return pandas().DataFrame(rows)


def _row(spec: TapSpec, expected: list[float], given: list[float]) -> dict[str, Any]:
    keys = ("node_name", "module_path", "module_class", "op_target", "reducer_name", "output_index")
    row = {key: getattr(spec, key) for key in keys}
    if spec.reducer_name == FULL_TENSOR.name:
        return {**row, "sqnr_db": _sqnr(expected, given), "aot_numel": len(expected), "rt_numel": len(given)}
    fields = spec.fields or [f"v{index}" for index in range(max(len(expected), len(given)))]
    for index, name in enumerate(fields):
        row[f"aot_{name}"] = expected[index] if index < len(expected) else float("nan")
        row[f"rt_{name}"] = given[index] if index < len(given) else float("nan")
    return row


def _numbers(value: Any) -> list[float]:
    """A tensor's elements, a list's, or the number itself; nothing of what is none of these."""
    if isinstance(value, (list, tuple)):
        return [number for one in value for number in _numbers(one)]
    if isinstance(value, (torch.Tensor, int, float)):
        flat: list[float] = torch.as_tensor(value).detach().to(torch.float32).reshape(-1).tolist()
        return flat
    return []


def _sqnr(expected: list[float], given: list[float]) -> float:
    """Signal-to-noise ratio in dB: inf where nothing differs."""
    count = min(len(expected), len(given))
    if not count:
        return float("nan")
    return float(signal_to_noise(torch.tensor(expected[:count]), torch.tensor(given[:count])))
