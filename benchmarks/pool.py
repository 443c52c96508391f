"""`python -m benchmarks.pool [--models a,b]`: calls a second with 1, 2 and 4 workers over one program."""

from __future__ import annotations

import argparse
import time
from typing import Any

from rich.console import Console
from rich.table import Table

import delegraph
from benchmarks.models import MODELS, make
from benchmarks.processes import in_process

WORKERS = (1, 2, 4)
BACKENDS: dict[str, list[str]] = {"portable": [], "cpu": ["cpu"]}


def calls_per_second(name: str, backend: str, seconds: float = 1.0, rounds: int = 3) -> list[float]:
    """The best of some rounds, for each number of workers; the rounds of all of them interleaved."""
    model, args = make(name)
    options: dict[str, Any] = {} if backend == "portable" else {"backend_options": {"cpu": {"thread_pool": "session"}}}
    module = delegraph.load(bytes(delegraph.lower(model, args, backends=BACKENDS[backend])), **options)
    arrays = [x.numpy() for x in args]
    pools = [delegraph.Pool(module, workers) for workers in WORKERS]
    best = [0.0] * len(pools)
    for _ in range(rounds):
        for i, pool in enumerate(pools):
            best[i] = max(best[i], _rate(pool, arrays, seconds))
    return best


def _rate(pool: delegraph.Pool, arrays: list[Any], seconds: float) -> float:
    waiting = [pool.submit(*arrays) for _ in range(2 * pool.workers)]
    start, calls = time.perf_counter(), 0
    while time.perf_counter() < start + seconds:
        waiting.pop(0).result()
        calls += 1
        waiting.append(pool.submit(*arrays))
    elapsed = time.perf_counter() - start
    for future in waiting:
        future.result()
    return calls / elapsed


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated")
    table = Table("model", "backend", *(f"{n} workers" for n in WORKERS), title="calls a second, one thread a worker")
    for name in parser.parse_args().models.split(","):
        for backend in BACKENDS:
            rates = in_process("benchmarks.pool", f"calls_per_second({name!r}, {backend!r})", threads=1)
            ratios = [f"{rate:,.0f} ({rate / rates[0]:.2f}x)" for rate in rates]
            table.add_row(name, backend, *ratios)
    Console().print(table)


if __name__ == "__main__":
    main()
