"""`delegraph map m.pte in.parquet out.parquet`: call a program on each row; go on where a run stopped."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from delegraph.cli import backend_options, numbers, program_arguments
from delegraph.errors import InvalidArgument, restated

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from delegraph.mapping.map_table import MappedTable, MapProgress
    from delegraph.runtime.module import Module

__all__ = ["add_parser", "run"]

_EPILOG = """\
Results are written in parts, into a folder beside the output, and joined when all are there. The same command goes on
where a run was ended, whether by Ctrl-C, a signal or a fault; no part is computed twice. Exit codes: 0, the output is
whole; 1, it is not; 2, the command line is wrong; 3, the output is whole, and rows of it have an error in the column
`error` instead of results.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `map` to the command line."""
    parser = subparsers.add_parser("map", help="call a program on each row of a table, without torch", epilog=_EPILOG)
    parser.add_argument("program", metavar="m.pte")
    parser.add_argument(
        "source",
        metavar="INPUT",
        help="a .parquet, .arrow, .feather, .csv or .jsonl file; a folder of such files; or any other folder,"
        " each file of which is a row with its `path`, for --function to read",
    )
    parser.add_argument("target", metavar="OUTPUT", help="a .parquet, .arrow, .feather, .csv or .jsonl file")
    parser.add_argument(
        "--method",
        action="append",
        metavar="NAME",
        help="which method is called on each row; once for each (default: forward, or the only one)",
    )
    for option, what in (("input", "an input takes"), ("output", "an output gives")):
        parser.add_argument(
            f"--{option}",
            action="append",
            default=[],
            metavar="COLUMN=NAME",
            help=f"the column that {what}, where it has another name; of several methods, COLUMN=METHOD.NAME",
        )
    parser.add_argument(
        "--function",
        metavar="FILE.py:NAME",
        help="a function of the columns of some rows that gives the inputs of the program",
    )
    parser.add_argument(
        "--finish",
        metavar="FILE.py:NAME",
        help="a function of the outputs of some rows that gives the columns to write",
    )
    parser.add_argument(
        "--keep", metavar="COLUMNS", help="of the input's columns, those that the output has, a,b or '' (default: all)"
    )
    parser.add_argument(
        "--batch-size",
        type=numbers.positive,
        metavar="N",
        help="rows of a call (default: 64, or what the method takes)",
    )
    parser.add_argument(
        "--on-error",
        choices=("stop", "record"),
        default="stop",
        help="of a row that fails: stop there, or say what is wrong in a column `error` and go on (default: stop)",
    )
    parser.add_argument(
        "--workers", type=numbers.positive, default=1, metavar="N", help="processes, or actors of Ray (default: 1)"
    )
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="on this cluster of Ray, or 'auto'; needs delegraph-ray here and on its nodes"
    )
    parser.add_argument("--part-rows", type=numbers.positive, default=1024, metavar="N", help="rows of a part (1024)")
    parser.add_argument("--restart", action="store_true", help="forget what an earlier run has done")
    program_arguments.add_loading(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    from delegraph.cli.source_files import functions_from

    columns = {option: _columns(getattr(args, option)) for option in ("input", "output")}
    specs = {option: spec for option in ("function", "finish") if (spec := getattr(args, option))}
    functions = dict(zip(specs, functions_from(specs.values()), strict=True))
    try:
        with _workers(args, [*functions.values()]) as workers, _shown() as progress:
            mapped = _mapped(args, columns, functions, workers, progress)
    except KeyboardInterrupt:
        print("stopped; the same command goes on where this one was", file=sys.stderr)
        return 130
    except InvalidArgument as error:  # of a row, or of what the command says before anything is done
        if args.on_error == "record" or not os.path.isdir(f"{args.target}.parts"):
            raise
        words = "what is done is kept, and the same command goes on; --on-error record passes over rows that fail"
        raise restated(error, f"{error}\n  {words}") from error
    print(_told(mapped))
    return 3 if mapped.failed else 0


def _mapped(
    args: argparse.Namespace,
    columns: dict[str, dict[str, str]],
    functions: dict[str, Callable[..., Any]],
    workers: int | Executor,
    progress: Callable[[MapProgress], object] | None,
) -> MappedTable:
    from delegraph.mapping.map_table import map_table

    return map_table(
        _module(args),
        args.source,
        args.target,
        methods=args.method or (),
        inputs=columns["input"],
        outputs=columns["output"],
        batch_size=args.batch_size,
        prepare=functions.get("function"),
        finish=functions.get("finish"),
        keep=None if args.keep is None else [name for name in args.keep.split(",") if name],
        on_error=args.on_error,
        workers=workers,
        part_rows=args.part_rows,
        restart=args.restart,
        progress=progress,
    )


def _columns(texts: list[str]) -> dict[str, str]:
    """Columns by name. Raises `ArgumentError` where a name has two."""
    columns: dict[str, str] = {}
    for name, column in map(_column, texts):
        if columns.setdefault(name, column) != column:
            raise argparse.ArgumentError(None, f"{name!r} has two columns: {columns[name]!r} and {column!r}")
    return columns


def _column(text: str) -> tuple[str, str]:
    """`column=name` as the name's column. Raises `ArgumentError`."""
    column, separator, name = text.partition("=")
    if not (separator and column and name):
        raise argparse.ArgumentError(None, f"{text!r} is not COLUMN=NAME")
    return name, column


def _module(args: argparse.Namespace) -> Module:
    from delegraph.runtime.module import Module

    program = program_arguments.open_program(args)
    names = program.method_names
    main = args.method[0] if args.method else next(iter(names)) if len(names) == 1 else "forward"
    return Module(program, main, backend_options=backend_options.parsed(args.backend_options))


def _workers(args: argparse.Namespace, functions: list[Callable[..., Any]]) -> AbstractContextManager[int | Executor]:
    """Where parts are computed. Raises `NotInstalled` without the package for it."""
    if args.ray is None:
        return nullcontext(args.workers)
    import importlib

    from delegraph.errors import NotInstalled

    try:
        ray = importlib.import_module("delegraph_ray")
    except ModuleNotFoundError as error:
        if error.name not in ("delegraph_ray", "ray"):
            raise
        raise NotInstalled(
            f"--ray needs delegraph-ray, and {error.name} is not installed here: pip install delegraph-ray, here and on"
            " the nodes of the cluster",
            name=error.name,
        ) from error
    executor: Executor = ray.RayExecutor(args.ray, args.workers, by_value=functions)
    return executor


@contextmanager
def _shown() -> Iterator[Callable[[MapProgress], object] | None]:
    """Somebody to be told how far the run is: a bar on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = (TextColumn("rows"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*shown, console=Console(stderr=True)) as bar:
        task = bar.add_task("rows", total=None)
        yield lambda progress: bar.update(task, completed=progress.rows, total=progress.total)


def _told(mapped: MappedTable) -> str:
    computed = mapped.rows - mapped.resumed
    words = [f"{mapped.path}: {mapped.rows:,} rows, {computed:,} of them computed in {mapped.seconds:,.1f} s"]
    if mapped.resumed:
        words.append(f"{mapped.resumed:,} were there from an earlier run")
    if mapped.failed:
        words.append(f"{mapped.failed:,} have an error")
    return "; ".join(words)
