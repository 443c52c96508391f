"""Types of what emission tells about a program (ExecuTorch `exir/emit/_emitter.py`)."""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["_DelegateDebugIdentifierMap"]

_DelegateDebugIdentifierMap: TypeAlias = dict[int, tuple[int, ...]] | dict[str, tuple[int, ...]]
"""A delegate's own instruction ids, to debug handles."""
