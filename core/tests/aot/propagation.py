"""Whether the values that a graph's nodes are said to have are what their operators give."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from delegraph.aot.functional.functionalize import fake_mode_of
from delegraph.aot.graph.view_operators import COPY_TO_VIEW
from delegraph.aot.stage import Lowering, Stage


def assert_values_are_what_operators_give(program: ExportedProgram) -> None:
    """Call every operator again on its arguments' fake values: shape and dtype have to be those of meta["val"].

    Later stages plan memory and check dialects by meta["val"] and never compute it again.
    """
    mode = fake_mode_of(program)
    wrong = [text for node in nodes_of(program.graph_module) if (text := _difference(node, mode)) is not None]
    assert not wrong, "\n".join(wrong)


def nodes_of(module: GraphModule) -> list[Node]:
    """The nodes of a graph and of its control-flow bodies."""
    bodies = [operator.attrgetter(str(n.target))(module) for n in module.graph.nodes if n.op == "get_attr"]
    inner = [node for body in bodies if isinstance(body, GraphModule) for node in nodes_of(body)]
    return [*module.graph.nodes, *inner]


def _difference(node: Node, mode: Any) -> str | None:
    called = isinstance(node.target, OpOverload) or node.target is operator.getitem
    if not called or not pytree.tree_leaves(node.meta.get("val")) or free_unbacked_symbols(node.meta["val"]):
        return None  # nothing to compare, or a size that the data decides, which is another one each time
    args, kwargs = pytree.tree_map_only(Node, lambda n: n.meta["val"], (node.args, dict(node.kwargs)))
    with ExitStack() as stack:
        stack.enter_context(mode)
        if mode.shape_env is not None:  # whose symbols neither learn from a call nor become more
            stack.enter_context(mode.shape_env.suppress_guards())
            stack.enter_context(mode.shape_env.ignore_fresh_unbacked_symbols())
        given = COPY_TO_VIEW.get(node.target, node.target)(*args, **kwargs)  # type: ignore[operator,arg-type]
    ours, theirs = _shapes(node.meta["val"]), _shapes(given)
    return None if ours == theirs else f"{node.name} = {node.target}: is said to be {ours}, gives {theirs}"


def _shapes(value: Any) -> list[str]:
    return [
        f"{leaf.dtype}{[str(size) for size in leaf.shape]}" if isinstance(leaf, torch.Tensor) else type(leaf).__name__
        for leaf in pytree.tree_leaves(value)
    ]


class PropagationCheck:
    """A watcher for `lower(progress=…)`: behind each stage, values are what operators give."""

    def started(self, stage: Stage, methods: Sequence[str], lowering: Lowering, remaining: Sequence[Stage]) -> None:
        pass

    def done(self, stage: Stage, methods: Sequence[str], lowering: Lowering, seconds: float) -> None:
        for method in methods:
            if stage.name in _OF_GRAPHS and method in lowering.programs:
                assert_values_are_what_operators_give(lowering.programs[method])


_OF_GRAPHS = {"functional", "edge", "partition", "kernels", "prepare"}
"""Stages that change graphs."""
