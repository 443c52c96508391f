"""GraphModule -> the same without assertions about values, which runtimes cannot run."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from delegraph.aot import graph_modules

__all__ = ["RemoveGraphAssertsPass", "RemoveNonCoreAtenOpGraphAssertsPass"]

aten = torch.ops.aten


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
