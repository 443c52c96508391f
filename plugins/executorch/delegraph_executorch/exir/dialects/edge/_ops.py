"""Operators of edge programs (`exir/dialects/edge/_ops.py`)."""

from delegraph.aot import EdgeOpOverload, EdgeOpOverloadPacket

__all__ = ["EdgeOpOverload", "EdgeOpOverloadPacket"]
