"""Keys or values whose heads are repeated for groups of queries -> what is repeated, which attention takes as it is.

k ── unsqueeze 2 ── expand ── view ──> (batch, groups * repetitions, length, size)   ──>  k of (batch, groups, …)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torch.fx import Node

from delegraph_onnx.converters.table import aten
from delegraph_onnx.copies import COPIES
from delegraph_onnx.node_facts import in_words, rank_of, shape_of

__all__ = ["REPEATING", "repeats_heads", "unrepeated"]

REPEATING: Final = frozenset([aten("unsqueeze_copy"), aten("expand_copy"), aten("view_copy"), *COPIES])
"""Of what a repetition is made, if it is one."""


def unrepeated(node: Node) -> Node:
    """What `node` repeats the heads of; itself if it does not."""
    chain: list[Node] = []
    source = node
    while source.op == "call_function" and source.target in REPEATING and len(chain) < _LONGEST:
        chain.append(source)
        source = source.args[0]  # type: ignore[assignment]
        if source.op != "get_attr" and rank_of(source) == 4 and _steps(chain) and repeats_heads(chain[::-1], source):
            return source
    return node


_LONGEST: Final = 8


def repeats_heads(chain: Sequence[Node], source: Node) -> bool:
    """Whether `chain` is nothing, or repeats each head r times: (batch, heads, …) -> (batch, heads, r, …) -> joined."""
    steps = _steps(chain)
    if not steps:
        return True
    batch, heads, length, size = shape_of(source)
    if [node.target for node in steps] != [aten("unsqueeze_copy"), aten("expand_copy"), aten("view_copy")]:
        return False
    repetitions = shape_of(steps[1])[2]
    shapes = [in_words(shape_of(node)) for node in steps]
    if not isinstance(heads, int) or not isinstance(repetitions, int):
        return False
    wanted = [
        (batch, heads, 1, length, size),
        (batch, heads, repetitions, length, size),
        (batch, heads * repetitions, length, size),
    ]
    return shapes == [in_words(shape) for shape in wanted]


def _steps(chain: Sequence[Node]) -> list[Node]:
    return [node for node in chain if node.target not in COPIES]
