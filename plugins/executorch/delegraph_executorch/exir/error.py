"""ExecuTorch's `executorch.exir.error`: the errors that code written for it raises and catches."""

from __future__ import annotations

from enum import Enum

from delegraph.errors import LoweringError

__all__ = ["ExportError", "ExportErrorType", "InternalError", "internal_assert"]


class ExportErrorType(Enum):
    """What kind of thing was wrong with what a user gave."""

    INVALID_INPUT_TYPE = 1
    INVALID_OUTPUT_TYPE = 2
    VIOLATION_OF_SPEC = 3
    NOT_SUPPORTED = 4
    MISSING_PROPERTY = 5
    UNINITIALIZED = 6


class InternalError(LoweringError):
    """What a pass or a backend takes for granted does not hold."""


class ExportError(LoweringError):
    """What a user gave cannot be lowered."""

    def __init__(self, error_code: ExportErrorType, message: str) -> None:
        super().__init__(f"[{error_code}]: {message}")


def internal_assert(pred: bool, assert_msg: str) -> None:
    """Raise `InternalError(assert_msg)` unless `pred`."""
    if not pred:
        raise InternalError(assert_msg)
