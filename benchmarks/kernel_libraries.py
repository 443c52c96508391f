"""`python -m benchmarks.kernel_libraries [--models a,b] [--threads 1]`: one program on portable and on torch's kernels.

Eager runs the model itself. Each figure is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import delegraph
from benchmarks.executorch_side import median_ms
from benchmarks.models import MODELS, make
from benchmarks.processes import ROOT, in_process
from delegraph.aot import ExecutorchBackendConfig

LIBRARIES = ("portable", "aten")


def measure(name: str, peer: str, seconds: float) -> float:
    """Milliseconds of one model: in eager, or lowered without a backend on the kernel library `peer`."""
    model, args = make(name)
    if peer == "eager":
        with torch.inference_mode():
            return median_ms(lambda: model(*args), seconds)
    config = ExecutorchBackendConfig(kernels=[peer])
    run = delegraph.load(bytes(delegraph.lower(model, args, config=config)), kernels=[peer])
    arrays = [x.numpy() for x in args]
    return median_ms(lambda: run(*arrays), seconds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel_libraries", description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "kernel_libraries.json")
    arguments = parser.parse_args()
    peers = (*LIBRARIES, "eager")
    console = Console(width=120)
    table = Table("model", *peers, "aten / eager", "portable / aten", title=f"{arguments.threads} thread(s), ms")
    results: dict[str, dict[str, float]] = {}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    for name in arguments.models.split(","):
        with console.status(name):
            calls = {peer: f"measure({name!r}, {peer!r}, {arguments.seconds})" for peer in peers}
            ms = {p: in_process("benchmarks.kernel_libraries", call, arguments.threads) for p, call in calls.items()}
        results[name] = ms
        ratios = (ms["aten"] / ms["eager"], ms["portable"] / ms["aten"])
        table.add_row(name, *(f"{ms[peer]:.2f}" for peer in peers), *(f"{ratio:.2f}x" for ratio in ratios))
        arguments.json.write_text(json.dumps({"threads": arguments.threads, "ms": results}, indent=1))
    console.print(table)
    console.print(f"written: {arguments.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
