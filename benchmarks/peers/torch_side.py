"""torch itself: eager, and compiled by `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def prepare(peer: str, precision: str, model: Any, data: Any, folder: Path) -> float:
    """Write the module. Compiling is part of the first call."""
    from benchmarks.peers.models import Narrow

    torch.save(Narrow(model) if precision == "bfloat16" else model, folder / "model.pt")
    return 0.0


def load(peer: str, precision: str, folder: Path, arrays: list[Any], threads: int) -> Callable[[], Any]:
    """A call that gives the first output."""
    from benchmarks.models import outputs

    torch.set_num_threads(threads)
    model = torch.load(folder / "model.pt", weights_only=False)
    run = torch.compile(model) if peer == "torch.compile" else model
    args = [torch.from_numpy(x) for x in arrays]

    def call() -> Any:
        with torch.inference_mode():
            return outputs(run(*args))[0].numpy()

    return call
