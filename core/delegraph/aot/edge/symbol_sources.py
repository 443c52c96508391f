"""Edge graph -> the same, every size read from the earliest values that tell it: the graph's own inputs where they do.

A size that is read from a computed value would cut a delegate in two: it has to stop before the value, so that
somebody outside can read the size, and go on behind it.

    before                                   after
    c = convolution(x, …)      # [s0, 8]     n = sym_size(x, 0)
    n = sym_size(c, 0)                       c = convolution(x, …)
    v = view_copy(c, [n, 8])                 v = view_copy(c, [n, 8])

A size that is not an input's own, 2*s0 + 1 say, is computed from those that are.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Final

import sympy
import torch
from torch.fx import Graph, Node

from delegraph.aot.graph.provenance import SOURCE
from delegraph.aot.graph.size_arithmetic import complete, size_calls

__all__ = ["read_sizes_early"]

_SYM_SIZE: Final = torch.ops.aten.sym_size.int

_READS_SIZE: Final = frozenset({_SYM_SIZE, torch.ops.aten.sym_numel.default})

_ARITHMETIC: Final = frozenset(
    {
        *(operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg),
        *(torch.sym_max, torch.sym_min, torch.sym_sum),
    }
)
"""Functions that a size may be computed with: every runtime has them, or `emission.symbolic_scalars` composes them."""


def read_sizes_early(graph: Graph) -> None:
    """Let every size be read from the earliest values that tell it; equal ones become one. Edits `graph` in place."""
    sizes = _Sizes()
    for node in list(graph.nodes):
        if node.target in _READS_SIZE and isinstance(node.meta.get("val"), torch.SymInt):
            sizes.replace(node)
        elif node.op == "placeholder":
            sizes.add_input(node)


@dataclass(slots=True)
class _Sizes:
    """The sizes known so far: where each symbol can be read (input, dim), and the node that has each size."""

    inputs: dict[sympy.Expr, tuple[Node, int | None]] = field(default_factory=dict)
    known: dict[sympy.Expr, Node] = field(default_factory=dict)
    calls: dict[object, Node] = field(default_factory=dict)
    """The arithmetic done so far, by function and arguments."""

    def add_input(self, node: Node) -> None:
        """Remember the sizes that an input of the graph tells."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            self.known.setdefault(value.node.expr, node)
        elif isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.size()):
                if isinstance(size, torch.SymInt):
                    self.inputs.setdefault(size.node.expr, (node, dim))

    def replace(self, node: Node) -> None:
        """Put in the place of `node`, which reads a size, the first node that has that size, or make that one."""
        size = node.meta["val"].node.expr
        earlier = self.known.get(size)
        if earlier is None and size in self.inputs:
            node.target, node.args = _SYM_SIZE, self.inputs[size]
        elif earlier is None:
            earlier = self._computed(size, node)
        if earlier is None:
            self.known[size] = node
        else:
            node.replace_all_uses_with(earlier)
            node.graph.erase_node(node)

    def _computed(self, size: sympy.Expr, node: Node) -> Node | None:
        """A new node before `node` that computes `size` from the inputs' sizes; None where they do not tell it, or only
        by functions that a runtime lacks."""
        if isinstance(size, sympy.Symbol) or not all(s in self.inputs or s in self.known for s in size.free_symbols):
            return None
        graph = node.graph
        before = set(graph.nodes)
        with graph.inserting_before(node):
            symbols = {symbol: self._symbol(symbol, node) for symbol in sorted(size.free_symbols, key=str)}
            try:
                result = size_calls(size, symbols, graph)
            except (NotImplementedError, KeyError, TypeError):
                result = None
        added = [new for new in graph.nodes if new not in before and new.target != _SYM_SIZE]
        if result is None or not all(new.target in _ARITHMETIC for new in added):
            for call in reversed(added):  # users before what they use
                graph.erase_node(call)
            return None
        for call in added:
            first = self.calls.setdefault((call.target, call.args), call)
            if first is call:
                complete(call, node.meta, size)
            else:  # the same arithmetic was done before
                call.replace_all_uses_with(first)
                graph.erase_node(call)
                result = first if call is result else result
        self.known[size] = result
        return result

    def _symbol(self, symbol: sympy.Symbol, like: Node) -> Node:
        """The node that has `symbol`; made at the graph's insertion point if there is none yet."""
        if symbol not in self.known:
            source, dim = self.inputs[symbol]
            read = like.graph.call_function(_SYM_SIZE, (source, dim))
            read.meta = {**like.meta, "val": source.meta["val"].size(dim), SOURCE: f"size {symbol}"}
            self.known[symbol] = read
        return self.known[symbol]
