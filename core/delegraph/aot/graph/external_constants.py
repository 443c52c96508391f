"""A weight's placeholder <-> its external tag: the name of the `.ptd` that has the weight, an external constant.

The tag stands where ExecuTorch's passes put it (`exir/passes/external_constants_pass.py`), in
`meta["custom"]["delegate_constant_tag"]`, which outlives export: a program may as well come with its tags.
"""

from __future__ import annotations

from typing import Final

from torch.fx import Node

__all__ = ["external_tag", "set_external_tag"]

_KEY: Final = "delegate_constant_tag"


def external_tag(node: Node) -> str | None:
    """The name of the `.ptd` that a backend is to put the weight of this placeholder into; None: into its blob."""
    tag = node.meta.get("custom", {}).get(_KEY)
    return None if tag is None else str(tag)


def set_external_tag(node: Node, tag: str | None) -> None:
    """Say which `.ptd` has the weight of this placeholder; None: the program, or a blob in it."""
    custom = {key: value for key, value in node.meta.get("custom", {}).items() if key != _KEY}
    node.meta["custom"] = custom if tag is None else {**custom, _KEY: tag}
    if not node.meta["custom"]:
        del node.meta["custom"]
