"""`--bound FILE.py:LINE=SIZE`, as often as needed -> the bounds of sizes that depend on values, by line of code."""

from __future__ import annotations

import argparse

from delegraph.cli import numbers

__all__ = ["add_argument"]


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--bound`; its value is a list of pairs, of which `dict` makes what `delegraph.lower(bounds=…)` takes."""
    parser.add_argument(
        "--bound",
        action="append",
        default=[],
        dest="bounds",
        type=_bound,
        metavar="FILE.py:LINE=SIZE",
        help="the largest size that this line makes of values: 'modeling_vits.py:1351=4096'; may be repeated",
    )


def _bound(text: str) -> tuple[str, int]:
    place, equals, size = text.rpartition("=")
    if not place or not equals:
        raise argparse.ArgumentTypeError(f"{text}: write FILE.py:LINE=SIZE; the error for such a size names its line")
    return place, numbers.positive(size)
