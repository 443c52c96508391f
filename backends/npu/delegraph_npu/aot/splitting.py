"""ATen graph -> the same, with parts of a split tensor as slices, which are views on the NPU.

parts = split(x, 2, 1)
a = getitem(parts, 0)      becomes      a = slice(x, 1, 0, 2)
b = getitem(parts, 1)                   b = slice(x, 1, 2, 4)
"""

from __future__ import annotations

import operator
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from delegraph.aot import schema_arguments
from delegraph_npu.aot.calls import operator_name, shape_of

__all__ = ["slices_for_parts"]

_SPLITS: Final = {"split": 2, "split_with_sizes": 2, "chunk": 2, "unbind": 1}
"""Operator -> the position of its dim."""


def slices_for_parts(model: GraphModule) -> None:
    """Replace, in place, the parts of splits into fixed sizes; other splits stay."""
    for node in list(model.graph.nodes):
        if operator_name(node) in _SPLITS and _is_fixed(node):
            _replace(model, node)


def _is_fixed(node: Node) -> bool:
    taken = all(user.target is operator.getitem for user in node.users)
    return taken and all(isinstance(size, int) for size in shape_of(node.args[0]))  # type: ignore[arg-type]


def _replace(model: GraphModule, node: Node) -> None:
    source, dim = node.args[0], schema_arguments(node)[_SPLITS[operator_name(node)]]
    sizes = [1 if operator_name(node) == "unbind" else part.shape[dim] for part in node.meta["val"]]
    for part in list(node.users):
        number = part.args[1]
        assert isinstance(number, int)
        begin = sum(sizes[: number % len(sizes)])
        with model.graph.inserting_before(part):
            if operator_name(node) == "unbind":
                target: Any = torch.ops.aten.select.int
                replacement = model.graph.call_function(target, (source, dim, begin))
            else:
                end = begin + sizes[number % len(sizes)]
                replacement = model.graph.call_function(torch.ops.aten.slice.Tensor, (source, dim, begin, end))
        replacement.meta = dict(part.meta)
        part.replace_all_uses_with(replacement)
        model.graph.erase_node(part)
    model.graph.erase_node(node)
