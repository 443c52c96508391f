"""The return value of an author's `support` -> None or a reason; anything else is refused, with what to return."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch.fx import Node

from delegraph.aot.graph.source_location import user_location
from delegraph.errors import InvalidPartition

__all__ = ["Check", "Support", "checked_support"]

Support: TypeAlias = Callable[[Node], str | None]
"""Whether a backend takes a node: None if it does, else the reason why not."""

Check: TypeAlias = Callable[..., str | None]
"""`(node, *schema arguments)` -> None if the node can be converted, else the reason."""


def checked_support(support: Callable[..., object], backend: str, node: Node, *arguments: object) -> str | None:
    """`support(node, *arguments)`: None, or the reason why `backend` leaves `node`.

    Raises `InvalidPartition` for anything else: True and False would say the opposite of what their author means.
    """
    answer = support(node, *arguments)
    if answer is None or (isinstance(answer, str) and answer):
        return answer
    named = getattr(support, "__qualname__", repr(support))
    raise InvalidPartition(
        f"support {named} of {backend} returned {answer!r}; it returns None for a node that the backend takes, and the"
        " reason in words for any other",
        node=node.name,
        location=user_location(node),
    )
