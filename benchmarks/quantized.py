"""`python -m benchmarks.quantized [--models a,b] [--threads 1,2]`: quantized models on `cpu` against float and peers.

Ours in float and by recipe, onnxruntime's own static and dynamic quantization of torch's export, and eager, in one
process on one pool of threads; rounds interleaved, the best median counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
import torch
from rich.console import Console
from rich.table import Table

import delegraph
from benchmarks.executorch_side import median_ms
from benchmarks.models import MODELS, make, outputs
from benchmarks.peers.onnxruntime_side import dynamic, static
from benchmarks.processes import ROOT, in_process

RECIPES: Final = ("int8", "int8_dynamic", "int8_weight_only", "int4_weight_only")
ROUNDS: Final = 3
BATCHES: Final = 4

Run = Callable[[], Any]
Batches = list[tuple[torch.Tensor, ...]]


def measure(name: str) -> dict[str, dict[str, float]]:
    """Contender -> milliseconds, bytes of the file, seconds to make it, and decibels to float (signal to error)."""
    model, args = make(name)
    data = [args, *(tuple(map(_like, args)) for _ in range(BATCHES - 1))]
    with torch.no_grad():
        expected = outputs(model(*args))[0].numpy()
    runs: dict[str, Run] = {}
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for contender, before, make_run in _contenders(model, args, data, Path(folder)):
            start = time.perf_counter()
            runs[contender], nbytes = make_run()
            made = time.perf_counter() - start
            figures[contender] = {
                "bytes": nbytes,
                "made_s": before + made,
                "db": _decibels(expected, runs[contender]()),
            }
        medians = {contender: [] for contender in runs}  # type: dict[str, list[float]]
        for _ in range(ROUNDS):
            for contender, run in runs.items():
                medians[contender].append(median_ms(run))
    for contender, found in medians.items():
        figures[contender]["ms"] = min(found)
    return figures


def _contenders(
    model: torch.nn.Module, args: tuple[Any, ...], data: Batches, folder: Path
) -> Iterator[tuple[str, float, Callable[[], tuple[Run, float]]]]:
    """Names, seconds that were spent already, and what makes a call and says how large its file is."""
    arrays = [x.numpy() for x in args]

    def eager() -> tuple[Run, float]:
        def run() -> Any:
            with torch.no_grad():
                return outputs(model(*args))[0].numpy()

        return run, 4.0 * sum(prod(p.shape) for p in model.parameters())

    def ours(lowered: Any) -> tuple[Run, float]:
        file = bytes(lowered)
        module = delegraph.load(file)
        return lambda: _first(module(*arrays)), float(len(file))

    def by_recipe(recipe: str) -> Callable[[], tuple[Run, float]]:
        def quantized() -> tuple[Run, float]:
            return ours(
                delegraph.lower(delegraph.quantize(model, data, recipe=recipe, backends=["cpu"]), backends=["cpu"])
            )

        return quantized

    # Its quantizers want sessions with threads of their own, which there are none of once a delegate is loaded.
    theirs: dict[str, tuple[Path, float]] = {}
    for kind, make_file in (("float", _exported), ("static", _static), ("dynamic", _dynamic)):
        start = time.perf_counter()
        theirs[kind] = make_file(folder, model, data), time.perf_counter() - start
    yield "float", 0.0, lambda: ours(delegraph.lower(model, args, backends=["cpu"]))
    for recipe in RECIPES:
        yield recipe, 0.0, by_recipe(recipe)
    for kind, (path, seconds) in theirs.items():
        yield f"onnxruntime {kind}", seconds, partial(_session, path, arrays)
    yield "eager", 0.0, eager


def _like(example: torch.Tensor) -> torch.Tensor:
    """Another input of that kind: tokens and masks are taken in another order."""
    if example.dtype.is_floating_point:
        return torch.randn_like(example)
    return example.flatten()[torch.randperm(example.numel())].reshape(example.shape)


def _first(result: Any) -> np.ndarray[Any, Any]:
    from torch.utils import _pytree as pytree

    return np.asarray(pytree.tree_leaves(result)[0])


def _decibels(expected: np.ndarray[Any, Any], got: np.ndarray[Any, Any]) -> float:
    error = float(((expected - got) ** 2).sum())
    return float(10 * np.log10((expected**2).sum() / max(error, 1e-30)))


# ---- onnxruntime --------------------------------------------------------------------------------------------------


def _session(path: Path, arrays: list[Any]) -> tuple[Run, float]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {i.name: x for i, x in zip(session.get_inputs(), arrays, strict=True)}
    return lambda: session.run(None, feeds)[0], float(path.stat().st_size)


def _exported(folder: Path, model: torch.nn.Module, data: Batches) -> Path:
    path = folder / "float.onnx"
    torch.onnx.export(model, data[0], path, dynamo=False, verbose=False)
    return path


def _static(folder: Path, model: torch.nn.Module, data: Batches) -> Path:
    static(folder / "float.onnx", folder / "static.onnx", data)
    return folder / "static.onnx"


def _dynamic(folder: Path, model: torch.nn.Module, data: Batches) -> Path:
    dynamic(folder / "float.onnx", folder / "dynamic.onnx", data)
    return folder / "dynamic.onnx"


# ---- tables -------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized", description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "quantized.json")
    arguments = parser.parse_args()
    console = Console(width=160)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for threads in map(int, arguments.threads.split(",")):
        for name in arguments.models.split(","):
            figures = in_process("benchmarks.quantized", f"measure({name!r})", threads)
            results[f"{name}@{threads}"] = figures
            table = Table("", "ms", "float / this", "MB", "made in", "dB", title=f"{name}, {threads} thread(s)")
            for contender, found in figures.items():
                ratio = figures["float"]["ms"] / found["ms"]
                cells = (f"{found['ms']:.2f}", f"{ratio:.2f}x", f"{found['bytes'] / 1e6:.1f}")
                table.add_row(contender, *cells, f"{found['made_s']:.1f} s", f"{found['db']:.0f}")
            console.print(table)
            arguments.json.write_text(json.dumps(results, indent=1))
    console.print(f"written: {arguments.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
