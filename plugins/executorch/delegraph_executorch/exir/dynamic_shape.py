"""How memory of dynamic shapes is planned (ExecuTorch `exir/dynamic_shape.py`)."""

from enum import IntEnum

__all__ = ["DynamicMemoryPlanningMode"]


class DynamicMemoryPlanningMode(IntEnum):
    """By upper bounds, or by symbolic sizes (which no runtime has)."""

    UPPER_BOUND = 0
    SYMBOLIC = 1
