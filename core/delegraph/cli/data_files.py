"""`--data base.ptd --data adapter.ptd`: the files with a program's external weights, as commands take them."""

from __future__ import annotations

import argparse

__all__ = ["add_argument"]


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--data`, a list of paths or None."""
    parser.add_argument(
        "--data",
        action="append",
        metavar="m.ptd",
        help="the program's external weights; once for each file: where two have the same key, the later one counts",
    )
