"""The kinds in which a result may differ from torch's."""

from __future__ import annotations

from enum import Enum

__all__ = ["Difference"]


class Difference(Enum):
    """How a result differs. The first four are faults, for which there is no excuse; the rest may have a reason."""

    FAILED = "failed"
    """It was taken, and then refused: by the compiler, when it was loaded, or in the run."""
    FORM = "form"
    """Another dtype or shape."""
    INTEGER = "integer"
    """Another integer, truth or place."""
    NAN = "NaN"
    """A number in place of NaN, or NaN in place of one."""
    INFINITY = "infinity"
    """Infinity in place of a finite number or of the other infinity, or the reverse."""
    VALUE = "value"
    """A finite number that is further off than rounding takes it."""
    DENORMAL = "denormal"
    """Another number where both are smaller than the smallest normal one."""
    ZERO = "sign of zero"
    """The zero of the other sign."""

    @property
    def is_fault(self) -> bool:
        """Whether it is never just documented: it is computed another way, or declined."""
        return self in (Difference.FAILED, Difference.FORM, Difference.INTEGER, Difference.NAN)
