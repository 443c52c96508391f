"""GraphModule -> the same without calls that give their argument unchanged, and the q/dq pairs around them."""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import GraphModule, Node

from delegraph_executorch.exir.operator.util import _DEQUANT_OPS, _QUANT_OPS
from delegraph_executorch.exir.pass_base import ExportPass, PassResult

__all__ = ["RemoveNoopPass", "RemoveToCopyPass", "eliminate_dq_q"]

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
