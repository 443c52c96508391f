"""`delegraph run m.pte`: load a method, run it on made or given inputs, tell what comes out and how long it takes.

Of a `.bpte` it runs the test cases instead (`bundled.py`). The counterpart of ExecuTorch's `executor_runner`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from delegraph.cli import backend_options, device_arguments, kernel_order, numbers, program_arguments

if TYPE_CHECKING:
    from delegraph.cli.timing import Timing
    from delegraph.devtools.profiling.profile import Profile
    from delegraph.runtime.isolation.module import IsolatedMethod
    from delegraph.runtime.method import Method
    from delegraph.runtime.resolution.backend_options import BackendOptions

__all__ = ["add_parser", "run"]


_EPILOG = """\
Exit codes: 0, it ran, and of a .bpte every output is what is expected; 1, it could not be loaded or run, or some output
of a .bpte differs; 2, the command line is wrong.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `run` to the command line."""
    parser = subparsers.add_parser(
        "run", help="run a program, or the test cases of a bundled one, without torch", epilog=_EPILOG
    )
    parser.add_argument("program", metavar="m.pte|m.bpte")
    program_arguments.add_arguments(parser)
    parser.add_argument(
        "--repeat",
        type=numbers.positive,
        metavar="N",
        help="timed executions (default: 10; of a .bpte's first cases: none)",
    )
    parser.add_argument(
        "--warmup",
        type=numbers.count,
        metavar="N",
        help="executions behind the first one that are not timed (default: 0)",
    )
    parser.add_argument("--output", metavar="out.npz", help="write the outputs there, as output_0, output_1, ...")
    parser.add_argument(
        "--output-dir", metavar="DIR", help="write the outputs there, as output_0.npy, output_1.npy, ..."
    )
    parser.add_argument(
        "--check", action="store_true", help="watch what kernels and backends do to their arguments; slower"
    )
    parser.add_argument(
        "--isolated",
        action="store_true",
        help="in a process of its own, which opens no file and no socket once the program is loaded",
    )
    parser.add_argument(
        "--trace", action="store_true", help="also tell which steps, modules and lines of the model the time goes to"
    )
    parser.add_argument("--rtol", type=float, help="of a .bpte: outputs may differ by atol + rtol * |expected| (1e-5)")
    parser.add_argument("--atol", type=float, help="of a .bpte: see --rtol (1e-8)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--json-file",
        metavar="t.json",
        help="also write the JSON there, where nothing that a plug-in prints gets into it",
    )
    device_arguments.add_host(parser, "run it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    from delegraph.cli.bundled import is_bundled, verify

    if args.host:
        from delegraph.cli.run_there import run_there

        return run_there(args)
    if is_bundled(args.program):
        _refuse(args, ("inputs", "seed", "shape", "output", "output_dir", "trace"), "it brings its inputs")
        _refuse(args, ("isolated",), "its test cases run here")
        _refuse(args, ("json_file",), "--json prints how its cases went")
        _refuse(args, ("integrity", "trusted_key"), "it is a test; they are for the program by itself")
        return verify(args, program_arguments.limits(args))
    _refuse(args, ("rtol", "atol"), "they are for the expected outputs of a .bpte")
    return _measure(args)


def _refuse(args: argparse.Namespace, options: Iterable[str], why: str) -> None:
    """Raise `argparse.ArgumentError` for options that this kind of file has no use for."""
    for option in options:
        if getattr(args, option) not in (None, [], False):
            name = option.replace("_", "-")
            raise argparse.ArgumentError(None, f"--{name} has no use with {args.program}: {why}")


def _measure(args: argparse.Namespace) -> int:
    from delegraph.cli.inputs import save_outputs, save_outputs_apart
    from delegraph.cli.timing import measure

    options = backend_options.parsed(args.backend_options)
    start = time.perf_counter()
    program = program_arguments.open_program(args, args.check or None)
    name = program_arguments.main_method(args, program)
    method = _isolated(args, name, options) if args.isolated else program.load_method(name, backend_options=options)
    load_seconds = time.perf_counter() - start
    inputs = program_arguments.inputs_of(args, method.metadata)
    outputs, timing = measure(method, inputs, args.warmup or 0, args.repeat or _REPEAT)
    if args.isolated:
        timing = replace(timing, peak_memory=None)  # of this process, which did nothing
    profile = None
    if args.trace:
        from delegraph.devtools.profiling.measuring import Effort, traced

        effort = Effort(warmup=1, repeat=args.repeat or _REPEAT)
        profile = traced(program, cast("Method", method), inputs, options, effort)
    if args.output:
        save_outputs(args.output, outputs)
    if args.output_dir:
        save_outputs_apart(args.output_dir, outputs)
    measured = _Measured(load_seconds, timing, inputs, outputs, profile)
    if args.json_file:
        with open(args.json_file, "w", encoding="utf-8") as file:
            json.dump(_to_json(measured), file, indent=2)
    if args.json:
        print(json.dumps(_to_json(measured), indent=2))
    else:
        _print(measured)
    return 0


_REPEAT = 10
"""Timed executions, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """A run's inputs and outputs, and its times."""

    load_seconds: float
    timing: Timing
    inputs: list[object]
    outputs: list[object]
    profile: Profile | None


def _isolated(args: argparse.Namespace, name: str, options: BackendOptions | None) -> IsolatedMethod:
    """The method in a process of its own. Raises `argparse.ArgumentError` with options that look into the run."""
    if args.trace:
        raise argparse.ArgumentError(None, "--trace has no use with --isolated: the tracer is in another process")
    from delegraph.runtime.isolation.module import load_isolated

    module = load_isolated(
        args.program,
        method=name,
        data_path=args.data,
        limits=program_arguments.limits(args),
        integrity=args.integrity or "lazy",
        trusted_keys=args.trusted_key,
        kernels=kernel_order.kernel_order(args.kernels),
        backend_options=options,
        check=args.check or None,
        cache=args.cache,
    )
    if module.lacking:
        print(f"warning: the program's process may open files and sockets: {module.lacking}", file=sys.stderr)
    method: Any = module[name].method
    return cast("IsolatedMethod", method)


# ---- telling ---------------------------------------------------------------------------------------


def _to_json(measured: _Measured) -> dict[str, object]:
    return {
        "load_seconds": measured.load_seconds,
        "first_seconds": measured.timing.first,
        "latency_seconds": measured.timing.to_json(),
        "peak_memory_nbytes": measured.timing.peak_memory,
        "inputs": [_value_json(value) for value in measured.inputs],
        "outputs": [_value_json(value) for value in measured.outputs],
        "profile": measured.profile and measured.profile.to_json(),
    }


def _value_json(value: Any) -> dict[str, object]:
    if not hasattr(value, "dtype"):
        return {"dtype": type(value).__name__, "shape": None, "first": [_plain(value)]}
    first = value.reshape(-1)[:_SHOWN].tolist()
    return {"dtype": value.dtype.name, "shape": list(value.shape), "first": [_plain(item) for item in first]}


def _plain(item: object) -> object:
    """JSON has neither complex numbers, infinities nor NaN."""
    is_known = isfinite(item) if isinstance(item, float) else not isinstance(item, complex)
    return item if is_known else str(item)


_SHOWN = 8
"""Elements of each tensor that are shown."""


def _print(measured: _Measured) -> None:
    from delegraph.cli.timing import latency_text
    from delegraph.tables import milliseconds

    for role, values in (("input", measured.inputs), ("output", measured.outputs)):
        for index, value in enumerate(values):
            print(f"{role} {index}: {_text(value)}")
    print(f"loaded in {milliseconds(measured.load_seconds)}; {latency_text(measured.timing)}")
    if measured.timing.peak_memory is not None:
        print(f"peak memory of the process: {measured.timing.peak_memory / 2**20:,.1f} MiB")
    if measured.profile is not None:
        measured.profile.print()


def _text(value: Any) -> str:
    if not hasattr(value, "dtype"):
        return repr(value)
    items = value.reshape(-1)[:_SHOWN].tolist()
    shown = [f"{item:.5g}" if isinstance(item, float) else str(item) for item in items]
    return f"{value.dtype.name}{list(value.shape)}  {', '.join([*shown, *['…'] * (value.size > _SHOWN)])}"
