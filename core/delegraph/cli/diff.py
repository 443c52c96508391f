"""`delegraph diff a.pte b.pte`: how two programs differ, in tables, JSON and the exit code. Runs nothing of them."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from delegraph.cli import data_files
from delegraph.errors import DelegraphError

if TYPE_CHECKING:
    from delegraph.program.schema import Program

__all__ = ["add_parser", "run"]

_EPILOG = """\
Exit codes: 0, the programs are equal, but for lines of the model's code that have moved; 1, they differ; 2, one of them
cannot be read, or the command line is wrong.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `diff` to the command line."""
    parser = subparsers.add_parser(
        "diff",
        help="compare two programs: methods, inputs, operators, delegates, weights, memory, sizes",
        epilog=_EPILOG,
    )
    parser.add_argument("before", metavar="a.pte", help="a file; ExecuTorch's are read as well")
    parser.add_argument("after", metavar="b.pte", help="the file that is compared with it")
    data_files.add_argument(parser)
    parser.add_argument("--after-data", action="append", metavar="n.ptd", help="those of b.pte")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    from delegraph.devtools.program_diff.comparing import diff_programs
    from delegraph.tables import print_table

    try:
        difference = diff_programs(
            _read(args.before), _read(args.after), data_path=args.data or (), after_data_path=args.after_data or ()
        )
    except (DelegraphError, OSError) as error:
        if args.traceback:
            raise
        print(f"delegraph diff: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(difference.to_json(), indent=2))
    elif not difference:
        print(difference)
    else:
        for table in difference.tables():
            print_table(table)
    return 1 if difference else 0


def _read(path: str) -> Program:
    """The program in a file. Raises `AccessFailed`, and `InvalidProgram` with the file's name."""
    from delegraph.errors import restated
    from delegraph.program.files.deserialize import deserialize_program
    from delegraph.runtime.data_loader import open_data_loader

    try:
        return deserialize_program(open_data_loader(path))
    except DelegraphError as error:
        raise (error if path in str(error) else restated(error, f"{path}: {error}")) from error
