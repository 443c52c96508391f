"""`python -m benchmarks [--models a,b] [--threads 1,2]`: every peer in one run, ratios, and where we lose."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import delegraph
from benchmarks.executorch_side import median_ms
from benchmarks.models import MODELS, make
from benchmarks.processes import EXECUTORCH, ROOT, in_process


def measure_ours(name: str) -> dict[str, float]:
    """Delegraph's figures of one model with the CPU backend: milliseconds, lowering in seconds."""
    model, args = make(name)
    exported = torch.export.export(model, args)
    delegraph.lower(exported, backends=["cpu"])  # imports and caches do not count
    start = time.perf_counter()
    lowered = delegraph.lower(exported, backends=["cpu"])
    lowering = time.perf_counter() - start
    arrays = [x.numpy() for x in args]
    ours = delegraph.load(bytes(lowered))
    return {"lowering_s": lowering, "cpu_ms": median_ms(lambda: ours(*arrays))}


def measure_portable(name: str) -> dict[str, float]:
    """Delegraph's figures of one model on portable kernels alone."""
    model, args = make(name)
    portable = delegraph.lower(model, args)
    arrays = [x.numpy() for x in args]
    kernels = delegraph.load(bytes(portable))
    memory = portable.program.memory["forward"]
    return {
        "portable_ms": median_ms(lambda: kernels(*arrays)),
        "planned_bytes": float(memory.planned_bytes),
        "lower_bound": float(memory.lower_bound),
    }


def measure_torch(name: str) -> dict[str, float]:
    """Eager and torch.compile, in milliseconds."""
    model, args = make(name)
    with torch.no_grad():
        compiled = torch.compile(model)
        return {"eager_ms": median_ms(lambda: model(*args)), "compile_ms": median_ms(lambda: compiled(*args))}


def measure_onnxruntime(name: str) -> dict[str, float]:
    """onnxruntime on torch's own ONNX export, in milliseconds."""
    import onnxruntime

    model, args = make(name)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.onnx"
        torch.onnx.export(model, args, path, dynamo=False, verbose=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {i.name: x.numpy() for i, x in zip(session.get_inputs(), args, strict=True)}
    return {"onnxruntime_ms": median_ms(lambda: session.run(None, feeds))}


def measure_executorch(name: str, threads: int) -> dict[str, float]:
    """ExecuTorch's figures, from its own environment."""
    ran = subprocess.run(
        [str(EXECUTORCH), str(Path(__file__).with_name("executorch_side.py")), name, str(threads)],
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = json.loads(ran.stdout.strip().splitlines()[-1])
    return {f"executorch_{key}": value for key, value in theirs.items()}


class _Adds(torch.nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for _ in range(self.count):
            y = y + x
        return y


def overhead() -> dict[str, float]:
    """Nanoseconds per instruction of 1,000 adds of 16 elements, beyond NumPy's own call."""
    run = delegraph.load(bytes(delegraph.lower(_Adds(1000), (torch.randn(16),))))
    x = np.ones(16, np.float32)
    out = np.empty(16, np.float32)

    def bare() -> None:
        for _ in range(1000):
            np.add(x, x, out)

    whole, numpy_alone = median_ms(lambda: run(x)) * 1e3, median_ms(bare) * 1e3
    return {"instruction_ns": whole, "numpy_add_ns": numpy_alone, "overhead_ns": whole - numpy_alone}


def growth(counts: tuple[int, ...] = (1_000, 10_000, 100_000)) -> dict[str, float]:
    """Seconds to lower (export excluded) and to load a chain of nodes."""
    figures = {}
    for count in counts:
        exported = torch.export.export(_Adds(count), (torch.randn(16),))
        start = time.perf_counter()
        data = bytes(delegraph.lower(exported))
        figures[f"lower_{count}_s"] = time.perf_counter() - start
        start = time.perf_counter()
        delegraph.load(data)
        figures[f"load_{count}_s"] = time.perf_counter() - start
    return figures


_COLUMNS: dict[str, Callable[[dict[str, float]], str]] = {
    "lowering: ours, ExecuTorch/XNNPACK, ratio": lambda f: (
        f"{f['lowering_s']:.2f} s, {f['executorch_lowering_s']:.2f} s, "
        f"{f['executorch_lowering_s'] / f['lowering_s']:.1f}x"
    ),
    "cpu": lambda f: f"{f['cpu_ms']:.2f} ms",
    "XNNPACK": lambda f: f"{f['executorch_xnnpack_ms']:.2f} ms",
    "onnxruntime": lambda f: f"{f['onnxruntime_ms']:.2f} ms",
    "compile": lambda f: f"{f['compile_ms']:.2f} ms",
    "eager": lambda f: f"{f['eager_ms']:.2f} ms",
    "best peer / cpu": lambda f: (
        f"{_best_peer(f) / f['cpu_ms']:.2f}x" + ("" if _best_peer(f) > f["cpu_ms"] else " LOST")
    ),
    "portable: ours, ExecuTorch, ratio": lambda f: (
        f"{f['portable_ms']:.2f} ms, {f['executorch_portable_ms']:.1f} ms, "
        f"{f['executorch_portable_ms'] / f['portable_ms']:.1f}x"
    ),
    "planned / bound, / ExecuTorch": lambda f: (
        f"{f['planned_bytes'] / f['lower_bound']:.3f}, {f['planned_bytes'] / f['executorch_planned_bytes']:.2f}"
    ),
}


def _best_peer(figures: dict[str, float]) -> float:
    return min(figures[key] for key in ("executorch_xnnpack_ms", "onnxruntime_ms", "compile_ms", "eager_ms"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "benchmarks.json")
    arguments = parser.parse_args()
    console = Console(width=220)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    packages = {name: version(name) for name in ("torch", "onnxruntime", "numpy")}
    machine = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count(), **packages}
    console.print(machine)
    results: dict[str, Any] = {"machine": machine, "models": {}}
    for threads in map(int, arguments.threads.split(",")):
        table = Table("model", *_COLUMNS, title=f"{threads} thread(s)")
        for name in arguments.models.split(","):
            with console.status(f"{name}, {threads} thread(s)"):
                figures = measure_executorch(name, threads)
                for function in (measure_ours, measure_portable, measure_torch, measure_onnxruntime):
                    figures |= in_process("benchmarks.__main__", f"{function.__name__}({name!r})", threads)
            results["models"][f"{name}@{threads}"] = figures
            table.add_row(name, *(show(figures) for show in _COLUMNS.values()))
            arguments.json.write_text(json.dumps(results, indent=1))
        console.print(table)
    for section in (overhead, growth):
        results[section.__name__] = section()
        console.print(section.__name__, results[section.__name__])
        arguments.json.write_text(json.dumps(results, indent=1))
    console.print(f"written: {arguments.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
