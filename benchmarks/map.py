"""`python -m benchmarks.map [--rows N] [--rounds N]`: rows a second of a text encoder, in one process, two, and on Ray.

The bare engine is onnxruntime under the same code of Ray. Each computes with one thread, in batches of 16; rounds take
turns, and the best of each is told. Time is counted between the ends of the first and the last batches, so that it is
without what starts processes; on a machine with other users, CPU time says more. Memory is that of a worker in the
end: resident, and what is its own alone.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from rich.console import Console
from rich.table import Table
from torch.export import Dim

import delegraph
from benchmarks.models import make

BATCH, WORKERS = 16, 2
ONE_THREAD = {"cpu": {"num_threads": 1}}
MEASURES = ("ended", "cpu", "resident", "own")


class Pooled(torch.nn.Module):
    """A vector for each text, of MiniLM's shape."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = make("minilm")[0]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        pooled: torch.Tensor = self.encoder(tokens, torch.ones_like(tokens))[1]
        return pooled


def measured(call: Callable[[], Mapping[str, Any]], rows: int) -> dict[str, Any]:
    """Results, and for each row when its batch was done, its share of CPU time, and the memory of the process."""
    began = time.process_time()
    results = call()
    memory = psutil.Process().memory_full_info()
    values = (time.time(), (time.process_time() - began) / rows, memory.rss, memory.uss)
    return {**results, **{name: np.full(rows, value) for name, value in zip(MEASURES, values, strict=True)}}


class Ours:
    """Delegraph in an actor."""

    def __init__(self, folder: str) -> None:
        from delegraph_ray import DelegraphPredictor

        self.predict = DelegraphPredictor(Path(folder, "m.pte"), keep=[], batch_size=BATCH, backend_options=ONE_THREAD)

    def __call__(self, batch: Any) -> Any:
        return measured(lambda: self.predict(batch), len(batch["tokens"]))


class Bare:
    """onnxruntime in an actor."""

    def __init__(self, folder: str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            str(Path(folder, "m.onnx")), options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, batch: Any) -> Any:
        tokens = np.stack(batch["tokens"])
        return measured(lambda: {"output": self.session.run(None, {"tokens": tokens})[0]}, len(tokens))


def seen(outputs: Any) -> Any:
    """`finish` of `map_table`: the end of each batch, and the memory of its process."""
    return measured(lambda: outputs, len(outputs["output"]))


def in_processes(folder: Path, workers: int) -> pa.Table:
    """`map_table`, a part for each batch."""
    model = delegraph.load(folder / "m.pte", backend_options=ONE_THREAD)
    options: dict[str, Any] = {"batch_size": BATCH, "part_rows": BATCH, "finish": seen, "keep": []}
    delegraph.map_table(model, folder / "in", folder / "out.parquet", workers=workers, **options)
    return pq.read_table(folder / "out.parquet")


def on_ray(folder: Path, predictor: type) -> pa.Table:
    """Ray Data with two actors."""
    import ray

    dataset = ray.data.read_parquet(str(folder / "in")).map_batches(
        predictor,
        fn_constructor_kwargs={"folder": str(folder)},
        compute=ray.data.ActorPoolStrategy(size=WORKERS),
        batch_size=BATCH,
        batch_format="numpy",
        num_cpus=1,
    )
    return pa.concat_tables([ray.get(table) for table in dataset.to_arrow_refs()])


def rate(table: pa.Table, workers: int) -> float:
    """Rows a second between the ends of the first and the last batches of all workers."""
    ended = np.sort(table["ended"].to_numpy())
    first = workers * BATCH
    return float((len(ended) - first) / (ended[-1] - ended[first - 1]))


def prepare(folder: Path, rows: int) -> None:
    """The program, the same for onnxruntime alone, and the table, in several files."""
    model, tokens = Pooled().eval(), torch.randint(0, 1000, (2, 128))
    sizes = {"tokens": {0: Dim("batch", max=64)}}
    delegraph.lower(model, (tokens,), dynamic_shapes=sizes, backends=["cpu"]).save(folder / "m.pte")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names: dict[str, Any] = {"input_names": ["tokens"], "dynamic_axes": {"tokens": {0: "batch"}}}
        torch.onnx.export(model, (tokens,), folder / "m.onnx", dynamo=False, verbose=False, **names)
    texts = np.random.default_rng(0).integers(0, 1000, (rows, 128))
    (folder / "in").mkdir()
    for number, part in enumerate(np.array_split(texts, 2 * WORKERS)):
        pq.write_table(pa.table({"tokens": [*part]}), folder / "in" / f"{number}.parquet")


def ways() -> dict[str, tuple[int, Callable[[Path], pa.Table]]]:
    """Who takes turns: how many workers each has, and how it computes the table."""
    local: dict[str, tuple[int, Callable[[Path], pa.Table]]] = {
        "map_table, one process": (1, lambda folder: in_processes(folder, 1)),
        "map_table, two processes": (WORKERS, lambda folder: in_processes(folder, WORKERS)),
    }
    try:
        import ray
    except ModuleNotFoundError:
        print("Ray is not installed: `make bench` has it")
        return local
    settings: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(num_cpus=WORKERS + 1, object_store_memory=200 * 2**20, **settings)
    ray.data.DataContext.get_current().enable_progress_bars = False
    return local | {
        "Ray Data, delegraph-ray": (WORKERS, lambda folder: on_ray(folder, Ours)),
        "Ray Data, onnxruntime alone": (WORKERS, lambda folder: on_ray(folder, Bare)),
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    contenders = ways()
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    memory: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), asked.rows)
        for _ in range(asked.rounds):
            for name, (workers, run) in contenders.items():
                table = run(Path(folder))
                assert table.num_rows == asked.rows
                rates[name].append(rate(table, workers))
                cpu[name].append(float(np.median(table["cpu"].to_numpy())))
                resident, own = (max(table[measure].to_pylist()) / 2**20 for measure in ("resident", "own"))
                memory[name] = f"{resident:,.0f} ({own:,.0f})"
    shown = Table("way", "rows a second, best", "all rounds", "MiB a worker (its own)", title=f"{os.cpu_count()} cores")
    for name, values in rates.items():
        shown.add_row(name, f"{max(values):.1f}", " ".join(f"{value:.1f}" for value in values), memory[name])
    Console(width=120).print(shown)
    names = [name for name in rates if name.startswith("Ray Data")]
    for what, ratio in (
        ("rows a second", [max(rates[name]) for name in names]),
        ("rows a second of CPU time", [1 / min(cpu[name]) for name in names]),
    ):
        if names:
            print(f"delegraph-ray / onnxruntime alone, {what}, best rounds: {ratio[0] / ratio[1]:.3f}")


if __name__ == "__main__":
    main()
