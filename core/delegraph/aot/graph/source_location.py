"""Graph node -> the line of user code that it came from."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from torch.fx import Node

__all__ = ["user_frames", "user_location"]

_FRAME: Final = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>[^\n]+)\n(?:\s+(?P<code>[^\n]+))?'
)
_INNER: Final = re.compile(r"[/\\]torch[/\\]|<eval_with_key>")


def user_location(node: Node) -> str | None:
    """`file:line, in function: code` of the innermost frame outside torch, or None if the node carries no trace."""
    frames = user_frames(node)
    if not frames:
        return None
    file, line, function, code = next((f for f in reversed(frames) if not _INNER.search(f[0])), frames[-1])
    return f"{file}:{line}, in {function}" + (f": {code}" if code else "")


def user_frames(node: Node) -> tuple[tuple[str, int, str, str], ...]:
    """(file, line, function, code) of every frame in the node's stack trace, outermost first."""
    return _parse(str(node.meta.get("stack_trace") or ""))


@cache
def _parse(trace: str) -> tuple[tuple[str, int, str, str], ...]:
    return tuple(
        (match["file"], int(match["line"]), match["function"], match["code"] or "") for match in _FRAME.finditer(trace)
    )
