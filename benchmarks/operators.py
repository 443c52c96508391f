"""`python -m benchmarks.operators [--threads 1] [--seconds 0.1]`: each operator on portable kernels here and there."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import EXECUTORCH, ROOT, in_process

SLOW = 2.0
"""From this ratio on a row is marked."""


CALLS = "a few NumPy calls, each of which takes 0.5 to 2 microseconds before it computes"
CALLS_UP_TO_MS = 0.5
"""What holds up every small row, and below which time."""

REASONS = {
    "aten::div.Tensor_mode": "np.floor_divide alone takes longer than that: it is exact, by fmod, element by element",
    "aten::floor_divide": "np.floor_divide alone takes longer than that: it is exact, by fmod, element by element",
    "aten::fmod.Tensor": "np.fmod alone takes longer than that: the C library's, element by element",
    "aten::remainder.Tensor": "np.remainder alone takes longer than that: by fmod, element by element",
    "aten::topk": "np.argpartition alone takes longer than that",
    "aten::_upsample_bilinear2d_aa": "the weights of all rows are applied as a dense product",
}
"""Why larger rows of an operator are slow."""


@dataclass(frozen=True)
class Row:
    """One operator at one size: milliseconds here and in ExecuTorch."""

    name: str
    ours_ms: float
    theirs_ms: float

    @property
    def ratio(self) -> float:
        """How many times as long as in ExecuTorch."""
        return self.ours_ms / self.theirs_ms

    @property
    def reason(self) -> str:
        """Why the row is slow; "" if it is not."""
        if self.ratio <= SLOW:
            return ""
        if self.ours_ms < CALLS_UP_TO_MS:
            return CALLS
        return next((why for name, why in REASONS.items() if self.name.startswith(name)), "NO REASON IS KNOWN")


def write_programs(directory: Path, only: str) -> None:
    """Lower every case whose name contains `only`: DIR/<n>.pte, and DIR/cases.pt as {name: (file, inputs)}."""
    import torch
    from tests.operators.programs import emit

    from benchmarks.operator_cases import operator_cases

    cases = {case.name: case for case in operator_cases() if only in case.name}
    files = {name: (f"{i:04}.pte", case.calls[0]) for i, (name, case) in enumerate(cases.items())}
    for name, (file, _) in files.items():
        (directory / file).write_bytes(emit(cases[name]).data)
    torch.save(files, directory / "cases.pt")


def measure_here(directory: Path, seconds: float) -> dict[str, float]:
    """Milliseconds by case on NumPy inputs."""
    import torch

    from benchmarks.executorch_side import median_ms
    from delegraph.runtime import Runtime

    times = {}
    for name, (file, inputs) in torch.load(directory / "cases.pt").items():
        method = Runtime.get().load_program(directory / file).load_method("forward")
        arrays = [x.numpy() for x in inputs]
        times[name] = median_ms(lambda: method.execute(arrays), seconds)  # noqa: B023  called at once
    return times


def measure_there(directory: Path, seconds: float, threads: int) -> dict[str, float]:
    """Milliseconds by case in ExecuTorch's environment."""
    import torch
    from executorch.extension.pybindings import portable_lib

    from benchmarks.executorch_side import median_ms

    torch.set_num_threads(threads)
    portable_lib._unsafe_reset_threadpool(threads)
    times = {}
    for name, (file, inputs) in torch.load(directory / "cases.pt").items():
        module = portable_lib._load_for_executorch(str(directory / file))
        times[name] = median_ms(lambda: module.run_method("forward", inputs), seconds)  # noqa: B023  called at once
    return times


def compare(seconds: float, threads: int, only: str) -> list[Row]:
    """All rows, the slowest against ExecuTorch first."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_programs(directory, only)
        here, there = f"measure_here(Path({name!r}), {seconds})", f"measure_there(Path({name!r}), {seconds}, {threads})"
        ours = in_process("benchmarks.operators", here, threads)
        theirs = in_process("benchmarks.operators", there, threads, EXECUTORCH)
    rows = [Row(case, ours[case], theirs[case]) for case in ours]
    return sorted(rows, key=lambda row: row.ratio, reverse=True)


def main() -> int:
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.1, help="for each program and side")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "operators.json")
    arguments = parser.parse_args()
    rows = compare(arguments.seconds, arguments.threads, arguments.only)
    columns = ("operator, size", "ours", "ExecuTorch", "ours / ExecuTorch", f"why, if more than {SLOW:g}x")
    table = Table(*columns, title=f"{arguments.threads} thread(s)")
    for row in rows:
        table.add_row(row.name, f"{row.ours_ms:.4f} ms", f"{row.theirs_ms:.4f} ms", f"{row.ratio:.2f}x", row.reason)
    console = Console(width=160)
    console.print(table)
    slow = sum(row.ratio > SLOW for row in rows)
    console.print(f"{len(rows)} programs, {slow} slower than {SLOW:g}x")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    written = [{"name": r.name, "ours_ms": r.ours_ms, "executorch_ms": r.theirs_ms, "ratio": r.ratio} for r in rows]
    arguments.json.write_text(json.dumps({"threads": arguments.threads, "rows": written}, indent=1))
    console.print(f"written: {arguments.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
