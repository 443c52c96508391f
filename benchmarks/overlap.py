"""`python -m benchmarks.overlap`: independent delegates together and in turn, and what a chain of them costs a call.

A simulated device with two engines (`tests/plugins/acme_twin`) takes 0.2 s a delegate; then towers on the CPU, one
thread for each delegate, against the same in one delegate.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.processes import ROOT

SECONDS = 0.2
"""For a delegate of the simulated device."""


def seconds_of(call: Callable[[], object], repeat: int) -> float:
    """The median over `repeat` calls, one not counted."""
    call()
    taken = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return median(taken)


def main() -> None:
    """Print the table."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.path.insert(0, str(ROOT / "tests/plugins/acme_twin"))
    import torch
    from acme_twin.aot import TwinLowering, twin_partitioner
    from acme_twin.runtime import TwinBackend
    from torch import nn

    import delegraph
    from delegraph.aot import ExecutorchBackendConfig
    from delegraph.plugins import PluginRegistry, use_registry

    class Two(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x).neg() + torch.sigmoid(x * 2).neg()

    class Chain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(10):
                x = torch.tanh(x)
            return x

    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = (nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]) for _ in range(2))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.left(x), self.right(x)

    registry = PluginRegistry.discover()
    registry.register("partitioners", "twin", twin_partitioner)
    registry.register("lowerings", "AcmeTwin", TwinLowering)
    registry.register("backends", "AcmeTwin", TwinBackend)
    x, rows = torch.linspace(-1, 1, 16), torch.randn(64, 512)
    in_turn = ExecutorchBackendConfig(overlap_delegates=False)
    options = {"cpu": {"num_threads": 1}}
    table = Table("model", "ms a call", "planned bytes")
    with use_registry(registry), torch.no_grad():
        cases = (
            ("two delegates of 200 ms", Two(), x, f"twin{{seconds={SECONDS}}}", None, 5),
            ("two delegates of 200 ms, planned in turn", Two(), x, f"twin{{seconds={SECONDS}}}", in_turn, 5),
            ("chain of 10 delegates of 0 ms", Chain(), x, "twin", None, 500),
            ("two towers on the CPU, together", Towers().eval(), rows, "cpu{submit=true}", None, 50),
            ("two towers on the CPU, one delegate", Towers().eval(), rows, "cpu", None, 50),
        )
        for name, model, example, backend, config, repeat in cases:
            lowered = delegraph.lower(model, (example,), backends=[backend], config=config)
            run = delegraph.load(bytes(lowered), backend_options=options if "cpu" in backend else None)
            array = example.numpy()
            taken = seconds_of(lambda run=run, array=array: run(array), repeat)
            memory = lowered.program.memory["forward"].planned_bytes
            table.add_row(name, f"{taken * 1e3:.3f}", f"{memory:,}")
    Console().print(table)


if __name__ == "__main__":
    main()
