"""`delegraph view m.pte [b.pte]`: the graph by modules, in a browser, in one HTML file, or in Model Explorer."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.util import find_spec
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from delegraph.cli import data_files

if TYPE_CHECKING:
    from delegraph.devtools.program_view.view import ProgramView

__all__ = ["add_parser", "run"]

_EPILOG = """\
FILE.json is what `delegraph profile --json` prints (time), `delegraph quantize --json` or `delegraph debug --json`
(error), node data of Model Explorer, or {"blocks.0.conv": 0.2}: seconds, bytes or shares of the result by module, by
line or by node. Of two programs one FILE is for both; an overlay that is named twice is for the first and the second.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `view` to the command line."""
    parser = subparsers.add_parser(
        "view",
        help="look at a program's graph, by module, in a browser: what runs where and why, and time, bytes or error",
        epilog=_EPILOG,
    )
    parser.add_argument("program", metavar="m.pte", help="the file; ExecuTorch's are read as well")
    parser.add_argument("after", metavar="b.pte", nargs="?", help="a file to show beside it: quantized, say")
    parser.add_argument(
        "-o", "--output", metavar="view.html", help="write the page, which needs no network, and open nothing"
    )
    parser.add_argument(
        "--overlay",
        action="append",
        default=[],
        metavar="NAME=FILE.json",
        help="colour by time, bytes or error; bytes are known without a file. The last one is shown first",
    )
    parser.add_argument(
        "--explorer",
        action="store_true",
        help="open Model Explorer instead, if it is installed; with -o DIR write its JSON into that folder",
    )
    data_files.add_argument(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    from delegraph.devtools.program_view.view import view

    overlays, start = _overlays(args.overlay, 2 if args.after else 1)
    sources = [args.program, args.after] if args.after else [args.program]
    shown = view(*sources, overlays=overlays, start=start, data_path=args.data)
    if args.explorer:
        return _explore(shown, args.output)
    if args.output:
        shown.save(args.output)
        print(f"written: {args.output}")
    else:
        print(f"open {shown.show()} in a browser, if none has opened it")
    if start:
        _print_largest(shown, start)
    return 0


def _overlays(said: list[str], programs: int) -> tuple[dict[str, list[str]], str]:
    """The files of each overlay, one for each program, and the one that is shown first."""
    from delegraph.devtools.program_view.overlays import OVERLAYS

    files: dict[str, list[str]] = {}
    start = ""
    for text in said:
        start, _, file = text.partition("=")
        if start not in OVERLAYS:
            raise argparse.ArgumentError(None, f"--overlay {text}: it is one of {', '.join(OVERLAYS)}")
        if file:
            files.setdefault(start, []).append(file)
        elif start != "bytes":
            raise argparse.ArgumentError(None, f"--overlay {text}: name the file with the numbers, {start}=FILE.json")
    for name, own in files.items():
        if len(own) > programs:
            raise argparse.ArgumentError(None, f"--overlay {name} is named {len(own)} times, for {programs} programs")
    return {name: own * programs if len(own) == 1 else own for name, own in files.items()}, start


def _print_largest(shown: ProgramView, name: str) -> None:
    from delegraph.devtools.program_view.overlays import OVERLAYS
    from delegraph.tables import Table, print_table

    unit = OVERLAYS[name].unit
    rows = [
        (f"{row.value:.4g}", row.node.label, row.node.module, ", ".join(row.node.lines)) for row in shown.largest(name)
    ]
    print_table(Table(f"the largest by {name}", (unit, "operator", "module", "line"), rows, frozenset({unit})))


def _explore(shown: ProgramView, output: str | None) -> int:
    """Write Model Explorer's files; open them in it unless they were to be written alone."""
    from delegraph.errors import NotSupported

    if output is None and find_spec("model_explorer") is None:
        raise NotSupported(
            "Model Explorer is not installed here: pip install ai-edge-model-explorer, or write its JSON with -o DIR"
        )
    paths = shown.save_for_explorer(output or mkdtemp(prefix="delegraph-view-"))
    graphs, numbers = (list(map(str, own)) for own in (paths[: len(shown.programs)], paths[len(shown.programs) :]))
    if output is not None:
        print("\n".join(f"written: {path}" for path in paths))
        return 0
    words = [",".join(graphs), "--node_data_paths", ",".join(numbers)]
    return subprocess.run([sys.executable, "-m", "model_explorer", *words], check=False).returncode
