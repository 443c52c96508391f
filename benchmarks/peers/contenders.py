"""Who takes part, in which precisions, and the Python that each runs in."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import EXECUTORCH, PEERS, ROOT

__all__ = ["OURS", "PYTHON", "Contender", "command", "contenders", "machine", "revision", "versions"]

OURS: Final = "delegraph"
WORKER: Final = Path(__file__).with_name("worker.py")
PYTHON: Final = {
    OURS: Path(sys.executable),
    f"{OURS} on openvino": Path(sys.executable),
    f"{OURS} on mnn": Path(sys.executable),
    "XNNPACK": EXECUTORCH,
} | dict.fromkeys(("eager", "torch.compile", "onnxruntime", "onnxruntime, dynamo", "OpenVINO", "MNN"), PEERS)
QUANTIZED: Final = ("int8", "int8_dynamic", "int4")
OFFERS: Final = {
    OURS: ("float32", "bfloat16", *QUANTIZED),
    f"{OURS} on openvino": ("float32", "bfloat16", *QUANTIZED),
    f"{OURS} on mnn": ("float32",),
    "eager": ("float32", "bfloat16"),
    "torch.compile": ("float32",),
    "onnxruntime": ("float32", *QUANTIZED),
    "onnxruntime, dynamo": ("float32",),
    "OpenVINO": ("float32", "bfloat16", *QUANTIZED),
    "MNN": ("float32",),
    "XNNPACK": ("float32", *QUANTIZED),
}
"""The precisions that each has on a CPU. onnxruntime has no bfloat16 kernels there, XNNPACK's partitioner takes none,
and MNN's tools quantize to a form of their own. torch compiles a model when it is first called, for a minute and more
for each number of threads: in bfloat16 eager stands for it."""
SLOW: Final = ("torch.compile", "onnxruntime, dynamo", "XNNPACK")
SMALL: Final = ("mlp", "lstm")
"""Models for which, if nobody says otherwise, those compete, too, that take minutes to get ready for the others."""
ALL: Final = "all"
PACKAGES: Final = {
    EXECUTORCH: ("executorch",),
    PEERS: ("torch", "onnxruntime", "openvino", "nncf", "MNN"),
    Path(sys.executable): ("torch", "onnxruntime", "numpy", "transformers", "torchao"),
}


@dataclass(frozen=True, slots=True)
class Contender:
    """A peer in one precision."""

    peer: str
    precision: str

    def __str__(self) -> str:
        return f"{self.peer}, {self.precision}"


def contenders(model: str, peers: str, precisions: str) -> list[Contender]:
    """Those of `peers`, separated by semicolons or "all", in `precisions`, separated by commas; without, those that are
    ready in seconds.
    """
    quick = [peer for peer in OFFERS if model in SMALL or peer not in SLOW]
    chosen = list(OFFERS) if peers == ALL else peers.split(";") if peers else quick
    return [Contender(peer, one) for one in precisions.split(",") for peer in chosen if one in OFFERS[peer]]


def command(what: str, peer: str, *arguments: object) -> list[str]:
    """That of a worker."""
    return [str(PYTHON[peer]), "-W", "ignore", str(WORKER), what, peer, *map(str, arguments)]


@cache
def revision() -> str:
    """Of this repository; a plus where what is measured differs from it."""
    head = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "core", "backends"], cwd=ROOT, check=False)
    return (head.stdout.strip() or "unknown") + "+" * (changed.returncode != 0)


def versions() -> dict[str, str]:
    """Package -> version, from each environment."""
    found: dict[str, str] = {}
    for python, packages in PACKAGES.items():
        code = (
            f"import json; from importlib.metadata import *; print(json.dumps({{p: version(p) for p in {packages}}}))"
        )
        ran = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
        found = json.loads(ran.stdout) | found if ran.returncode == 0 else found
    return found | {"Python": platform.python_version()}


def machine() -> dict[str, Any]:
    """The processor, what it has of what matters here, and its cores."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    flags = next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])
    told = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8") if flag in flags]
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return {"processor": model, "has": told, "cores": os.cpu_count()}
