"""A call -> the argument that its result shows the memory of, if any.

`transpose` always gives a view and `to` sometimes its argument; what a composite operator gives, its template tells.
"""

from __future__ import annotations

import operator

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from delegraph.aot.functional.decompose import is_composite
from delegraph.aot.graph.fake_values import fake_tensor, fake_values

__all__ = ["gives_alias", "is_same_tensor", "viewed_argument"]

aten = torch.ops.aten

_SAME_TENSOR = frozenset({aten.alias.default, aten.detach.default, aten.detach_.default})
"""Views of everything; so is the result of an operator that gives its argument under some conditions."""


def gives_alias(template: GraphModule) -> bool:
    """Whether a result of a decomposed call is an argument, or a view of one."""
    return any(_origin(leaf).op == "placeholder" for leaf in _results(template))


def viewed_argument(node: Node) -> Node | None:
    """The first argument of a call that is not decomposed, if its result is a view of that."""
    op = node.target
    assert isinstance(op, OpOverload)
    if not _may_alias(op) or not node.args or not isinstance(node.args[0], Node):
        return None
    source = node.args[0]
    if op.is_view and not is_composite(op):
        return source
    first = next(iter(pytree.tree_leaves(_again(node))), None)
    return source if isinstance(first, torch.Tensor) and _storage(first) == _storage(fake_tensor(source)) else None


def is_same_tensor(node: Node, source: Node) -> bool:
    """Whether the result of `node`, a view of its argument `source`, is the whole of it in the same layout."""
    if node.target in _SAME_TENSOR:
        return True
    if not isinstance(node.target, OpOverload) or not is_composite(node.target):
        return False
    old, new = source.meta["val"], _again(node)
    return isinstance(new, torch.Tensor) and new is old


def _again(node: Node) -> object:
    """The result of the call on its arguments' fake values."""
    assert isinstance(node.target, OpOverload)
    args, kwargs = fake_values((node.args, node.kwargs))
    result: object = node.target(*args, **kwargs)
    return result


def _may_alias(op: OpOverload) -> bool:
    returns = op._schema.returns
    return bool(returns) and returns[0].alias_info is not None


def _results(template: GraphModule) -> list[Node]:
    leaves = pytree.tree_leaves(template.graph.output_node().args[0])
    return [leaf for leaf in leaves if isinstance(leaf, Node)]


def _origin(node: Node) -> Node:
    """The tensor that a chain of views ending in `node` begins with."""
    while node.op == "call_function" and (
        node.target is operator.getitem or (isinstance(node.target, OpOverload) and _may_alias(node.target))
    ):
        source = node.args[0]
        assert isinstance(source, Node)
        node = source
    return node


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
