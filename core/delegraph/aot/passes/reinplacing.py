"""Program -> the same, updates of states marked that need no copy: they may write into the state's own memory.

A functional graph gives a changed buffer as a new value, which is written back at the end. Where nothing reads the old
value after the update, the update can work in place: a cache of keys and values is then never copied.

    %put = aten.index_put.default(%cache, [%i], %row)  # overwrites the memory of %cache
    %sum = aten.sum.default(%put)                      reads the new value, from the same memory
    buffer 'cache' <- %put                             nothing is left to copy

With `%sum = aten.sum.default(%cache)` behind it instead, the old value would be gone, so `%put` gets its own memory.
(ExecuTorch's `exir/passes/reinplace.py` does it for `index_put`, by an in-place operator whose kernel takes one index
only.)
"""

from __future__ import annotations

import operator
from typing import Final

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

from delegraph.aot.edge.dialects import ATEN, Dialect
from delegraph.aot.graph.memory_use import MEMORY_USE, MemoryUse
from delegraph.aot.graph.mutating_calls import auto_functionalized, called_operator, changed_arguments, first_copy
from delegraph.aot.graph.signature import ResolvedSignature
from delegraph.interfaces.graph_pass import ExportedProgramPassBase, ExportedProgramPassResult

__all__ = ["Reinplacing", "updated_value", "updating_call"]

aten = torch.ops.aten

_UPDATES: Final = frozenset({aten.index_put.default, aten.slice_scatter.default, aten.scatter.src})
"""Operators that give their first argument with some elements replaced. Their kernels, ExecuTorch's too, copy it into
`out` and then write, so `out` may be that argument itself."""


class Reinplacing(ExportedProgramPassBase):
    """Marks results, and elements of `auto_functionalized` calls, that may overwrite their argument."""

    required_dialect: Dialect | None = ATEN

    def call(self, program: ExportedProgram) -> ExportedProgramPassResult:
        """Mark every chain of updates that leads from a state or an input to its write-back."""
        marked = False
        position = {node: i for i, node in enumerate(program.graph.nodes)}
        for write_back in ResolvedSignature.of(program).write_backs:
            chain = []
            node = write_back.source
            while (updated := updated_value(node)) is not None and _last_reader(updated, node, position):
                chain.append(node)
                node = updated
            if node is write_back.target:  # a chain that starts elsewhere would overwrite another value
                for update in chain:
                    update.meta[MEMORY_USE] = MemoryUse.IN_PLACE
                    marked = True
        return ExportedProgramPassResult(program, marked)


def updated_value(node: Node) -> Node | None:
    """The value that `node` is an update of; None if it is no update."""
    if node.target in _UPDATES:
        source = node.args[0]
    else:
        call = updating_call(node)
        op = None if call is node else called_operator(call)
        if call.target is not auto_functionalized or op is None:
            return None
        copy = int(node.args[1]) - first_copy(op)  # type: ignore[arg-type]
        source = call.kwargs[changed_arguments(op)[copy]] if copy >= 0 else None
    return source if isinstance(source, Node) else None


def _last_reader(value: Node, update: Node, position: dict[Node, int]) -> bool:
    """Whether the call behind `update` reads `value` once, and all else that reads it comes before."""
    call = updating_call(update)
    reads: list[Node] = []
    map_arg((call.args, call.kwargs), reads.append)
    return reads.count(value) == 1 and all(position[user] < position[call] for user in value.users if user is not call)


def updating_call(node: Node) -> Node:
    """The call that `node` is an element of, or `node`."""
    source = node.args[0] if node.target is operator.getitem else node
    assert isinstance(source, Node)
    return source
