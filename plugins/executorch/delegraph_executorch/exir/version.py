"""The version of the program's schema (ExecuTorch `exir/version.py`)."""

__all__ = ["EXECUTORCH_SCHEMA_VERSION"]

EXECUTORCH_SCHEMA_VERSION = 0
