"""ExecuTorch's `executorch.exir.error`: the errors that code written for it raises and catches; decorators that warn.

What Delegraph raises ahead of time is, at this package's border, also of the kind that ExecuTorch raises there: who
catches `NotImplementedError`, `AssertionError`, `RuntimeError` or torch's `SpecViolationError` catches it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final

from torch._export.verifier import SpecViolationError
from typing_extensions import deprecated

from delegraph.errors import (
    DelegraphError,
    InvalidPartition,
    LoweringError,
    PluginNotFound,
    PreprocessError,
    VerificationError,
)


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


# ---- ours, and ExecuTorch's too --------------------------------------------------------------------


class BackendNotFound(PluginNotFound, NotImplementedError):
    """No class and no installed plug-in has the backend id."""


class PreprocessFailed(PreprocessError, RuntimeError):
    """A backend's `preprocess` raised."""


class PartitionRefused(InvalidPartition, AssertionError, RuntimeError):
    """What a partitioner did cannot be cut out: ExecuTorch asserts some of it, and raises RuntimeError for the rest."""


class DialectViolated(VerificationError, SpecViolationError):
    """A node breaks a rule of its dialect."""


_KINDS: Final[dict[type[DelegraphError], type[DelegraphError]]] = {
    PluginNotFound: BackendNotFound,
    PreprocessError: PreprocessFailed,
    InvalidPartition: PartitionRefused,
    VerificationError: DialectViolated,
}


@contextmanager
def executorchs_errors() -> Iterator[None]:
    """Within, and for a function that this decorates: an error of a kind listed above is raised as that kind."""
    try:
        yield
    except tuple(_KINDS) as error:
        kind = next((also for ours, also in _KINDS.items() if type(error) is ours), None)
        if kind is None:  # a class of its own, which the caller may know
            raise
        also = kind.__new__(kind, str(error))
        also.__dict__.update(error.__dict__)
        raise also from error.__cause__


class ExperimentalWarning(DeprecationWarning):
    """What calls of an experimental name warn with; hidden by default where deprecations are."""


class experimental(deprecated):
    """Marks a class, function or method as experimental: calling it warns."""

    def __init__(
        self, message: str, /, *, category: type[Warning] | None = ExperimentalWarning, stacklevel: int = 1
    ) -> None:
        super().__init__(message, category=category, stacklevel=stacklevel)
