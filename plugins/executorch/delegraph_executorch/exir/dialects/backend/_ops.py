"""Operators that backends' passes add (`exir/dialects/backend/_ops.py`)."""

from delegraph.aot import BackendOpOverload, BackendOpOverloadPacket

__all__ = ["BackendOpOverload", "BackendOpOverloadPacket"]
