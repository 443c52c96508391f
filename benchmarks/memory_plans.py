"""`python -m benchmarks.memory_plans [--models a,b] [--hard]`: what each planner plans, against ExecuTorch's greedy.

Models are lowered onto kernels alone, so that every intermediate tensor is planned; "bound" is the most bytes alive at
one time. `--hard` adds rectangles cut into pieces, which fit together without a gap: far harder than what models ask.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from time import perf_counter

from rich.console import Console
from rich.table import Table

import delegraph
from benchmarks.models import MODELS, make
from benchmarks.processes import ROOT
from delegraph.aot import ExecutorchBackendConfig
from delegraph.interfaces import Lifetime, MemoryPlanner, Plan
from delegraph.plugins import default_registry

PLANNERS = ("naive", "greedy", "search")
ALIGNMENT = 16


def lifetimes_of(name: str) -> list[Lifetime]:
    """What of a benchmark's model asks for memory."""
    seen: list[Lifetime] = []

    def recording(lifetimes: Sequence[Lifetime], alignment: int) -> Plan:
        seen.extend(lifetimes)
        return load("greedy")(lifetimes, alignment)

    model, args = make(name)
    config = ExecutorchBackendConfig(memory_planner=recording, check_kernels=False)
    delegraph.lower(model, args, config=config)
    return seen


def cut_up(count: int, seed: int) -> list[Lifetime]:
    """200 steps of 64 KiB, cut into `count` pieces across or along."""
    choice = Random(seed)
    pieces = [(0, 200, 0, 4096)]
    while len(pieces) < count:
        first, end, low, high = pieces.pop(choice.randrange(len(pieces)))
        across = choice.random() < 0.5 and end - first > 1
        start, stop = (first, end) if across else (low, high)
        if stop - start < 2:
            pieces.append((first, end, low, high))
            continue
        cuts = pairwise((start, choice.randint(start + 1, stop - 1), stop))
        pieces += [(a, b, low, high) if across else (first, end, a, b) for a, b in cuts]
    return [Lifetime(i, (high - low) * 16, first, end - 1) for i, (first, end, low, high) in enumerate(pieces)]


def executorch_greedy(lifetimes: Sequence[Lifetime]) -> int:
    """Bytes of ExecuTorch's greedy plan (`exir/memory_planning.py`): buffers shared by who never lives together."""
    objects: list[tuple[int, list[tuple[Lifetime, int]]]] = []
    for one in sorted(lifetimes, key=lambda one: -_aligned(one)):
        ends = [
            max((at + _aligned(m) for m, at in members if m.first <= one.last and one.first <= m.last), default=0)
            for _, members in objects
        ]
        free = [i for i, end in enumerate(ends) if not end]
        roomy = [i for i, end in enumerate(ends) if end + _aligned(one) <= objects[i][0]]
        if free or roomy:
            chosen = (free or roomy)[0]
            objects[chosen][1].append((one, ends[chosen]))
        else:
            objects.append((_aligned(one), [(one, 0)]))
    return sum(size for size, _ in objects)


def _aligned(one: Lifetime) -> int:
    return -(-one.nbytes // ALIGNMENT) * ALIGNMENT


def load(planner: str) -> MemoryPlanner:
    loaded: MemoryPlanner = default_registry().load("delegraph.memory_planners", planner)
    return loaded


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_plans", description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--hard", action="store_true", help="pieces of a rectangle as well")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "memory_plans.json")
    arguments = parser.parse_args()
    wanted = {name: lifetimes_of(name) for name in arguments.models.split(",") if name}
    if arguments.hard:
        wanted |= {f"{count} pieces, {seed}": cut_up(count, seed) for count in (25, 50, 100, 200) for seed in (0, 1)}
    table = Table("", "tensors", "bound", "ExecuTorch's greedy", *PLANNERS, "search: proven", "search: seconds")
    results = {}
    for name, lifetimes in wanted.items():
        begun = perf_counter()
        found = load("search")(lifetimes, ALIGNMENT)
        seconds = perf_counter() - begun
        bound = load("greedy")(lifetimes, ALIGNMENT).lower_bound
        peer = executorch_greedy(lifetimes)
        planned = {planner: load(planner)(lifetimes, ALIGNMENT).total for planner in PLANNERS}
        shown = [f"{nbytes / bound:.4f}" for nbytes in (peer, *planned.values())]
        table.add_row(
            name, str(len(lifetimes)), f"{bound:,}", *shown, "yes" if found.is_optimal else "no", f"{seconds:.2f}"
        )
        results[name] = {"bound": bound, "executorch": peer, **planned, "proven": found.is_optimal}
    Console(width=140).print(table)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
