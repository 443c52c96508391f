"""`delegraph profile m.pte`: where the time of a program goes, by module, by line and by node, through delegates."""

from __future__ import annotations

import argparse
import json

from delegraph.cli import backend_options, numbers, program_arguments

__all__ = ["add_parser", "run"]

_EPILOG = """\
It runs the program without tracing first, to tell what tracing costs. A delegate's time is divided among its nodes as
its backend reports them; a delegate whose backend reports nothing is one node. Open a trace at https://ui.perfetto.dev.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `profile` to the command line."""
    parser = subparsers.add_parser(
        "profile",
        help="run a program, and tell where its time goes: by module and line of the model, in delegates too",
        epilog=_EPILOG,
    )
    parser.add_argument("program", metavar="m.pte")
    program_arguments.add_arguments(parser)
    parser.add_argument(
        "--seconds",
        type=numbers.seconds,
        default=10.0,
        metavar="S",
        help="run for no longer than this, but twice with and without tracing; it ends sooner when the times are stable"
        " (default: 10)",
    )
    parser.add_argument(
        "--warmup", type=numbers.count, metavar="N", help="executions that do not count (default: chosen)"
    )
    parser.add_argument("--repeat", type=numbers.positive, metavar="N", help="executions that count (default: chosen)")
    parser.add_argument(
        "--flame", metavar="flame.svg", help="draw a flame graph: modules, lines in them, nodes in these"
    )
    parser.add_argument("--perfetto", metavar="trace.json", help="write the last runs as a trace for ui.perfetto.dev")
    parser.add_argument("--json", action="store_true", help="print JSON: all modules, lines and nodes")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    from delegraph.devtools.profiling.measuring import profile

    options = backend_options.parsed(args.backend_options)
    program = program_arguments.open_program(args)
    method = program_arguments.main_method(args, program)
    profiled = profile(
        program,
        program_arguments.inputs_of(args, program.metadata(method)),
        method=method,
        seconds=args.seconds,
        warmup=args.warmup,
        repeat=args.repeat,
        backend_options=options,
    )
    written = {args.flame: profiled.save_flame_graph, args.perfetto: profiled.save_trace}
    for path, save in written.items():
        if path is not None:
            save(path)
    if args.json:
        print(json.dumps(profiled.to_json(), indent=2))
        return 0
    profiled.print()
    for path in filter(None, written):
        print(f"written: {path}")
    return 0
