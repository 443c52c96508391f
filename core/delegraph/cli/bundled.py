"""`delegraph run m.bpte` and `delegraph inspect m.bpte`: the test cases of a bundled program, run and told of."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from delegraph.cli import backend_options, kernel_order
from delegraph.cli.timing import latency_text, measure

if TYPE_CHECKING:
    from delegraph.cli.timing import Timing
    from delegraph.devtools import BundledProgram, CaseResult
    from delegraph.devtools.bundled_program.cases import BundledValue
    from delegraph.runtime import Limits, Runtime
    from delegraph.runtime.resolution.backend_options import BackendOptions
    from delegraph.tables import Table

__all__ = ["is_bundled", "print_cases", "suites_json", "verify"]


def is_bundled(path: str) -> bool:
    """Whether the file is a `.bpte`. Raises `AccessFailed`."""
    from delegraph.program.files.header import BUNDLED_IDENTIFIER
    from delegraph.runtime.data_loader import MmapDataLoader

    source = MmapDataLoader(path)
    return source.size() >= 8 and bytes(source.load(4, 4)) == BUNDLED_IDENTIFIER


def verify(args: argparse.Namespace, limits: Limits) -> int:
    """Run the cases, tell how they went; returns the exit code: 1 if one failed or gave something else."""
    from delegraph.devtools import load_bundled_program, verify_bundled_program
    from delegraph.devtools.bundled_program.verify import ATOL, RTOL
    from delegraph.runtime import Runtime

    if args.warmup and not args.repeat:
        raise argparse.ArgumentError(None, "--warmup has no use without --repeat: of a .bpte nothing is timed else")
    bundled = load_bundled_program(args.program)
    options = backend_options.parsed(args.backend_options)
    runtime = Runtime(kernels=kernel_order.kernel_order(args.kernels), limits=limits)
    results = verify_bundled_program(
        bundled,
        rtol=RTOL if args.rtol is None else args.rtol,
        atol=ATOL if args.atol is None else args.atol,
        methods=None if args.method is None else [args.method],
        runtime=runtime,
        data_path=args.data,
        backend_options=options,
    )
    ok = all(result.ok for result in results)
    timings = _timings(args, runtime, bundled, results, options) if args.repeat and ok else {}
    if args.json:
        print(json.dumps([_to_json(result, timings) for result in results], indent=2))
    else:
        _print(results)
        for name, timing in timings.items():
            print(f"{name}: {latency_text(timing)}")
    return int(not ok)


def _timings(
    args: argparse.Namespace,
    runtime: Runtime,
    bundled: BundledProgram,
    results: Sequence[CaseResult],
    options: BackendOptions | None,
) -> dict[str, Timing]:
    """By method, times of executions on the inputs of its first test case, in a Method of its own."""
    program = runtime.load_program(bundled.buffer, data_path=args.data)
    asked = {result.method_name for result in results}
    first = {suite.method_name: suite.test_cases[0] for suite in bundled.method_test_suites if suite.test_cases}
    return {
        name: measure(program.load_method(name, backend_options=options), case.inputs, args.warmup or 0, args.repeat)[1]
        for name, case in first.items()
        if name in asked
    }


def _to_json(result: CaseResult, timings: Mapping[str, Timing]) -> dict[str, object]:
    timing = timings.get(result.method_name) if result.index == 0 else None
    return {
        "method": result.method_name,
        "case": result.index,
        "verdict": result.verdict,
        "seconds": result.seconds,
        "largest_error": _number(_largest_error(result)) if result.comparisons else None,
        "reason": result.reason,
        **({} if timing is None else {"first_seconds": timing.first, "latency_seconds": timing.to_json()}),
    }


def _number(error: float) -> float | str:
    """JSON has neither infinities nor NaN."""
    return error if isfinite(error) else str(error)


def _print(results: Sequence[CaseResult]) -> None:
    from delegraph.tables import Table, milliseconds, print_table

    rows = [
        (
            result.method_name,
            str(result.index),
            result.verdict,
            f"{_largest_error(result):.3g}" if result.comparisons else "",
            milliseconds(result.seconds),
            result.reason,
        )
        for result in results
    ]
    columns = ("method", "case", "verdict", "largest error", "time", "why")
    print_table(Table("test cases", columns, rows, frozenset({"case", "largest error", "time"})))
    verdicts = [result.verdict for result in results]
    print(", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in sorted(set(verdicts))) or "no test cases")


def _largest_error(result: CaseResult) -> float:
    return max(comparison.max_absolute_error for comparison in result.comparisons)


# ---- the content of a file -------------------------------------------------------------------------


def print_cases(bundled: BundledProgram) -> None:
    """Print each test case's inputs and expected outputs."""
    from delegraph.tables import print_table

    for table in _case_tables(bundled):
        print_table(table)


def suites_json(bundled: BundledProgram) -> list[dict[str, object]]:
    """The test cases for machines: kinds and shapes, not the values."""
    return [
        {
            "method": suite.method_name,
            "cases": [
                {
                    "inputs": [_text(value) for value in case.inputs],
                    "expected_outputs": [_text(value) for value in case.expected_outputs],
                }
                for case in suite.test_cases
            ],
        }
        for suite in bundled.suites
    ]


def _case_tables(bundled: BundledProgram) -> Iterator[Table]:
    from delegraph.tables import Table

    for suite in bundled.suites:
        rows = [
            (str(index), ", ".join(map(_text, case.inputs)), ", ".join(map(_text, case.expected_outputs)) or "nothing")
            for index, case in enumerate(suite.test_cases)
        ]
        yield Table(f"{suite.method_name}: test cases", ("case", "inputs", "expects"), rows, frozenset({"case"}))


def _text(value: BundledValue) -> str:
    from delegraph.program.dtypes import dtype_info

    if isinstance(value, bool | int | float):
        return repr(value)
    return f"{dtype_info(value.scalar_type).name}{list(value.sizes)}"
