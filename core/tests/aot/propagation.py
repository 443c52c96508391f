"""Whether the values that a graph's nodes are said to have are what their operators give."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from delegraph.aot.functional.functionalize import fake_mode_of
from delegraph.aot.graph.result_dtypes import untraced
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
    with untraced(mode):
        try:
            given = _CALLED_AS.get(node.target, node.target)(*args, **kwargs)  # type: ignore[operator,arg-type]
        except RuntimeError as error:
            if not any(words in str(error) for words in _WITHOUT_SYMBOLS):
                raise
            return None
    ours, theirs = (pytree.tree_leaves(value) for value in (node.meta["val"], given))
    if len(ours) == len(theirs) and all(map(_is_alike, ours, theirs)):
        return None
    return f"{node.name} = {node.target}: is said to be {_shapes(ours)}, gives {_shapes(theirs)}"


_VIEW, _RESHAPE = torch.ops.aten.view.default, torch.ops.aten.reshape.default
_CALLED_AS = {copy: _RESHAPE if view is _VIEW else view for copy, view in COPY_TO_VIEW.items()} | {_VIEW: _RESHAPE}
"""Operators without a form for fake values; and a view's, whose values have strides that programs do not have."""

_WITHOUT_SYMBOLS = ("symbolic sizes/strides", "SymIntArrayRef expected to contain only concrete integers")
"""As a kernel of torch's says that it has no form for sizes that are symbols."""


def _is_alike(ours: Any, theirs: Any) -> bool:
    """Of one dtype and shape. Some of torch's kernels have no form for symbols, and give the size of the example."""
    if not (isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)):
        return type(ours) is type(theirs)
    if (ours.dtype, ours.dim()) != (theirs.dtype, theirs.dim()):
        return False
    return all(str(a) == str(b) or b == _example(a) for a, b in zip(ours.shape, theirs.shape, strict=True))


def _example(size: int | torch.SymInt) -> int | None:
    return size if isinstance(size, int) else size.node.hint


def _shapes(leaves: list[Any]) -> list[str]:
    return [
        f"{leaf.dtype}{[str(size) for size in leaf.shape]}" if isinstance(leaf, torch.Tensor) else type(leaf).__name__
        for leaf in leaves
    ]


class PropagationCheck:
    """A watcher for `lower(progress=…)`: behind each stage values are what operators give, and no dynamic size has
    become a number."""

    def __init__(self) -> None:
        self._fixed: dict[str, str] = {}

    def started(self, stage: Stage, methods: Sequence[str], lowering: Lowering, remaining: Sequence[Stage]) -> None:
        self._fixed = _fixed_sizes(lowering)

    def done(self, stage: Stage, methods: Sequence[str], lowering: Lowering, seconds: float) -> None:
        for method in methods:
            if stage.name in _OF_GRAPHS and method in lowering.programs:
                assert_values_are_what_operators_give(lowering.programs[method])
        assert stage.name == "export" or _fixed_sizes(lowering) == self._fixed, f"{stage.name} takes sizes for numbers"


_OF_GRAPHS = {"functional", "edge", "partition", "kernels", "prepare"}
"""Stages that change graphs."""


def _fixed_sizes(lowering: Lowering) -> dict[str, str]:
    """Symbols of the programs that stand for a number, or for each other."""
    envs = [env for program in lowering.programs.values() if (env := fake_mode_of(program).shape_env) is not None]
    return {str(symbol): str(value) for env in envs for symbol, value in env.replacements.items()}
