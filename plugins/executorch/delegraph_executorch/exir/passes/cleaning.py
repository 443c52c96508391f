"""Passes that take out what is not needed: dead, repeated and empty calls, assertions, weights that nothing reads."""

from __future__ import annotations

from typing import Any, ClassVar, Final, cast

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import guard_or_true

from delegraph.aot import exir_ops, graph_modules
from delegraph_executorch.exir.dialect_ops import _DEQUANT_OPS, _QUANT_OPS
from delegraph_executorch.exir.pass_base import ExportPass, PassBase, PassResult


def dead_code_elimination_pass(graph_module: GraphModule) -> PassResult:
    """Erase, in place, what has no user and no effect."""
    modified = False
    for _, module in graph_modules(graph_module):
        modified |= module.graph.eliminate_dead_code()
        module.recompile()
    return PassResult(graph_module, modified)


class CSEPass(ExportPass):
    """Common subexpression elimination over the method's own graph, in place.

    Calls of ATen operators that change nothing and are not random, and of Python's operators on symbols. What the graph
    returns keeps calls of its own: a signature may name them.
    """

    UNSAFE_OPS: ClassVar[frozenset[str]] = frozenset(
        f"aten::{name}"
        for name in (
            *("rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm"),
            *("bernoulli", "dropout", "native_dropout", "multinomial", "normal", "uniform"),
        )
    )
    """Operators that give something else each time, besides those that torch tags so."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Replace each call by an equal one that came before it."""
        first: dict[Any, Node] = {}
        returned = set(graph_module.graph.output_node().all_input_nodes)
        modified = False
        for node in list(graph_module.graph.nodes):
            if node.op != "call_function" or node in returned or not self._is_safe_target(node.target):
                continue
            key = (node.target, _key(node.args), _key(node.kwargs))
            same = first.setdefault(key, node)
            if same is not node:
                node.replace_all_uses_with(same)
                graph_module.graph.erase_node(node)
                modified = True
        if modified:
            graph_module.graph.eliminate_dead_code()
            graph_module.graph.lint()
        return PassResult(graph_module, modified)

    def _is_safe_target(self, target: Any) -> bool:
        if not isinstance(target, OpOverload):
            return getattr(target, "__module__", None) == "_operator"
        return (
            target.namespace == "aten"
            and target._schema.name not in self.UNSAFE_OPS
            and torch.Tag.nondeterministic_seeded not in target.tags
            and not target._schema.is_mutable
        )


def _key(value: Any) -> Any:
    """An argument as something to be compared: 1, 1.0 and True are different."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_key, value))
    if isinstance(value, dict):
        return tuple((name, _key(item)) for name, item in sorted(value.items()))
    return type(value), value


aten = torch.ops.aten
_NOOPS: Final = (aten.to.dtype, aten.dropout.default, aten.slice_copy.Tensor)


def eliminate_dq_q(graph_module: GraphModule, dequant_nodes: list[Node]) -> None:
    """Where a value is dequantized and quantized again with the same parameters, let the quantized one stand."""
    for dequantized in dequant_nodes:
        assert dequantized.target in _DEQUANT_OPS
        for user in list(dequantized.users):
            if user.target in _QUANT_OPS and user.args[1:] == dequantized.args[1:]:
                user.replace_all_uses_with(dequantized.args[0])  # type: ignore[arg-type]


class RemoveNoopPass(ExportPass):
    """Takes casts to the same dtype, dropout and slices of everything out, in place."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Erase them; `modified` tells whether there were any."""
        removed = [node for node in graph_module.graph.nodes if node.target in _NOOPS and _gives_its_argument(node)]
        sources = [_erased(graph_module, node) for node in removed]
        graph_module.graph.eliminate_dead_code()
        eliminate_dq_q(graph_module, [source for source in sources if source.target in _DEQUANT_OPS])
        graph_module.graph.eliminate_dead_code()
        graph_module.graph.lint()
        return PassResult(graph_module, bool(removed))


class RemoveToCopyPass(ExportPass):
    """Takes `_to_copy` to the same dtype, device and layout out, in place."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Erase them; `modified` tells whether there were any."""
        copies = graph_module.graph.find_nodes(op="call_function", target=aten._to_copy.default)
        removed = [node for node in copies if _is_alike(node)]
        for node in removed:
            _erased(graph_module, node)
        graph_module.graph.lint()
        return PassResult(graph_module, bool(removed))


def _erased(graph_module: GraphModule, node: Node) -> Node:
    source = node.args[0]
    assert isinstance(source, Node)
    node.replace_all_uses_with(source)
    graph_module.graph.erase_node(node)
    return source


def _gives_its_argument(node: Node) -> bool:
    before, after = _value(node.args[0]), node.meta["val"]
    if before is after:
        return True
    static = all(isinstance(size, int) for size in (*before.shape, *after.shape))
    return node.target == aten.slice_copy.Tensor and static and before.shape == after.shape


def _is_alike(node: Node) -> bool:
    before, after = _value(node.args[0]), node.meta["val"]
    return (before.dtype, before.device, before.shape, before.stride()) == (
        *(after.dtype, after.device, after.shape, after.stride()),
    )


def _value(argument: object) -> torch.Tensor:
    assert isinstance(argument, Node)
    value = argument.meta["val"]
    assert isinstance(value, torch.Tensor)
    return value


class _Removes(PassBase):
    removed: ClassVar[tuple[OpOverload, ...]]

    def call(self, graph_module: GraphModule) -> PassResult:
        """Erase the assertions in place, those of bodies too, and what only they used."""
        modified = False
        for _, module in graph_modules(graph_module):
            for node in [node for node in module.graph.nodes if node.target in self.removed]:
                module.graph.erase_node(node)
                modified = True
            module.graph.eliminate_dead_code()
            module.recompile()
        return PassResult(graph_module, modified)


class RemoveGraphAssertsPass(_Removes):
    """All assertions, and the statements of a symbol's range."""

    removed = (
        aten._assert_async.msg,
        aten._assert_scalar.default,
        aten.sym_constrain_range_for_size.default,
        aten.sym_constrain_range.default,
        aten._assert_tensor_metadata.default,
    )


class RemoveNonCoreAtenOpGraphAssertsPass(_Removes):
    """Assertions that are not in the core ATen set."""

    removed = (aten._assert_tensor_metadata.default,)


class PruneEmptyTensorsPass(ExportPass):
    """Takes empty tensors out of `cat`, in place; one of nothing but empty tensors becomes a `full`."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Look at each `cat`; a size that is not known counts as not 0."""
        modified = False
        for node in graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default):
            parts = list(cast(list[Node], node.args[0]))
            kept = [part for part in parts if guard_or_true(part.meta["val"].numel() != 0)]
            modified |= len(kept) < len(parts)
            if kept:
                node.args = (kept, *node.args[1:])
            else:
                _replace_by_full(graph_module, node)
        graph_module.graph.eliminate_dead_code()
        graph_module.graph.lint()
        return PassResult(graph_module, modified)


def _replace_by_full(graph_module: GraphModule, node: Node) -> None:
    value = node.meta["val"]
    with graph_module.graph.inserting_after(node):
        full = graph_module.graph.call_function(
            exir_ops.edge.aten.full.default, (tuple(value.shape), 0), {"dtype": value.dtype}
        )
    full.meta = dict(node.meta)
    node.replace_all_uses_with(full)


def remove_unused_parameters_pass(ep: ExportedProgram) -> ExportedProgram:
    """Take them out of graph, signature and state dict, in place."""
    placeholders = {node.name: node for node in ep.graph.find_nodes(op="placeholder")}
    signature = ep.graph_signature
    unused = [
        spec
        for spec in signature.input_specs
        if spec.kind is InputKind.PARAMETER and not placeholders[spec.arg.name].users
    ]
    for spec in unused:
        ep.graph.erase_node(placeholders[spec.arg.name])
        del ep.state_dict[str(spec.target)]
    kept = [spec for spec in signature.input_specs if spec not in unused]
    ep._graph_signature = ExportGraphSignature(kept, signature.output_specs)
    ep.graph_module.recompile()
    return ep
