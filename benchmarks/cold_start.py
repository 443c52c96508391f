"""`python -m benchmarks.cold_start [--runs 15]`: CPU time of a new process to its first output, and its peak memory.

A small convolutional net. Delegraph is installed as on a device: its wheels, NumPy and onnxruntime in an environment of
their own, in a temporary folder. The processes take turns; each has one thread. The median of CPU time counts, user and
system, for a machine that does something else lengthens the time that passes. Ratios are to what does the same without
Delegraph: onnxruntime on the same ONNX graph, NumPy that has been imported. Linux alone.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import delegraph
from benchmarks.processes import POOLS, ROOT

X: Final = "x = numpy.ones((1, 3, 32, 32), numpy.float32)"
LOAD: Final = "import numpy, delegraph; {x}; delegraph.load('{file}')(x)"
ZIPAPP: Final = (
    "import sys; sys.path.insert(0, '{file}'); import numpy; from delegraph_selected import load; {x}; load()(x)"
)


PEAK: Final = "print(next(int(x.split()[1]) / 1024 for x in open('/proc/self/status') if x.startswith('VmHWM')))"
"""Not ru_maxrss, which starts with its parent's."""


@dataclass(slots=True)
class Contender:
    """A process that is started again and again. `like`: the one that its figures are compared with."""

    name: str
    code: str
    like: str = ""
    seconds: list[float] = field(default_factory=list)
    mebibytes: list[float] = field(default_factory=list)

    def start(self, python: Path, folder: Path) -> None:
        """Run it once. Raises `CalledProcessError` if it fails."""
        environment = os.environ | dict.fromkeys(POOLS, "1")
        command = [python, "-c", f"{self.code}; {PEAK}"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        self.mebibytes.append(float(done.stdout))


PEER: Final = "import numpy, onnxruntime; {x}; onnxruntime.InferenceSession('m.onnx').run(None, {{'x': x}})"

CONTENDERS: Final = (
    ("NumPy, imported", f"import numpy; {X}", ""),
    ("onnxruntime", PEER.format(x=X), ""),
    ("portable", LOAD.format(x=X, file="portable.pte"), "NumPy, imported"),
    ("portable, zipapp", ZIPAPP.format(x=X, file="plain.pyz"), "NumPy, imported"),
    ("portable, zipapp with bytecode", ZIPAPP.format(x=X, file="compiled.pyz"), "NumPy, imported"),
    ("cpu", LOAD.format(x=X, file="cpu.pte"), "onnxruntime"),
)  # fmt: skip


def prepare(folder: Path) -> Path:
    """Put the programs into `folder` and the device's environment below it; its Python."""
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 28 * 28, 10)
    model, x = nn.Sequential(*layers).eval(), torch.ones(1, 3, 32, 32)
    for name, backends in (("portable", []), ("cpu", ["cpu"])):
        delegraph.lower(model, (x,), backends=backends).save(folder / f"{name}.pte")
    torch.onnx.export(model, (x,), str(folder / "m.onnx"), input_names=["x"], dynamo=False)
    select = [sys.executable, "-m", "delegraph", "select", "portable.pte"]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name, more in (("plain", []), ("compiled", ["--bytecode", version])):
        subprocess.run([*select, "-o", f"{name}.pyz", *more], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-m", "venv", folder / "device"], check=True)
    python = folder / "device" / "bin" / "python"
    parts = [str(ROOT / part) for part in (".", "backends/cpu", "plugins/portable")]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *parts], check=True)
    return python


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=15, help="processes of each kind; one more warms the file cache")
    runs = parser.parse_args().runs
    contenders = [Contender(*row) for row in CONTENDERS]
    with tempfile.TemporaryDirectory() as name:
        python = prepare(Path(name))
        for _ in range(runs + 1):
            for contender in contenders:
                contender.start(python, Path(name))
    seconds = {each.name: statistics.median(each.seconds[1:]) for each in contenders}
    peaks = {each.name: statistics.median(each.mebibytes[1:]) for each in contenders}
    table = Table("process", "CPU, ms", "MiB", "CPU", "memory", title=f"to the first output, {runs} runs in turn")
    for each in contenders:
        ratios = (
            f"{figures[each.name] / figures[each.like]:.2f} times" if each.like else "" for figures in (seconds, peaks)
        )
        table.add_row(each.name, f"{seconds[each.name] * 1e3:.0f}", f"{peaks[each.name]:.0f}", *ratios)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
