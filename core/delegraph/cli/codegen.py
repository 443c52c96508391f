"""`delegraph codegen kernels.yaml -o my_package/_registration.py`: the module that registers a file's kernels."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delegraph.codegen.check import Registration

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `codegen` to the command line."""
    parser = subparsers.add_parser(
        "codegen", help="generate the module that registers the kernels of a YAML file; needs torch"
    )
    parser.add_argument("kernels", metavar="kernels.yaml", help="operators and their kernels, in ExecuTorch's style")
    parser.add_argument("-o", "--output", required=True, metavar="MODULE.py", help="the module to write")
    parser.add_argument("--library", metavar="NAME", help="the kernel library's name (default: the module's package)")
    parser.add_argument(
        "--import",
        dest="modules",
        nargs="+",
        action="extend",
        default=[],
        metavar="MODULE",
        help="import what defines the custom operators first",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the module is not up to date")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    library = args.library or Path(args.output).resolve().parent.name
    if not library.replace("-", "_").isidentifier():
        raise argparse.ArgumentError(None, f"--library {library!r}: a name has letters, digits, - and _")
    registered = _registrations(args)

    from delegraph.codegen.generate import generated_module

    text = generated_module(registered, library, _source(args.kernels, args.output))
    if args.check:
        return _check(args, text)

    from delegraph.program.files.atomic_file import write_atomically

    write_atomically(args.output, [text.encode()])
    print(f"{args.output}: kernel library {library!r}, {len(registered)} kernels")
    return 0


def _registrations(args: argparse.Namespace) -> list[Registration]:
    yaml = Path(args.kernels).read_bytes()

    from delegraph.codegen.check import registrations
    from delegraph.codegen.operators import import_operators

    sys.path.insert(0, os.getcwd())  # as `python -m` would find the named modules
    import_operators(args.modules)
    return registrations(yaml, args.kernels)


def _check(args: argparse.Namespace, text: str) -> int:
    if os.path.isfile(args.output) and Path(args.output).read_text(encoding="utf-8") == text:
        print(f"{args.output} is up to date")
        return 0
    print(f"{args.output} is not what {args.kernels} gives: run the command without --check", file=sys.stderr)
    return 1


def _source(path: str, output: str) -> str:
    """The YAML file as seen from the module's folder, so that it is the same wherever the command runs."""
    return Path(os.path.relpath(os.path.realpath(path), os.path.dirname(os.path.realpath(output)))).as_posix()
