"""Nodes of the old graph -> their up-to-date values in the new one: views follow their base, and writes reach it.

A tensor that is not a view is a base. A base has a version, which each write raises; a view remembers the call that
made it and the version that it shows. One that is read behind a write is made again; what nobody reads again costs
nothing:

    before                    after                       version
    row = t[1]                row = t[1]                  t 0, row 0
    t.mul_(2)                 t' = t * 2                  t 1
    return row                row' = t'[1]                row 0 -> 1
                              return row'

A write through a view climbs to the base: the inverse of each view puts the new part into its parent (`graph.
view_operators`). All views on the way are up to date then; others of that base are made again when they are read.
Like every call that is added, `select_scatter` is decomposed where it is not kept whole:

    before                    after                                            version
    m = t.permute(1, 0)       m = permute(t, [1, 0])
    row = m[0]                row = m[0]                                       t 0, m 0, row 0
    row.add_(1)               row' = row + 1
                              m' = select_scatter(m, row', 0, 0)
                              t' = permute(m', [1, 0])                         t 1, m 1, row 1

split, chunk and unbind give a list, which no inverse takes. A piece is put past it into the tensor that was split:

    before                    after
    a, b = t.split(2)         p = split(t, 2);  a, b = p[0], p[1]
    a.add_(1)                 a' = a + 1;       t' = slice_scatter(t, a', 0, 0, 2)
    return b                  p' = split(t', 2)
                              return p'[1]

Where a graph takes the place of a call, its inputs are the call's arguments under other names: views without an
operator. So a write in a `no_grad` region reaches what the model wrote to:

    before                                       after
    wrap_with_set_grad_enabled(False, f, x)      x' = x + 1
        f(y): y.add_(1)
    return x                                     return x'
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.node import Argument, ArgumentT

from delegraph.aot.functional.aliases import is_same_tensor
from delegraph.aot.functional.graph_builder import GraphBuilder, Value
from delegraph.aot.graph.fake_values import Kwargs, fake_tensor
from delegraph.aot.graph.mutating_calls import overlaps_itself
from delegraph.aot.graph.view_operators import VIEW_INVERSES, scatter_by_index, scatter_piece, scatter_shown
from delegraph.errors import LoweringError

__all__ = ["VersionedValues"]

aten = torch.ops.aten


@dataclass(slots=True)
class _View:
    """How to make a value again from its parent: `op` on `args`, in which the parent is the first argument."""

    parent: Node
    op: Callable[..., object] | None  # None: the same tensor under another name
    args: tuple[Argument, ...]
    kwargs: Kwargs
    version: int
    """The version of the base that the value shows."""


class VersionedValues:
    """The value of every node of the old graph. Views that have to be made again are added to `graph`.

    `writers` has the first call that wrote to each base.
    """

    def __init__(self, graph: GraphBuilder) -> None:
        self.writers: dict[Node, Node] = {}
        self._graph = graph
        self._values: dict[Node, Value] = {}
        self._views: dict[Node, _View] = {}
        self._results: dict[Node, Sequence[Argument]] = {}
        """The results of a call that several nodes took the place of, as nodes of the graph that did."""
        self._versions: dict[Node, int] = {}

    # ---- reading -----------------------------------------------------------------------------------

    def resolve(self, arguments: ArgumentT) -> ArgumentT:
        """`arguments` with the up-to-date value of each node in its place."""
        return torch.fx.node.map_arg(arguments, self.current)

    def current(self, node: Node) -> Value:
        """The up-to-date value of `node`: made again if what it views has been written to since."""
        if node in self._results:  # a call that a graph took the place of: its results are views too, and may be old
            return self.resolve(self._results[node])
        view = self._views.get(node)
        if view is not None and view.version != self._version(node):  # its base was written since
            self._values[node] = self._made_again(node, view)
            view.version = self._version(node)
        return self._values[node]

    def _made_again(self, node: Node, view: _View) -> Value:
        return self._seen_in(self.current(view.parent), node, view)

    def _seen_in(self, parent: Value, node: Node, view: _View) -> Value:
        """The value of `node`, made again by its `view` from the value `parent`."""
        if view.op is None:
            return parent
        args = self.resolve(view.args)
        # `view` was right for the layout that the tensor had; what was written to it may have another
        op = _FOR_ANY_LAYOUT.get(view.op, view.op)
        if isinstance(op, OpOverload):
            return self._graph.call(op, (parent, *args), self.resolve(view.kwargs), node)
        (position,) = args
        assert isinstance(position, int)
        return self._graph.element(parent, position)

    def results(self, node: Node) -> Sequence[Argument] | None:
        """The results of `node` as nodes of the graph that took its place; None if none did."""
        return self._results.get(node)

    def is_view(self, node: Node) -> bool:
        """Whether `node` shows the memory of another node."""
        return node in self._views

    def base(self, node: Node) -> Node:
        """The tensor that the chain of views ending in `node` begins with: `node` itself if it is no view."""
        while node in self._views:
            node = self._views[node].parent
        return node

    def _version(self, node: Node) -> int:
        return self._versions.get(self.base(node), 0)

    def mutated(self) -> dict[Node, Node]:
        """The new value of each placeholder that was written to."""
        new = {node: self._values[node] for node in self._versions if node.op == "placeholder"}
        return {node: value for node, value in new.items() if isinstance(value, Node)}

    # ---- writing -----------------------------------------------------------------------------------

    def define(self, node: Node, value: Value) -> None:
        """`node`, which has just been made anew, has this value."""
        self._values[node] = value

    def view(self, node: Node, source: Node) -> None:
        """`node`, a call, gives a view of its first argument `source`."""
        assert callable(node.target)
        # `x.to(x.dtype)` is x: a write through it must not scatter x into itself
        op = None if is_same_tensor(node, source) else node.target
        self._views[node] = _View(source, op, node.args[1:], node.kwargs, self._version(source))

    def strided_view(self, node: Node, base: Node, arguments: tuple[Argument, ...]) -> None:
        """`node` is `as_strided` of `base` with these further arguments."""
        self._views[node] = _View(base, aten.as_strided.default, arguments, {}, self._version(base))

    def rename(self, node: Node, source: Node) -> None:
        """`node` is the same tensor as `source` from now on."""
        self._views[node] = _View(source, None, (), {}, self._version(source))

    def stand_for(self, node: Node, results: Argument) -> Value:
        """`results`, in the structure of `node`'s own result, stand for it from now on."""
        if isinstance(results, Node):
            self.rename(node, results)
        elif isinstance(results, (tuple, list)):
            self._results[node] = results
        return self.resolve(results)

    def write(self, node: Node, value: Value) -> None:
        """The memory that `node` shows holds `value` from now on. Each parent up to the base gets a new value, and the
        base a new version; other views of that base are out of date, and made again when they are read."""
        view = self._views.get(node)
        if view is None:
            self._values[node] = value
            self._versions[node] = self._versions.get(node, 0) + 1
            assert self._graph.origin is not None
            self.writers.setdefault(node, self._graph.origin)
            return
        if (overlapping := self._overlapping_view(node)) is not None:
            self._write_elements(node, overlapping, value)
        elif view.op is operator.getitem:  # one of the pieces that a tensor was split into
            split = self._views[view.parent]
            # past the list, for which there is no inverse: t' = slice_scatter(t, piece, …)
            (position,) = view.args
            assert isinstance(position, int)
            scatter, arguments = scatter_piece(self.current(split.parent), value, view.parent, position)
            self.write(split.parent, self._graph.call(scatter, arguments, {}, node))
        else:
            self.write(view.parent, value if view.op is None else self._scatter(node, view, value))
        self._values[node] = value  # it shows what was written, and need not be made again
        view.version = self._version(node)

    def _overlapping_view(self, node: Node) -> Node | None:
        """The view nearest to the base, of `node` and those that it views, that may show elements several times."""
        last = None
        while (view := self._views.get(node)) is not None:
            if view.op in _SHOW_TWICE and overlaps_itself(fake_tensor(node)) is not False:
                last = node
            node = view.parent
        return last

    def _write_elements(self, node: Node, overlapping: Node, value: Value) -> None:
        """A write to a part of what shows its elements several times is seen wherever they are shown.

        v = x.expand(2, 3);  v[0].add_(1)           x' = x + 1;  v' = x'.expand(2, 3)
        """
        parent = self._views[overlapping].parent

        def call(op: OpOverload, *args: Argument, **kwargs: Argument) -> Value:
            return self._graph.call(op, args, kwargs, node)

        def shown(numbers: Value) -> Value:
            return self._seen_from(parent, numbers, node)

        self.write(parent, scatter_shown(call, shown, self.current(parent), value))

    def _seen_from(self, ancestor: Node, value: Value, node: Node) -> Value:
        """The value of `node` if `ancestor`, which it is a view of, had this value."""
        if node is ancestor:
            return value
        view = self._views[node]
        if view.op in _OTHER_ELEMENTS:
            raise LoweringError(
                f"{view.op} is written through, of a tensor that shows elements several times; write to a clone of it",
                node=str(self._graph.origin),
                location=self._graph.location,
            )
        return self._seen_in(self._seen_from(ancestor, value, view.parent), node, view)

    def _scatter(self, node: Node, view: _View, value: Value) -> Value:
        """The parent's value once its part `node` has become `value`."""
        parent = self.current(view.parent)
        args, kwargs = self.resolve(view.args), self.resolve(view.kwargs)

        def call(op: OpOverload, *args: Argument, **kwargs: Argument) -> Value:
            return self._graph.call(op, args, kwargs, node)

        inverse = VIEW_INVERSES.get(view.op)
        if inverse is not None:
            return inverse(call, parent, value, args, kwargs)
        assert isinstance(view.op, OpOverload)
        return scatter_by_index(call, view.op, parent, value, args, kwargs)


_SHOW_TWICE = frozenset({aten.expand.default, aten.unfold.default, aten.as_strided.default})
"""Views that may show one element of what they view in several places."""

_OTHER_ELEMENTS = frozenset(
    {
        *(aten.view.dtype, aten.view_as_real.default, aten.view_as_complex.default),
        *(aten._conj.default, aten._neg_view.default),
    }
)
"""Views that show other values than those of what they view."""

_FOR_ANY_LAYOUT: dict[object, OpOverload] = {aten.view.default: aten.reshape.default}
"""A view that is made again may be of a value in another layout than the first one."""
