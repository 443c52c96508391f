"""A process without torch that runs the zoo's programs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Device:
    """Runs saved programs; starting a process for each would take longer than running them."""

    process: subprocess.Popen[str]

    def run(self, folder: Path, inputs: Mapping[str, torch.Tensor]) -> list[np.ndarray]:
        """The outputs of `folder`'s model.pte, flat. Raises `AssertionError` with the device's own traceback."""
        assert self.process.stdin is not None and self.process.stdout is not None
        np.savez(folder / "inputs.npz", **{name: value.numpy() for name, value in inputs.items()})
        print(folder, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        assert answer == "done", json.loads(answer) if answer else "the device's process ended"
        with np.load(folder / "outputs.npz") as outputs:
            return list(outputs.values())


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    command = [sys.executable, ROOT / "examples" / "without_torch.py", Path(__file__).with_name("device.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Device(process)
        assert process.stdin is not None
        process.stdin.close()
