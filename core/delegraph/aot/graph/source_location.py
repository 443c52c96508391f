"""Graph node -> the line of user code that it came from."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from typing import Final

from torch.fx import Node

__all__ = ["short_location", "user_frames", "user_location"]

_FRAME: Final = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>[^\n]+)\n(?:\s+(?P<code>[^\n]+))?'
)
_INNER: Final = re.compile(r"[/\\]torch[/\\]|<eval_with_key>")


def user_location(node: Node) -> str | None:
    """`file:line, in function: code` of the innermost frame outside torch, or None if the node carries no trace."""
    frames = user_frames(node)
    if not frames:
        return None
    file, line, function, code = _innermost(frames)
    return f"{file}:{line}, in {function}" + (f": {code}" if code else "")


def short_location(node: Node) -> str:
    """`file:line, in function`, without the folder that the file lies in on this machine; "" without a trace."""
    frames = user_frames(node)
    if not frames:
        return ""
    file, line, function, _ = _innermost(frames)
    return f"{_short_name(file)}:{line}, in {function}"


@cache
def _short_name(file: str) -> str:
    """The name as Python finds it, `"transformers/models/bert.py"`, or from the working directory; else the last."""
    roots = [os.getcwd(), *(path for path in sys.path if os.path.isabs(path))]
    inside = [os.path.relpath(file, root) for root in roots if file.startswith(os.path.join(root, ""))]
    return min(inside, key=len, default=os.path.basename(file)).replace(os.sep, "/")


def user_frames(node: Node) -> tuple[tuple[str, int, str, str], ...]:
    """(file, line, function, code) of every frame in the node's stack trace, outermost first."""
    return _parse(str(node.meta.get("stack_trace") or ""))


def _innermost(frames: tuple[tuple[str, int, str, str], ...]) -> tuple[str, int, str, str]:
    """The innermost frame outside torch."""
    return next((frame for frame in reversed(frames) if not _INNER.search(frame[0])), frames[-1])


@cache
def _parse(trace: str) -> tuple[tuple[str, int, str, str], ...]:
    return tuple(
        (match["file"], int(match["line"]), match["function"], match["code"] or "") for match in _FRAME.finditer(trace)
    )
