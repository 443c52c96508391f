"""`python -m benchmarks.fallback [--models a,b] [--backend cpu] [--into page.md]`: the bytes that fall-backs cost.

Each model is lowered onto the backend, with a fall-back on kernels and without; the file's bytes are compared. The
table goes between the marks `<!-- fallback -->` of the page.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import delegraph
from benchmarks.models import MODELS, make
from benchmarks.pages import check_marks, markdown, put

HEAD = ("model", "weights", "file without", "fall-backs more", "of the file", "left out")


def row(name: str, backend: str) -> list[str]:
    """The bytes of one model."""
    model, args = make(name)
    plain = len(bytes(delegraph.lower(model, args, backends=[backend])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", delegraph.errors.FallbackWarning)
        lowered = delegraph.lower(model, args, backends=[backend], fallback="kernels")
    more = len(bytes(lowered)) - plain
    weights = sum(parameter.nbytes for parameter in model.parameters())
    left_out = sum(bool(entry.reason) for entry in lowered.report.fallbacks)
    numbers = [f"{weights:,}", f"{plain:,}", f"{more:,}", f"{more / plain:.1%}"]
    return [name, *numbers, f"{left_out} of {len(lowered.report.fallbacks)}"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fallback", description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--into", type=Path)
    arguments = parser.parse_args()
    check_marks(arguments.into, "fallback")
    table = markdown(HEAD, [row(name, arguments.backend) for name in arguments.models.split(",") if name])
    print(table)
    if arguments.into is not None:
        put(arguments.into, "fallback", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
