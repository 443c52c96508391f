"""Calls -> nothing, or one error that lists each whose operator cannot run on planned memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch._ops import OpOverload
from torch.fx import Node

from delegraph.aot.graph.mutating_calls import called_operator
from delegraph.aot.graph.out_variants import find_out_variant, gives_scalar, missing_text
from delegraph.aot.graph.source_location import user_location
from delegraph.errors import MissingOutVariant

__all__ = ["check_out_variants"]


def check_out_variants(nodes: Iterable[Node]) -> None:
    """Raise one `MissingOutVariant` that lists every operator among `nodes` that has no out variant."""
    missing = [n for n in nodes if (op := called_operator(n)) is not None and _lacks_out_variant(op)]
    if not missing:
        return
    lines = [f"\n- {missing_text(op)}{_uses(users)}" for op, users in _by_operator(missing).items()]
    raise MissingOutVariant(
        f"{len(lines)} operator{'s' * (len(lines) > 1)} cannot run on planned memory:" + "".join(lines),
        node=missing[0].name,
        location=user_location(missing[0]),
    )


def _lacks_out_variant(op: OpOverload) -> bool:
    return not gives_scalar(op) and find_out_variant(op) is None


def _by_operator(nodes: Sequence[Node]) -> dict[OpOverload, list[Node]]:
    users: dict[OpOverload, list[Node]] = {}
    for node in nodes:
        op = called_operator(node)
        assert op is not None
        users.setdefault(op, []).append(node)
    return users


def _uses(nodes: Sequence[Node]) -> str:
    return "".join(f"\n    {node.name} at {user_location(node) or 'an unknown line'}" for node in nodes)
