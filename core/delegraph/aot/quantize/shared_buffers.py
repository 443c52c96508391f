"""The programs of several methods -> the buffers that one of them changes and another reads, which are no constants of
the other's, and what they hold when it is calibrated.

    before                    while it is quantized
        y = linear(h, w)          y = linear(h, w)
                                  copy_(h, h)          else torchao rounds h as it is now, once and for all

Methods are calibrated in their order: one finds what those before it have left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from delegraph.aot.functional.functionalize import functionalize

__all__ = ["CommonBuffers"]

aten = torch.ops.aten


class CommonBuffers:
    """The buffers that methods of one model share: by their names, as where methods share state."""

    def __init__(self) -> None:
        self._names: frozenset[str] | None = None
        self._left: dict[str, torch.Tensor] = {}
        self._found: dict[str, dict[str, torch.Tensor]] = {}

    def look_for(self, programs: Collection[ExportedProgram]) -> None:
        """Find them, once, in the programs of all methods."""
        if self._names is None:
            self._names = _changed(programs)

    def found_by(self, method: str, buffers: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The content of `buffers` when calibration of a method begins, the same each time that it does."""
        left = self._found.setdefault(method, dict(self._left))
        fitting = {name: left[name] for name, own in buffers.items() if name in left and _fits(left[name], own)}
        return {**buffers, **fitting}

    def leave(self, buffers: Mapping[str, torch.Tensor]) -> None:
        """Calibration has ended with these."""
        self._left.update({name: buffers[name].clone() for name in (self._names or ()) if name in buffers})

    def mark(self, module: GraphModule) -> None:
        """Let `module` change the buffers that other methods do, to what they are."""
        (output,) = module.graph.find_nodes(op="output")
        for node in module.graph.find_nodes(op="get_attr"):
            if node.target in (self._names or ()):
                with module.graph.inserting_before(output):
                    module.graph.call_function(aten.copy_.default, (node, node)).meta["val"] = node.meta["val"]
        module.recompile()

    def unmark(self, module: GraphModule) -> None:
        """Undo that."""
        for node in module.graph.find_nodes(op="call_function", target=aten.copy_.default):
            if node.args[0] is node.args[1]:
                module.graph.erase_node(node)
        module.recompile()


def _changed(programs: Collection[ExportedProgram]) -> frozenset[str]:
    """The names of the buffers that several programs have and one of them changes."""
    counts = Counter(name for program in programs for name, _ in program.named_buffers())
    shared = {name for name, count in counts.items() if count > 1}
    changed: set[str] = set()
    for program in programs if shared else ():
        functional = functionalize(program, {}, only=lambda _node: False)
        changed.update(functional.graph_signature.buffers_to_mutate.values())
    return frozenset(shared & changed)


def _fits(stored: torch.Tensor, buffer: torch.Tensor) -> bool:
    return stored.shape == buffer.shape and stored.dtype == buffer.dtype
