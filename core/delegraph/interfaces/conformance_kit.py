"""A plug-in's name -> whether its author's claims hold; `delegraph plugins check NAME --run` calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["ConformanceKit"]


class ConformanceKit(Protocol):
    """The object behind a `delegraph.conformance_kits` entry point."""

    def __call__(self, name: str, arguments: Sequence[str], /) -> int:
        """Prove the plug-ins installed as `name` (an entry point, its id or a distribution), and print the results.

        `arguments` are the words after `--run`. Returns the command's exit code: 0 if nothing counts against the
        plug-in, 1 if something does, 2 for wrong usage.
        """
