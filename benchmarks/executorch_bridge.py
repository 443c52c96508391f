"""`python -m benchmarks.executorch_bridge [--models a,b] [--rounds 3]`: lowering onto XNNPACK, ours and ExecuTorch's.

Runs in ExecuTorch's environment, with Delegraph installed beside it (`make setup-executorch`): one process for each
model, export excluded, both lowerings in turns after one of each that does not count. Both files are run by
ExecuTorch's runtime, and their outputs compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.models import MODELS, make, outputs

ROOT = Path(__file__).parents[1]


def measure(name: str, rounds: int, threads: int) -> dict[str, Any]:
    """Seconds of each lowering (median), sizes, and the largest difference between the outputs."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib

    import delegraph

    torch.set_num_threads(threads)
    portable_lib._unsafe_reset_threadpool(threads)
    model, args = make(name)
    exported = torch.export.export(model, args)

    def ours() -> bytes:
        return bytes(delegraph.lower(exported, backends=["executorch:xnnpack"]))

    def theirs() -> bytes:
        manager = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
        return bytes(manager.to_executorch().buffer)

    seconds: dict[Callable[[], bytes], list[float]] = {ours: [], theirs: []}
    files = {lower: lower() for lower in seconds}
    for _ in range(rounds):
        for lower, taken in seconds.items():
            start = time.perf_counter()
            lower()
            taken.append(time.perf_counter() - start)

    def run(data: bytes) -> list[torch.Tensor]:
        results = portable_lib._load_for_executorch_from_buffer(data).run_method("forward", args)
        return outputs(results)

    pairs = list(zip(run(files[ours]), run(files[theirs]), strict=True))
    here = [torch.from_numpy(x) for x in _arrays(delegraph.load(files[ours])(*(x.numpy() for x in args)))]
    return {
        "ours_s": statistics.median(seconds[ours]),
        "executorch_s": statistics.median(seconds[theirs]),
        "ours_bytes": len(files[ours]),
        "executorch_bytes": len(files[theirs]),
        "difference": max(float((a - b).abs().max()) for a, b in pairs),
        "difference_here": max(float((a - b).abs().max()) for a, (_, b) in zip(here, pairs, strict=True)),
        "largest": max(float(b.abs().max()) for _, b in pairs),
    }


def _arrays(result: Any) -> list[Any]:
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(result) if hasattr(leaf, "shape")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.executorch_bridge", description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "executorch_bridge.json")
    arguments = parser.parse_args()
    if arguments.one:
        print("\n" + json.dumps(measure(arguments.one, arguments.rounds, arguments.threads)))
        return 0
    versions = {name: version(name) for name in ("torch", "executorch", "delegraph")}
    machine = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    print({**machine, **versions, "threads": arguments.threads}, flush=True)
    figures = {}
    for name in arguments.models.split(","):
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.executorch_bridge", "--one", name]
        command += ["--rounds", str(arguments.rounds), "--threads", str(arguments.threads)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        if ran.returncode != 0:
            raise SystemExit(f"{name} failed:\n{ran.stderr[-3000:]}")
        figures[name] = f = json.loads(ran.stdout.strip().splitlines()[-1])
        ratio, largest = f["executorch_s"] / f["ours_s"], f["largest"]
        print(
            f"{name:14} ours {f['ours_s']:7.2f} s   ExecuTorch {f['executorch_s']:7.2f} s   {ratio:5.1f}x"
            f"   outputs differ by {f['difference']:.2g} of {largest:.2g} (run here {f['difference_here']:.2g})"
            f"   {f['ours_bytes']:,} and {f['executorch_bytes']:,} bytes",
            flush=True,
        )
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({"machine": machine, **versions, "models": figures}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
