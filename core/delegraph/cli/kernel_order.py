"""`--kernels portable,aten --kernels aten::mm.out=aten` -> the order in which kernel libraries are preferred."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

__all__ = ["add_argument", "kernel_order"]


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--kernels`, which may be given several times."""
    parser.add_argument(
        "--kernels",
        action="append",
        default=[],
        metavar="[OP=]NAMES",
        help="kernel libraries in order of preference, comma-separated; with OP=, for that operator alone:"
        " --kernels portable --kernels aten::mm.out=aten,portable",
    )


def kernel_order(texts: Sequence[str]) -> list[str] | dict[str, list[str]] | None:
    """The order as `delegraph.load(kernels=…)` takes it; None if `texts` is empty."""
    if not texts:
        return None
    orders = {}
    for text in texts:
        op, equals, names = text.rpartition("=")
        orders[op if equals else "*"] = [name.strip() for name in names.split(",")]
    return orders["*"] if set(orders) == {"*"} else orders
