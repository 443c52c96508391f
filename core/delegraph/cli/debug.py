"""`delegraph debug MODEL.py:factory --backends npu`: the smallest part of a model that a backend computes wrongly.

`delegraph debug m.pte --against MODEL.py:factory`: the layers at which a program leaves torch.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from delegraph.cli import backend_options, bounds, data_files, numbers
from delegraph.errors import InvalidArgument

if TYPE_CHECKING:
    from delegraph.debugging.layer_gaps import NumericGap
    from delegraph.debugging.result import Debugged

__all__ = ["add_parser", "run"]

_EPILOG = """\
MODEL is what `delegraph lower` takes; it is run on its example inputs. Each delegate is lowered, loaded and run by
itself, in a process that may die or hang, and compared with torch; if all are right, so is the whole. Of what fails the
smallest part that does is written as a script into a folder below --out: repro-BACKEND-OPERATOR/repro.py.

With --against, MODEL is a .pte: it is run as it is, and each of its layers is compared with the model's. Exit codes: 0,
all is right; 1, something is not, or the model cannot be tried; 2, the command line is wrong.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `debug` to the command line."""
    parser = subparsers.add_parser(
        "debug",
        help="the smallest part of a model that a backend computes wrongly, refuses or dies of; needs torch",
        epilog=_EPILOG,
    )
    parser.add_argument("model", metavar="MODEL", help="MODEL.py:factory, or a .pt2; with --against a .pte")
    parser.add_argument(
        "--against",
        metavar="MODEL",
        help="the model that the .pte was lowered from: tell at which of its layers wrong numbers begin",
    )
    parser.add_argument(
        "--backends",
        metavar="NAMES",
        help="in order of priority, with options: 'npu{optimize=size},cpu'; '' for kernels alone (with --against, by"
        " default those of the .pte)",
    )
    parser.add_argument(
        "--out", default=".", metavar="DIR", help="where to make a folder for each fault (default: here)"
    )
    parser.add_argument(
        "--tolerance",
        type=numbers.share,
        metavar="SHARE",
        help="how far a result may be off, as a share of its largest value (default: 1e-4 for float32, 1e-2 for"
        " float16, 5e-2 for bfloat16, 0 for integers; 0.02 for all of a quantized model)",
    )
    parser.add_argument(
        "--timeout",
        type=numbers.seconds,
        default=120.0,
        metavar="S",
        help="a trial that takes longer is a fault (default: 120)",
    )
    backend_options.add_argument(parser)
    bounds.add_argument(parser)
    data_files.add_argument(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    told = _debug(args) if args.against is None else _gap(args)
    print(json.dumps(told.to_json(), indent=2, allow_nan=False) if args.json else told)
    return int(bool(told))


def _gap(args: argparse.Namespace) -> NumericGap:
    from delegraph.cli.factory import field_by_method, models_from
    from delegraph.cli.progress import shown_steps
    from delegraph.debugging.numeric_gap import numeric_gap
    from delegraph.plugins.plugin_spec import parse_plugins

    models = models_from(args.against)
    with shown_steps() as progress:
        return numeric_gap(
            args.model,
            field_by_method(models, "model"),
            field_by_method(models, "args"),
            field_by_method(models, "kwargs"),
            backends=None if args.backends is None else parse_plugins(args.backends),
            dynamic_shapes=field_by_method(models, "dynamic_shapes"),
            bounds=dict(args.bounds),
            backend_options=backend_options.parsed(args.backend_options),
            data_path=args.data,
            tolerance=args.tolerance,
            progress=progress,
        )


def _debug(args: argparse.Namespace) -> Debugged:
    if args.backends is None:
        raise InvalidArgument("name the backends to try: --backends npu,cpu; or, for a .pte, the model: --against")
    from delegraph.cli.factory import field_by_method, models_from
    from delegraph.cli.progress import shown_steps
    from delegraph.debugging.debug import debug
    from delegraph.plugins.plugin_spec import parse_plugins

    models = models_from(args.model)
    with shown_steps() as progress:
        return debug(
            field_by_method(models, "model"),
            field_by_method(models, "args"),
            field_by_method(models, "kwargs"),
            backends=parse_plugins(args.backends),
            dynamic_shapes=field_by_method(models, "dynamic_shapes"),
            bounds=dict(args.bounds),
            backend_options=backend_options.parsed(args.backend_options),
            folder=args.out,
            tolerance=args.tolerance,
            timeout=args.timeout,
            progress=progress,
        )
