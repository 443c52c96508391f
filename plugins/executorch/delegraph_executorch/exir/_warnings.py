"""Decorators for names that may change (ExecuTorch `exir/_warnings.py`)."""

from __future__ import annotations

from typing_extensions import deprecated

__all__ = ["ExperimentalWarning", "deprecated", "experimental"]


class ExperimentalWarning(DeprecationWarning):
    """What calls of an experimental name warn with; hidden by default where deprecations are."""


class experimental(deprecated):
    """Marks a class, function or method as experimental: calling it warns."""

    def __init__(
        self, message: str, /, *, category: type[Warning] | None = ExperimentalWarning, stacklevel: int = 1
    ) -> None:
        super().__init__(message, category=category, stacklevel=stacklevel)
