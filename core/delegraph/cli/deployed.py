"""`python app.pyz m --inputs x.npy`: the command line of a deployable of `delegraph select`. On NumPy."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from delegraph.cli import data_files
from delegraph.cli.inputs import make_inputs, save_outputs
from delegraph.devtools.selective_build.deployed import Deployed
from delegraph.errors import DelegraphError

__all__ = ["main"]


def main(deployed: Deployed, argv: Sequence[str] | None = None) -> int:
    """Run a method of a program once and print its outputs; returns the exit code, as `delegraph.cli.main` does."""
    parser = _parser(deployed)
    args = parser.parse_args(argv)
    try:
        _run(deployed, args)
    except argparse.ArgumentError as error:
        parser.error(str(error))
    except (DelegraphError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


def _parser(deployed: Deployed) -> argparse.ArgumentParser:
    here = f"one of {', '.join(deployed.programs)}, or " if deployed.programs else ""
    parser = argparse.ArgumentParser(description="Run a program with the kernels and backends that were put in here.")
    parser.add_argument("program", nargs="?", default="", help=f"{here}the path of a .pte")
    parser.add_argument("--method", default="forward", help="which method (default: forward)")
    parser.add_argument("--inputs", default="random", help="random, zeros, or files: a.npy,b.npy or in.npz")
    parser.add_argument("--seed", type=int, default=0, help="of random inputs (default: 0)")
    parser.add_argument("--shape", action="append", default=[], metavar="[INDEX=]SIZES", help="of a dynamic input")
    data_files.add_argument(parser)
    parser.add_argument("--output", metavar="out.npz", help="write the outputs there, as output_0, output_1, ...")
    return parser


def _run(deployed: Deployed, args: argparse.Namespace) -> None:
    method = deployed.open(args.program, args.data).load_method(args.method)
    outputs = method.execute(make_inputs(method.metadata, args.inputs, args.seed, args.shape))
    for index, value in enumerate(outputs):
        print(f"output {index}: {_text(value)}")
    if args.output:
        save_outputs(args.output, outputs)


def _text(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    return f"{value.dtype.name}{list(value.shape)}\n{np.array2string(value, threshold=8, edgeitems=2)}"
