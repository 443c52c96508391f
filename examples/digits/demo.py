"""The whole way once: train a net on handwritten digits, lower it three ways, run it without torch, compare.

Fails if a program recognises fewer than 97 % of the test images, or differs from eager by more than the tolerance.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
from layers_partitioner import LayersPartitioner
from network import EPOCHS, DigitNet, Digits, digits, train
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import delegraph
from delegraph.plugins import default_registry

ACCURACY = 0.97
TOLERANCE = 1e-4
"""Of logits, which are of order 10: float32, summed in another order."""

console = Console(width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True, slots=True)
class Result:
    """One way of running the net. Sizes in bytes, times in seconds; what a way has not is None."""

    way: str
    logits: NDArray[np.float32]
    latency: float
    load: float | None = None
    delegated: int | None = None
    leftover: int | None = None
    file: int | None = None
    planned: int | None = None


def main() -> int:
    data = digits()
    with _progress() as progress:
        model = _trained(data, progress)
        ways = _backends()
        task = progress.add_task("lower, and run without torch", total=len(ways))
        results = [_eager(model, data)]
        with tempfile.TemporaryDirectory() as folder:
            for way, backends in ways.items():
                results.append(_lowered(way, backends, model, data, Path(folder)))
                progress.advance(task)
    console.print(_table(results, data))
    faults = [fault for result in results for fault in _faults(result, results[0], data)]
    for fault in faults:
        console.print(f"[red]{fault}")
    return 1 if faults else 0


def _backends() -> dict[str, list[str | delegraph.aot.Partitioner]]:
    """The three ways: on reference kernels alone, on a backend, and the convolutions on it and the rest on kernels."""
    cpu = default_registry().create("partitioners", "cpu")
    return {
        "portable kernels": [],
        "cpu": ["cpu"],
        "cpu for features only": [LayersPartitioner(cpu, ["features"])],
    }


def _trained(data: Digits, progress: Progress) -> DigitNet:
    task = progress.add_task("train", total=EPOCHS)
    return train(data, after_epoch=lambda: progress.advance(task))


def _eager(model: DigitNet, data: Digits) -> Result:
    images = torch.from_numpy(data.test_images)
    logits, seconds = [], []
    with torch.inference_mode():
        for image in images.split(1):
            start = time.perf_counter()
            logits.append(model(image).numpy())
            seconds.append(time.perf_counter() - start)
    return Result("eager PyTorch", np.concatenate(logits), median(seconds))


def _lowered(
    way: str, backends: list[str | delegraph.aot.Partitioner], model: DigitNet, data: Digits, folder: Path
) -> Result:
    lowered = delegraph.lower(model, (torch.from_numpy(data.test_images[:1]),), backends=backends)
    path = folder / "digits.pte"
    lowered.save(path)
    logits, times = _without_torch(path, data.test_images)
    report = lowered.report.methods["forward"]
    return Result(
        way,
        logits,
        times["latency"],
        times["load"],
        report.delegated_nodes,
        len(report.leftovers),
        path.stat().st_size,
        lowered.program.memory["forward"].planned_bytes,
    )


def _without_torch(program: Path, images: NDArray[np.float32]) -> tuple[NDArray[np.float32], dict[str, float]]:
    """The logits, and the times that evaluate.py prints."""
    images_path, logits_path = program.with_suffix(".images.npy"), program.with_suffix(".logits.npy")
    np.save(images_path, images)
    here = Path(__file__).parent
    command: list[str | Path] = [
        sys.executable,
        here.parent / "without_torch.py",
        here / "evaluate.py",
        program,
        images_path,
        logits_path,
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return np.load(logits_path), json.loads(done.stdout)


# ---- telling ---------------------------------------------------------------------------------------


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def _accuracy(result: Result, data: Digits) -> float:
    return float((result.logits.argmax(axis=1) == data.test_labels).mean())


def _difference(result: Result, eager: Result) -> float:
    return float(np.abs(result.logits - eager.logits).max())


def _faults(result: Result, eager: Result, data: Digits) -> list[str]:
    faults = []
    if _accuracy(result, data) < ACCURACY:
        faults.append(f"{result.way}: recognises {_accuracy(result, data):.2%} of the images, not {ACCURACY:.0%}")
    if not _difference(result, eager) <= TOLERANCE:
        faults.append(
            f"{result.way}: differs from eager by {_difference(result, eager):.1e}, more than {TOLERANCE:.0e}"
        )
    return faults


def _table(results: list[Result], data: Digits) -> Table:
    title = (
        f"{len(data.test_images)} held-out images, one at a time; lowered programs ran where torch cannot be imported"
    )
    table = Table(title=title)
    table.add_column("way")
    for name in ("delegated", "left", "file", "planned", "first output", "latency", "accuracy", "difference"):
        table.add_column(name, justify="right")
    for result in results:
        table.add_row(
            result.way,
            *(_shown(number, "") for number in (result.delegated, result.leftover)),
            *(_shown(number, " B") for number in (result.file, result.planned)),
            "" if result.load is None else f"{result.load * 1e3:.0f} ms",
            f"{result.latency * 1e6:.0f} µs",
            f"{_accuracy(result, data):.2%}",
            f"{_difference(result, results[0]):.1e}",
        )
    return table


def _shown(number: int | None, unit: str) -> str:
    return "" if number is None else f"{number:,}{unit}"


if __name__ == "__main__":
    raise SystemExit(main())
