"""`delegraph compare MODEL --backends cpu --backends openvino --recipe float --recipe int8`: which is fastest here."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from delegraph.cli import backend_options, bounds, device_arguments, numbers

if TYPE_CHECKING:
    from delegraph.comparison.result import Comparison

__all__ = ["add_parser", "run"]

_EPILOG = """\
MODEL and the calibration data are what `delegraph quantize` takes. Each pair of --backends and --recipe is lowered and
run on the model's example inputs, in processes of its own, all of them in turns. Exit codes: 0, there is a table (and a
file, if --output asked for one); 1, no candidate could be run, or none is as near to the model as --min-sqnr asks; 2,
the command line is wrong.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `compare` to the command line."""
    parser = subparsers.add_parser(
        "compare", help="which backends and recipe are fastest for a model here; needs torch", epilog=_EPILOG
    )
    parser.add_argument("model", metavar="MODEL", help="MODEL.py:factory, or a .pt2")
    parser.add_argument(
        "--backends",
        action="append",
        required=True,
        metavar="NAMES",
        help="one candidate: its backends in order of priority, 'npu{optimize=size},cpu', or '' for kernels alone;"
        " once for each candidate",
    )
    parser.add_argument(
        "--recipe",
        action="append",
        metavar="RECIPE",
        help="how to quantize, as for `delegraph quantize`; once for each (default: float, the model as it is)",
    )
    parser.add_argument("--data", metavar="calib.npz", help="typical inputs for recipes: a .npz, or DATA.py:function")
    parser.add_argument("-o", "--output", metavar="m.pte", help="write the fastest one's program there")
    parser.add_argument(
        "--min-sqnr", type=numbers.decibels, metavar="DB", help="of those whose outputs are no further from the model's"
    )
    parser.add_argument(
        "--rounds", type=numbers.positive, default=5, metavar="N", help="turns that each candidate gets (default: 5)"
    )
    parser.add_argument(
        "--seconds", type=numbers.seconds, default=0.5, metavar="S", help="about how long a turn takes (default: 0.5)"
    )
    parser.add_argument(
        "--timeout",
        type=numbers.seconds,
        default=600.0,
        metavar="S",
        help="leave a candidate out whose process takes longer, to load and to run (default: 600)",
    )
    backend_options.add_argument(parser)
    bounds.add_argument(parser)
    device_arguments.add_host(parser, "run the candidates")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    from delegraph.cli.progress import shown_steps

    with shown_steps() as progress:
        comparison = _compare(args, progress)
    if args.json:
        print(json.dumps(comparison.to_json(), indent=2, allow_nan=False))
    elif any(candidate.times for candidate in comparison.candidates):
        comparison.print()
    fastest = comparison.fastest(args.min_sqnr)
    if args.output:
        assert fastest.lowered is not None
        fastest.lowered.save(args.output)
        if not args.json:
            print(f"{args.output}: {fastest.name}; {os.path.getsize(args.output):,} bytes")
    return 0


def _compare(args: argparse.Namespace, progress: Callable[[str], object]) -> Comparison:
    from delegraph.cli.calibration import batches_from
    from delegraph.cli.factory import field_by_method, models_from
    from delegraph.comparison.compare import compare

    models = models_from(args.model)
    return compare(
        field_by_method(models, "model"),
        field_by_method(models, "args"),
        field_by_method(models, "kwargs"),
        backends=args.backends,
        recipes=args.recipe or ["float"],
        calibration_data=batches_from(args.data, models),
        dynamic_shapes=field_by_method(models, "dynamic_shapes"),
        bounds=dict(args.bounds),
        backend_options=backend_options.parsed(args.backend_options),
        rounds=args.rounds,
        seconds=args.seconds,
        timeout=args.timeout,
        device=device_arguments.device(args, args.host) if args.host else None,
        progress=progress,
    )
