"""Notices who brings torch into a process that runs without it."""

from __future__ import annotations

import sys
from _thread import get_ident
from importlib.machinery import ModuleSpec
from types import TracebackType

__all__ = ["TorchWatch"]


class TorchWatch:
    """While entered, a finder in front of all others that finds nothing and remembers who asks for torch.

    It looks at its own thread only: another one may be lowering a model meanwhile, and import torch by right.
    """

    def __init__(self) -> None:
        self._thread = get_ident()
        self._was_there = "torch" in sys.modules
        self._importer = ""

    @property
    def leak(self) -> str:
        """`file:line` of the statement that imported torch, or "" if none did."""
        return self._importer if "torch" in sys.modules else ""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Called by the import system for every module that is not loaded yet."""
        if name == "torch" and not self._importer and get_ident() == self._thread:
            self._importer = _importing_line()
        return None

    def __enter__(self) -> TorchWatch:
        if not self._was_there:
            sys.meta_path.insert(0, self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if not self._was_there:
            sys.meta_path.remove(self)


def _importing_line() -> str:
    frame = sys._getframe(2)
    while frame.f_back is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
