"""Element types (ExecuTorch `exir/scalar_type.py`)."""

from delegraph.program.schema import ScalarType

__all__ = ["ScalarType"]
