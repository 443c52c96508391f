"""A call's decomposition, traced by itself -> its values in terms of the sizes that the call had at export.

    before, with torch._check(y.shape[0] <= 80)        y = repeat_interleave(x, r)    # [u0, 3], u0 <= 80
    traced by itself, once for all calls like it       i = repeat_interleave(r)       # [u1]
                                                       y = index_select(x, 0, i)      # [u1, 3]
    in the new graph                                   i                              # [u0]
                                                       y                              # [u0, 3]

A size that depends on values is a new symbol in each trace; what the model says of it was said of the call's own, and
two calls that share a trace have two sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import sympy
import torch
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from delegraph.aot.graph.fake_values import fake_values

__all__ = ["Sizes", "in_sizes", "sizes_of_call"]

Sizes: TypeAlias = Mapping[sympy.Symbol, sympy.Expr]
"""The symbols of a trace, each with the size that it is in the call."""


def sizes_of_call(template: GraphModule, result: object) -> Sizes:
    """The sizes that `template` makes up, as `result`, the fake value of the call, has them."""
    traced = pytree.tree_leaves(fake_values(template.graph.output_node().args[0]))
    actual = pytree.tree_leaves(result)
    sizes: dict[sympy.Symbol, sympy.Expr] = {}
    if len(traced) == len(actual):
        for own, due in zip(traced, actual, strict=True):
            sizes |= _matched(own, due)
    if not sizes:
        return {}
    known = {symbol for node in template.graph.find_nodes(op="placeholder") for symbol in _symbols(node.meta["val"])}
    return {symbol: size for symbol, size in sizes.items() if symbol not in known}


def _symbols(value: object) -> set[sympy.Symbol]:
    return set(free_unbacked_symbols(value)) if isinstance(value, (torch.Tensor, torch.SymInt)) else set()


def _matched(own: object, due: object) -> dict[sympy.Symbol, sympy.Expr]:
    if isinstance(own, torch.Tensor) and isinstance(due, torch.Tensor):
        if own.dim() != due.dim():
            return {}
        pairs = zip(own.shape, due.shape, strict=True)
        return {symbol: size for pair in pairs for symbol, size in _matched(*pair).items()}
    if not isinstance(own, torch.SymInt) or not isinstance(due, (int, torch.SymInt)):
        return {}
    symbol, size = own.node.expr, due.node.expr if isinstance(due, torch.SymInt) else sympy.Integer(due)
    return {symbol: size} if symbol in _symbols(own) and symbol != size else {}


def in_sizes(value: object, sizes: Sizes) -> object:
    """`value`, a fake value of the trace, with the call's own `sizes`."""
    return pytree.tree_map(lambda leaf: _in_sizes(leaf, sizes), value) if sizes else value


def _in_sizes(value: object, sizes: Sizes) -> Any:
    if isinstance(value, torch.SymInt) and sizes.keys() & value.node.expr.free_symbols:
        size = value.node.expr.xreplace(sizes)
        return int(size) if size.is_Integer else value.node.shape_env.create_symintnode(size, hint=None)
    if isinstance(value, torch.Tensor) and sizes.keys() & _symbols(value):
        shape = [_in_sizes(size, sizes) for size in value.shape]
        stride = [_in_sizes(size, sizes) for size in value.stride()]
        return torch.empty_strided(shape, stride, dtype=value.dtype, device=value.device)
    return value
