"""`python -m benchmarks.shared_machine [--models a,b]`: one and two threads on `cpu`, alone and beside another process.

The other process keeps one core busy. Rows are ways to wait for work; their rounds are interleaved in one process, but
for the pool of the process, which has one of its own.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.table import Table

import delegraph
from benchmarks.models import make
from benchmarks.processes import in_process

WAYS: Final[dict[str, dict[str, Any]]] = {
    "1 thread": {"num_threads": 1},
    "2, as by default": {"num_threads": 2},
    "2, spinning 20 us": {"num_threads": 2, "spin_duration_us": 20},
    "2, spinning 500 us": {"num_threads": 2, "spin_duration_us": 500},
    "2, sleeping": {"num_threads": 2, "spin_duration_us": 0},
}
SHARED: Final[dict[str, dict[str, Any]]] = {
    "2, the pool of the process": {"num_threads": 2, "thread_pool": "shared"},
}
SECONDS: Final = 0.3


def measure(name: str, ways: dict[str, dict[str, Any]], rounds: int) -> dict[str, list[float]]:
    """For each way the medians in milliseconds, alone and beside another process, over rounds one after the other."""
    model, args = make(name)
    program = bytes(delegraph.lower(model, args, backends=["cpu"]))
    arrays = [x.numpy() for x in args]
    modules = {way: delegraph.load(program, backend_options={"cpu": options}) for way, options in ways.items()}
    alone = _medians(modules, arrays, rounds)
    with _busy_process():
        beside = _medians(modules, arrays, rounds)
    return {way: [alone[way], beside[way]] for way in ways}


def _medians(modules: dict[str, Callable[..., Any]], arrays: list[Any], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {way: [] for way in modules}
    for _ in range(rounds):
        for way, module in modules.items():
            times[way] += _times(lambda: module(*arrays))  # noqa: B023  (called at once)
    return {way: 1e3 * statistics.median(own) for way, own in times.items()}


def _times(run: Callable[[], object]) -> list[float]:
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times[len(times) // 5 :]


@contextmanager
def _busy_process() -> Iterator[None]:
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.5)
        yield
    finally:
        other.kill()
        other.wait()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="mobilenet_v2,vit_tiny,lstm,mlp", help="comma-separated")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    table = Table("model", "threads", "alone", "beside another process", title="median ms a call")
    for name in arguments.models.split(","):
        rows: dict[str, list[float]] = {}
        for ways in (WAYS, SHARED):
            call = f"measure({name!r}, {ways!r}, {arguments.rounds})"
            rows |= in_process("benchmarks.shared_machine", call, threads=2)
        for way, medians in rows.items():
            table.add_row(name, way, *(f"{median:.3f}" for median in medians))
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    main()
