"""`python -m delegraph_testkit.numerics NAME …`: sweep a plug-in, and tell what breaks the numeric contract."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from delegraph.errors import DelegraphError
from delegraph_testkit.claims import Claims
from delegraph_testkit.numerics.contract import breaches
from delegraph_testkit.numerics.edges import DTYPES
from delegraph_testkit.numerics.report import report
from delegraph_testkit.numerics.sweep import Cell, sweep
from delegraph_testkit.operator_samples import entries
from delegraph_testkit.subject import Kind, subjects_called

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep the backend or kernel library called so; 0 without a breach, 1 with one, 2 for wrong usage."""
    args = _parser().parse_args(arguments)
    try:
        claims = Claims.read(args.claims) if args.claims else None
        subjects = [s for s in subjects_called(args.name, claims) if s.kind in (Kind.BACKEND, Kind.KERNELS)]
    except DelegraphError as error:
        print(error, file=sys.stderr)
        return 2
    failed = False
    for subject in subjects:
        cells: dict[tuple[str, str], Cell] = {}
        for entry in (name for name in entries() if args.only in name):
            for dtype in args.dtypes:
                cell = cells[entry, dtype] = sweep([subject], entry, dtype)[subject.name]
                for told in breaches(subject.claims, entry, dtype, cell):
                    failed = True
                    print(told, file=sys.stderr, flush=True)
        text = "\n".join(report({f"{subject.kind.value} {subject.name}": (subject.claims, cells)}))
        print(text) if args.report is None else args.report.write_text(text + "\n", "utf-8")
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m delegraph_testkit.numerics", description="Sweep a plug-in.")
    parser.add_argument("name", help="a backend or a kernel library that is installed")
    parser.add_argument("--only", default="", help="only operators of torch's database whose name contains this")
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, choices=DTYPES, metavar="DTYPE", help="default: all")
    parser.add_argument("--claims", type=Path, help="a conformance.toml (default: beside the plug-in's __init__.py)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report there, in Markdown")
    return parser


if __name__ == "__main__":
    sys.exit(main())
