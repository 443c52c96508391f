"""The table that the family modules fill: operator -> how it is written for OpenVINO, and when it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import torch
from torch.fx import Node

from delegraph.aot.authoring import Check, ConverterTable, operator_name, tensors_of
from delegraph_openvino.aot.wide_integers import MOVES, check_int64

__all__ = ["ALL", "FLOATS", "NUMBERS", "TABLE", "converts"]

FLOATS: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})
NUMBERS: Final = FLOATS | {torch.int32, torch.int64}
"""Without narrow integers: OpenVINO's CPU device saturates where those wrap around in torch."""
ALL: Final = NUMBERS | {torch.bool, torch.int8, torch.uint8, torch.int16}

TABLE: Final = ConverterTable("OpenVINO", dtypes=FLOATS)

_INDEXES: Final[dict[Any, tuple[int, ...]]] = {}
"""The positions of arguments that select elements, or are small by what they mean, by operator."""

_F = TypeVar("_F", bound=Callable[..., Any])


def converts(
    *operators: str,
    dtypes: frozenset[torch.dtype] = FLOATS,
    check: Check | None = None,
    keep: bool = False,
    indexes: tuple[int, ...] = (),
) -> Callable[[_F], _F]:
    """Decorate the function that converts `operators`: overloads of `aten`, unless they name their namespace.

    `check` looks at what all operators have in common with none. Arguments at the positions `indexes` select elements:
    int64 there is as good as int32. `keep` asks lowering not to decompose the operator.
    """
    targets = [name if "::" in name else _overload(name) for name in operators]
    _INDEXES.update(dict.fromkeys(targets, indexes))

    def why_not(node: Node, *arguments: Any) -> str | None:
        reason = _check_sizes(node) or check_int64(node, _selecting(node), _only_selects(node, set()))
        return reason or (None if check is None else check(node, *arguments))

    return TABLE.converts(*targets, dtypes=dtypes, check=why_not, keep_whole=keep)


def _overload(name: str) -> torch._ops.OpOverload:
    packet, _, overload = name.partition(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, packet), overload)
    return found


def _check_sizes(node: Node) -> str | None:
    empty = any(isinstance(size, int) and size == 0 for tensor in tensors_of(node) for size in tensor.shape)
    return "a tensor is empty" if empty else None


# ---- places of elements -------------------------------------------------------------------------------------------


def _selecting(node: Node) -> list[Node]:
    """The operands whose values are places of elements."""
    positions = _INDEXES.get(node.target, _INDEXES.get(operator_name(node), ()))
    return [read for at in positions for read in _nodes(node.args[at : at + 1])]


def _only_selects(node: Node, seen: set[Node]) -> bool:
    """Whether everything that reads `node`, moves of it aside, takes it for the places of elements."""
    if str(node.target) not in MOVES or not node.users:
        return False
    for user in node.users.keys() - seen:
        seen.add(user)
        if node not in _selecting(user) and not _only_selects(user, seen):
            return False
    return True


def _nodes(arguments: Iterable[object]) -> list[Node]:
    found: list[Node] = []
    for argument in arguments:
        if isinstance(argument, Node):
            found.append(argument)
        elif isinstance(argument, list | tuple):
            found += _nodes(argument)
    return found
