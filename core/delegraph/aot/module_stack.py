"""A call -> the user's modules that it stands in, as `torch.export` has noted them."""

from __future__ import annotations

import re
from typing import Final

from torch.fx import Node

__all__ = ["module_path", "module_stack"]


def module_stack(node: Node) -> list[tuple[str, object]]:
    """The paths and classes of the modules around a call, the outermost first.

    Of a model whose forward was replaced, `model.forward = partial(model.forward, …)`, torch names the way through
    that call, `model.forward.func.__self__.head`: the module is `model.head`.
    """
    stack = (node.meta.get("nn_module_stack") or {}).values()
    return [(_THROUGH_CALL.sub("", str(path).removeprefix("L['self']")).lstrip("."), kind) for path, kind, *_ in stack]


def module_path(node: Node) -> str:
    """The innermost user module around a call, `encoder.layers.0`; empty for what torch's own hooks added."""
    path = next((path for path, _ in reversed(module_stack(node))), "")
    is_user_module = all(part.isidentifier() or part.isdecimal() for part in path.split("."))
    return path if is_user_module and not path.startswith("_empty_nn_module_stack") else ""


_THROUGH_CALL: Final = re.compile(r"(^|\.)\w+(\.func)*\.__self__(?=\.|$)")
