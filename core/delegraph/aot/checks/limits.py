"""Planned methods -> nothing, or warnings: what asks for more memory than a load allows by itself."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from delegraph.errors import LimitExceeded, LimitWarning
from delegraph.program.limits import DEFAULT_LIMITS
from delegraph.program.schema import ExecutionPlan

__all__ = ["warn_of_limits"]


def warn_of_limits(plans: Iterable[ExecutionPlan]) -> None:
    """A `LimitWarning` for each of `plans` that `load` refuses, unless it is told to allow more."""
    for plan in plans:
        try:
            DEFAULT_LIMITS.require_planned(plan)
            DEFAULT_LIMITS.require(plan)
        except LimitExceeded as error:
            warnings.warn(
                f"{error}\n  or lower it for smaller sizes: a smaller bound of a dynamic dim, or fewer outputs",
                LimitWarning,
                stacklevel=2,
            )
