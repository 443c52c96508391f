"""`delegraph quantize MODEL --data calib.npz --recipe int8 --backends … -o m.pt2`: after training, with a report."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from delegraph.cli import bounds, numbers

if TYPE_CHECKING:
    from delegraph.aot.quantized_model import QuantizedModel
    from delegraph.cli.progress import Progress
    from delegraph.plugins.plugin_spec import PluginSpec

__all__ = ["add_parser", "run"]

_EPILOG = """\
MODEL is what `delegraph lower` takes: a function that gives a model, or the .pt2 of torch.export.save. The arrays of a
.npz are the inputs, in order or by name, each with all samples one after the other; a batch is as many of them as the
model's example input has, and a single number goes with each. DATA.py:function gives batches as `delegraph.quantize`
takes them.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `quantize` to the command line."""
    parser = subparsers.add_parser("quantize", help="quantize a model after training; needs torchao", epilog=_EPILOG)
    parser.add_argument("model", metavar="MODEL", help="MODEL.py:factory, or a .pt2")
    parser.add_argument(
        "-o", "--output", required=True, metavar="m.pt2|m.pte", help="the quantized program; a .pte is lowered as well"
    )
    parser.add_argument("--data", metavar="calib.npz", help="typical inputs: a .npz, or DATA.py:function")
    parser.add_argument(
        "--recipe",
        default="int8",
        help="int8 (default), int8_per_tensor, int8_dynamic, int8_weight_only, int4_weight_only{group_size=64},"
        " int8_dynamic_int4_weight, int16x8",
    )
    parser.add_argument(
        "--rule",
        action="append",
        default=[],
        metavar="PATTERN=RECIPE",
        help="another recipe for modules of this name: 'encoder.*=float'; may be repeated, the first that fits decides",
    )
    parser.add_argument(
        "--backends", default="", metavar="NAMES", help="whose quantizers to ask, and for a .pte whom to lower onto"
    )
    parser.add_argument(
        "--keep-float", type=numbers.count, default=0, metavar="N", help="leave the N layers that lose most"
    )
    parser.add_argument(
        "--min-sqnr", type=numbers.decibels, metavar="DB", help="leave layers that by themselves fall below this"
    )
    parser.add_argument("--report", metavar="r.svg|r.json", help="write the report, drawn or as JSON")
    bounds.add_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    from delegraph.aot.pipeline import EXPORT, QUANTIZE
    from delegraph.cli.progress import shown_progress
    from delegraph.plugins.plugin_spec import parse_plugins

    _check(args)
    backends = parse_plugins(args.backends)
    with shown_progress([EXPORT, QUANTIZE]) as progress:
        quantized = _quantize(args, backends, progress)
    _save(quantized, args.output, backends)
    nbytes = os.path.getsize(args.output)
    shown = {"file": args.output, "nbytes": nbytes, "seconds": progress.seconds, **quantized.report.to_json()}
    as_json = json.dumps(shown, indent=2, allow_nan=False)
    if args.report:
        with open(args.report, "w", encoding="utf-8") as file:
            file.write(quantized.report.to_svg() if args.report.endswith(".svg") else f"{as_json}\n")
    if args.json:
        print(as_json)
        return 0
    quantized.report.print()
    print(f"{args.output}: {nbytes:,} bytes")
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raise `argparse.ArgumentError` before any work for results that could not be written."""
    if not args.output.endswith((".pt2", ".pte")):
        raise argparse.ArgumentError(None, f"--output {args.output}: write m.pt2, or m.pte to lower it as well")
    if args.report and not args.report.endswith((".svg", ".json")):
        raise argparse.ArgumentError(None, f"--report {args.report}: write r.svg for a picture, or r.json")


def _quantize(args: argparse.Namespace, backends: Sequence[PluginSpec], progress: Progress) -> QuantizedModel:
    from delegraph.aot.quantized_model import quantize
    from delegraph.cli.calibration import batches_from
    from delegraph.cli.factory import field_by_method, models_from

    models = models_from(args.model)
    if len(models) > 1 and args.output.endswith(".pt2"):
        raise argparse.ArgumentError(
            None, f"--output {args.output}: a .pt2 has one program, and there are {', '.join(models)}: write m.pte"
        )
    return quantize(
        field_by_method(models, "model"),
        batches_from(args.data, models),
        field_by_method(models, "args"),
        field_by_method(models, "kwargs"),
        recipe=_recipe(args),
        backends=backends,
        keep_float=args.keep_float,
        min_sqnr=args.min_sqnr,
        dynamic_shapes=field_by_method(models, "dynamic_shapes"),
        bounds=dict(args.bounds),
        progress=progress,
    )


def _recipe(args: argparse.Namespace) -> Any:
    if not args.rule:
        return args.recipe
    rules = {}
    for rule in args.rule:
        pattern, equals, recipe = rule.partition("=")
        if not (pattern and equals and recipe):
            raise argparse.ArgumentError(None, f"--rule {rule}: write PATTERN=RECIPE, such as 'encoder.*=float'")
        rules[pattern] = recipe
    return {**rules, "default": args.recipe}


def _save(quantized: QuantizedModel, output: str, backends: Sequence[PluginSpec]) -> None:
    if output.endswith(".pte"):
        from delegraph.aot.lower import lower

        lower(quantized, backends=backends).save(output)
    else:
        quantized.save(output)
