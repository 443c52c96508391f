"""Runs inside ExecuTorch's environment: `executorch_side.py MODEL THREADS` prints one line of JSON with its figures."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))


def median_ms(call: Callable[[], Any], seconds: float = 1.5) -> float:
    """Median wall time of a call in milliseconds, over about `seconds`, after one that does not count."""
    call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def main(name: str, threads: int) -> None:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge, to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib

    from benchmarks.models import make

    torch.set_num_threads(threads)
    portable_lib._unsafe_reset_threadpool(threads)
    model, args = make(name)
    exported = torch.export.export(model, args)
    to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])  # imports and caches do not count
    start = time.perf_counter()
    program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
    lowering = time.perf_counter() - start
    portable = to_edge(exported).to_executorch()
    plan = portable.executorch_program.execution_plan[0]
    xnnpack = portable_lib._load_for_executorch_from_buffer(program.buffer)
    kernels = portable_lib._load_for_executorch_from_buffer(portable.buffer)
    figures = {
        "lowering_s": lowering,
        "xnnpack_ms": median_ms(lambda: xnnpack.run_method("forward", args)),
        "portable_ms": median_ms(lambda: kernels.run_method("forward", args)),
        "planned_bytes": sum(plan.non_const_buffer_sizes),
    }
    print("\n" + json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
