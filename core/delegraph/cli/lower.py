"""`delegraph lower MODEL.py:factory --backends … -o m.pte`: the whole way ahead of time."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from delegraph.cli import bounds, metadata

if TYPE_CHECKING:
    from delegraph.aot.lower import Lowered
    from delegraph.cli.factory import ModelToLower
    from delegraph.cli.progress import Progress

__all__ = ["add_parser", "run"]

_EPILOG = """\
The factory takes no arguments. It returns (model, args), (model, args, kwargs) or (model, args, kwargs,
dynamic_shapes); or an ExportedProgram; or a dictionary with one of these for each method.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lower` to the command line."""
    parser = subparsers.add_parser("lower", help="lower a model to a .pte; needs torch", epilog=_EPILOG)
    parser.add_argument(
        "model", metavar="MODEL.py:factory", help="a file, or an importable module, and a function in it; or a .pt2"
    )
    parser.add_argument("-o", "--output", required=True, metavar="m.pte", help="where to write the program")
    parser.add_argument(
        "--backends",
        default="",
        metavar="NAMES",
        help="comma-separated, in order of priority, with options: 'npu{optimize=size},cpu' (default: kernels alone)",
    )
    parser.add_argument(
        "--passes", default="", metavar="NAMES", help="passes over the edge program before it is partitioned"
    )
    parser.add_argument("--stages", default="", metavar="NAMES", help="stages of plug-ins, each at a place of its own")
    parser.add_argument(
        "--dialect-rules", default="", metavar="NAMES", help="rules of plug-ins that programs must satisfy besides"
    )
    parser.add_argument(
        "--external-weights",
        nargs="?",
        const="*",
        metavar="PATTERNS",
        help="write weights into .ptd files beside the program: all of them into one of its name, or those whose names"
        " match: 'lora_*=adapter,*=base' (the first pattern that matches says which file)",
    )
    parser.add_argument("--method", help="what to call the method, or which of the factory's methods to lower")
    parser.add_argument(
        "--planner",
        default="greedy",
        help="the memory planner: greedy (default), search, naive or another one",
    )
    parser.add_argument(
        "--memory", metavar="board.toml", help="the device's memories: names, sizes, alignments, devices, speeds"
    )
    parser.add_argument(
        "--fallback",
        default="",
        metavar="NAMES",
        help="keep the graphs of delegates beside their blobs, for devices where a backend cannot run: 'kernels', or a"
        " backend, or several, of which the first that can runs them",
    )
    parser.add_argument(
        "--no-check-kernels",
        action="store_true",
        help="do not ask for kernels here: lower for a device that has more kernel libraries",
    )
    parser.add_argument(
        "--no-debug-data",
        action="store_true",
        help="leave out of the file what its instructions and delegates come from: modules, files and lines",
    )
    metadata.add_argument(parser)
    bounds.add_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    from delegraph.cli.progress import shown_progress

    with shown_progress() as progress:
        lowered = _lower(args, progress)
        lowered.save(args.output)
    summary = _summary(lowered, args.output)
    if args.json:
        print(json.dumps({**summary, "seconds": progress.seconds, "report": lowered.report.to_json()}, indent=2))
        return 0
    lowered.report.print()
    planned = ", ".join(f"{nbytes:,} bytes for {method}" for method, nbytes in summary["planned_nbytes"].items())
    print(f"{args.output}: {summary['nbytes']:,} bytes; planned memory: {planned}")
    for path, nbytes in summary["data"].items():
        print(f"{path}: {nbytes:,} bytes of weights")
    return 0


def _lower(args: argparse.Namespace, progress: Progress) -> Lowered:
    from delegraph.aot.config import EdgeCompileConfig, ExecutorchBackendConfig, LoweringConfig
    from delegraph.aot.lower import lower
    from delegraph.cli.factory import field_by_method, models_from
    from delegraph.plugins.plugin_spec import parse_plugins

    models = models_from(args.model)
    if args.method:
        models = {args.method: _one(models, args)}
    executorch = ExecutorchBackendConfig(
        memory_planner=args.planner,
        check_kernels=not args.no_check_kernels,
        emit_debug_data=not args.no_debug_data,
        external_constants=_files_by_pattern(args.external_weights, args.output),
    )
    config = LoweringConfig(
        EdgeCompileConfig(dialect_rules=parse_plugins(args.dialect_rules)),
        executorch,
        transform_passes=parse_plugins(args.passes),
        stages=parse_plugins(args.stages),
    )
    return lower(
        field_by_method(models, "model"),
        field_by_method(models, "args"),
        field_by_method(models, "kwargs"),
        dynamic_shapes=field_by_method(models, "dynamic_shapes"),
        backends=parse_plugins(args.backends),
        bounds=dict(args.bounds),
        config=config,
        memory=args.memory,
        fallback=parse_plugins(args.fallback) or None,
        metadata={name: value for entries in args.metadata for name, value in entries.items()},
        progress=progress,
    )


def _files_by_pattern(text: str | None, output: str) -> dict[str, str]:
    """`lora_*=adapter,*` as patterns of weights' names with the names of `.ptd` files, that of `output` if none is
    said. Raises `argparse.ArgumentError`."""
    stem = os.path.splitext(os.path.basename(output))[0]
    files: dict[str, str] = {}
    for part in (text or "").split(",") if text is not None else ():
        pattern, _, name = part.partition("=")
        if not pattern or os.path.basename(name) != name:
            example = "write patterns of names, each with a file's name: 'lora_*=adapter,*=base'"
            raise argparse.ArgumentError(None, f"--external-weights {text}: {example}")
        files[pattern] = name.removesuffix(".ptd") or stem
    return files


def _one(models: Mapping[str, ModelToLower], args: argparse.Namespace) -> ModelToLower:
    """The method that `--method` asks for; a single model takes that name."""
    if len(models) == 1:
        return next(iter(models.values()))
    if args.method not in models:
        raise argparse.ArgumentError(
            None, f"{args.model} gives no method {args.method!r}, but {', '.join(sorted(models))}"
        )
    return models[args.method]


def _summary(lowered: Lowered, path: str) -> dict[str, Any]:
    """The file, and its sizes in bytes."""
    data = [os.path.join(os.path.dirname(path), f"{name}.ptd") for name in lowered.program.tensor_data]
    return {
        "file": path,
        "nbytes": os.path.getsize(path),
        "data": {file: os.path.getsize(file) for file in data},
        "planned_nbytes": {method: memory.planned_bytes for method, memory in lowered.program.memory.items()},
    }
