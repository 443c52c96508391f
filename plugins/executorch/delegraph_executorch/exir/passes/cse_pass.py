"""GraphModule -> the same, of calls that compute the same only the first."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from delegraph_executorch.exir.pass_base import ExportPass, PassResult

__all__ = ["CSEPass"]


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
