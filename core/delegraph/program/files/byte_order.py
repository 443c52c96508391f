"""This machine -> nothing, or the error of one whose numbers begin with their highest byte."""

from __future__ import annotations

import sys

from delegraph.errors import NotSupported

__all__ = ["refuse_big_endian"]


def refuse_big_endian() -> None:
    """Raise `NotSupported` on a big-endian machine: the numbers in files are little-endian, and lie in memory as they
    lie in the file."""
    if sys.byteorder == "big":
        raise NotSupported(
            "this machine is big-endian, and numbers in .pte and .ptd files are little-endian, which Delegraph does not"
            " convert; use a little-endian machine"
        )
