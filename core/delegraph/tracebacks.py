"""An exception -> the traceback that a notebook shows of it: the caller's own frames, and the message.

IPython asks an exception for `_render_traceback_`. `traceback.print_exception(error)` shows all frames, as a program
does that an exception ends.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from typing import Final

__all__ = ["notebook_traceback"]

_OURS: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep


def notebook_traceback(error: BaseException) -> list[str]:
    """The lines of the traceback up to where the caller's code calls Delegraph."""
    frames = list(_callers_frames(error))
    kind = type(error)
    return [
        *(["Traceback (most recent call last):"] if frames else []),
        *(line.rstrip("\n") for line in traceback.format_list(frames)),
        f"{kind.__module__}.{kind.__qualname__}: {error}",
    ]


def _callers_frames(error: BaseException) -> Iterator[traceback.FrameSummary]:
    """Those before the first of ours, without IPython's own."""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(_OURS):
            return
        if f"{os.sep}IPython{os.sep}" not in frame.filename:
            yield frame
