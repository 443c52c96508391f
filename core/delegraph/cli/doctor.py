"""`delegraph doctor [m.pte | --devices]`: the same as `delegraph plugins doctor`, where people look for it first."""

from __future__ import annotations

from delegraph.cli.plugins import add_doctor as add_parser

__all__ = ["add_parser"]
