"""The program that a command runs, and the inputs that it gets: the arguments of `delegraph run` and `profile`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from delegraph.cli import backend_options, data_files, integrity, kernel_order, numbers

if TYPE_CHECKING:
    from delegraph.program.limits import Limits
    from delegraph.runtime.method_meta import MethodMeta
    from delegraph.runtime.program import Program

__all__ = ["add_arguments", "add_loading", "inputs_of", "limits", "main_method", "open_program"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the method, its inputs, and how the program is loaded."""
    parser.add_argument("--method", help="which method (default: forward, or the only one; of a .bpte all)")
    parser.add_argument(
        "--inputs",
        help="random (default; bytes are pixels, wider integers 0 or 1, to be indices or masks), zeros, or files:"
        " a.npy,b.npy in the order of the inputs, or in.npz with the inputs in their order",
    )
    parser.add_argument("--seed", type=numbers.count, help="of random inputs (default: 0)")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="[INDEX=]SIZES",
        help="sizes of a dynamic input, such as 0=1,16; without INDEX, of all dynamic inputs (default: the largest)",
    )
    add_loading(parser)


def add_loading(parser: argparse.ArgumentParser) -> None:
    """Add how the program is loaded, and for how long it may run."""
    parser.add_argument(
        "--timeout",
        type=numbers.seconds,
        metavar="SECONDS",
        help="end an execution that takes longer (default: an hour)",
    )
    parser.add_argument(
        "--cache",
        metavar="DIR",
        help="keep what backends compile at load in this folder, for the next load (default: DELEGRAPH_CACHE, or none)",
    )
    kernel_order.add_argument(parser)
    backend_options.add_argument(parser)
    data_files.add_argument(parser)
    integrity.add_arguments(parser)


def open_program(args: argparse.Namespace, check: bool | None = None) -> Program:
    """The program; `check` has what kernels and backends do to their arguments watched."""
    from delegraph.runtime.program import Program
    from delegraph.runtime.resolution.environment import Environment

    environment = Environment(
        kernels=kernel_order.kernel_order(args.kernels), limits=limits(args), check=check, cache=args.cache
    )
    return Program.load(
        args.program,
        data_path=args.data,
        environment=environment,
        integrity=args.integrity or "lazy",
        trusted_keys=args.trusted_key,
    )


def limits(args: argparse.Namespace) -> Limits:
    """The limits of each execution."""
    from delegraph.program.limits import DEFAULT_LIMITS, Limits

    return DEFAULT_LIMITS if args.timeout is None else Limits(seconds=args.timeout)


def main_method(args: argparse.Namespace, program: Program) -> str:
    """The method that was named, or the only one, or forward."""
    names = program.method_names
    return args.method or (next(iter(names)) if len(names) == 1 else "forward")


def inputs_of(args: argparse.Namespace, meta: MethodMeta) -> list[object]:
    """The method's inputs, made up or read. Raises `argparse.ArgumentError`."""
    from delegraph.cli.inputs import make_inputs

    return make_inputs(meta, args.inputs or "random", args.seed or 0, args.shape)
