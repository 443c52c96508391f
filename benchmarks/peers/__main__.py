"""`python -m benchmarks.peers [--models a,b] [--peers a,b] …`: every peer in one run, each in a process of its own.

    prepare   one after the other: model -> file              seconds, bytes
    load      all of one model at once: file -> a call        seconds to the first result, dB to eager's
    rounds    in turn, in another order each time: calls      the median of each round; the best round counts

What is measured is added to a file of JSON, so that a long run can be made in parts; `benchmarks.peers.report` makes
the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.worker import PEERS
from benchmarks.processes import EXECUTORCH, POOLS, ROOT

WORKER: Final = Path(__file__).with_name("worker.py")
ENVIRONMENT: Final = ROOT / "build" / "peers" / "bin" / "python"
PYTHON: Final = {"delegraph": Path(sys.executable), "XNNPACK": EXECUTORCH} | dict.fromkeys(
    ("eager", "torch.compile", "onnxruntime", "onnxruntime, dynamo", "OpenVINO"), ENVIRONMENT
)
QUANTIZED: Final = ("int8", "int8_dynamic", "int4")
OFFERS: Final = {
    "delegraph": ("float32", "bfloat16", *QUANTIZED),
    "eager": ("float32", "bfloat16"),
    "torch.compile": ("float32", "bfloat16"),
    "onnxruntime": ("float32", *QUANTIZED),
    "onnxruntime, dynamo": ("float32",),
    "OpenVINO": ("float32", "bfloat16", *QUANTIZED),
    "XNNPACK": ("float32", *QUANTIZED),
}
"""What each has on a CPU. onnxruntime has no bfloat16 kernels there, XNNPACK's partitioner takes none."""
PACKAGES: Final = {
    EXECUTORCH: ("executorch",),
    ENVIRONMENT: ("torch", "onnxruntime", "openvino", "nncf"),
    Path(sys.executable): ("torch", "onnxruntime", "numpy", "transformers", "torchao"),
}


@dataclass(frozen=True, slots=True)
class Contender:
    """A peer in one precision."""

    peer: str
    precision: str

    def __str__(self) -> str:
        return f"{self.peer}, {self.precision}"


def _command(what: str, peer: str, *arguments: object) -> list[str]:
    return [str(PYTHON[peer]), "-W", "ignore", str(WORKER), what, peer, *map(str, arguments)]


class Runner:
    """A loaded contender: `round` gives milliseconds, `peak` ends it."""

    def __init__(self, command: list[str], threads: int) -> None:
        environment = os.environ | dict.fromkeys(POOLS, str(threads))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.first = self._answer()

    def round(self, seconds: float) -> float:
        """The median of calls for so long."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return float(self._answer()["ms"])

    def peak(self) -> float:
        """The most memory that its process had, in MB."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return float(self._answer()["peak_mb"])

    def kill(self) -> None:
        """End the process, in whatever state it is."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        told = []
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
            told.append(line)
        raise RuntimeError(_last_lines("".join(told)))


def measure(name: str, batch: int, contenders: list[Contender], options: argparse.Namespace) -> dict[str, Any]:
    """Threads -> contender -> figures, or {"error": the last lines of what it wrote}."""
    with tempfile.TemporaryDirectory() as place:
        folder, prepared, results = Path(place), {}, {}
        _write_example(name, batch, folder)
        for peer in dict.fromkeys(one.peer for one in contenders):
            prepared |= _prepared(peer, [one for one in contenders if one.peer == peer], name, batch, folder, options)
        for threads in map(int, options.threads.split(",")):
            figures = {one: dict(found) for one, found in prepared.items()}
            with ExitStack() as stack:
                runners = {}
                for one, found in figures.items():
                    if "error" in found:
                        continue
                    command = [*options.prefix.split(), *_command("run", one.peer, one.precision, folder, threads)]
                    try:
                        runner = Runner(command, threads)
                    except RuntimeError as error:
                        found["error"] = str(error)
                        continue
                    stack.callback(runner.kill)
                    found |= runner.first
                    runners[one] = runner
                for one, medians in _rounds(runners, options.rounds, options.seconds).items():
                    figures[one] |= {"ms": min(medians), "rounds": medians, "peak_mb": runners[one].peak()}
            results[str(threads)] = {str(one): found for one, found in figures.items()}
        return results


def _rounds(runners: dict[Contender, Runner], rounds: int, seconds: float) -> dict[Contender, list[float]]:
    medians: dict[Contender, list[float]] = {one: [] for one in runners}
    order = random.Random(0)
    for _ in range(rounds):
        for one in order.sample(list(runners), len(runners)):
            medians[one].append(runners[one].round(seconds))
    return medians


def _prepared(
    peer: str, contenders: list[Contender], name: str, batch: int, folder: Path, options: argparse.Namespace
) -> dict[Contender, dict[str, Any]]:
    precisions = ";".join(one.precision for one in contenders)
    command = [*options.prefix.split(), *_command("prepare", peer, precisions, folder, name, batch)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, error = process.communicate(timeout=options.patience)
    except subprocess.TimeoutExpired:
        process.kill()
        out, error = process.communicate()[0], f"not ready after {options.patience:g} s"
    told = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    found = {answer.pop("precision"): answer for answer in told}
    return {one: found.get(one.precision, {"error": _last_lines(error)}) for one in contenders}


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return " | ".join(lines[-2:])[-400:] or "it ended without a word"


def _write_example(name: str, batch: int, folder: Path) -> None:
    import numpy as np
    import torch

    from benchmarks.models import outputs
    from benchmarks.peers.models import make

    model, args = make(name, batch)
    with torch.no_grad():
        np.save(folder / "expected.npy", outputs(model(*args))[0].numpy())
    np.savez(folder / "inputs.npz", *(x.numpy() for x in args))


def _versions() -> dict[str, str]:
    """Package -> version, from each environment."""
    found: dict[str, str] = {}
    for python, packages in PACKAGES.items():
        code = (
            f"import json; from importlib.metadata import *; print(json.dumps({{p: version(p) for p in {packages}}}))"
        )
        ran = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
        found = json.loads(ran.stdout) | found if ran.returncode == 0 else found
    return found | {"Python": platform.python_version()}


def _processor() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    flags = next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])
    told = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8") if flag in flags]
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return {"processor": model, "has": told, "cores": os.cpu_count()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    from benchmarks.peers.models import MODELS

    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--peers", default=";".join(PEERS), help="separated by semicolons")
    parser.add_argument("--precisions", default="float32,bfloat16,int8,int8_dynamic,int4")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each round")
    parser.add_argument("--patience", type=float, default=600, help="seconds that a peer may take to make its files")
    parser.add_argument("--prefix", default="", help="what workers are run by, such as 'chrt -f 40'")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "peers.json")
    options = parser.parse_args()
    missing = {str(PYTHON[peer]) for peer in options.peers.split(";") if not PYTHON[peer].exists()}
    if missing or (options.prefix and shutil.which(options.prefix.split()[0]) is None):
        print(f"missing: {', '.join(missing) or options.prefix}; make setup-peers setup-executorch")
        return 1
    results = json.loads(options.json.read_text()) if options.json.exists() else {"models": {}}
    results |= {"versions": _versions(), "machine": _processor()}
    for name in options.models.split(","):
        for batch in map(int, options.batches.split(",")):
            contenders = [
                Contender(peer, precision)
                for precision in options.precisions.split(",")
                for peer in options.peers.split(";")
                if precision in OFFERS[peer]
            ]
            print(f"{name}, batch {batch}", flush=True)
            for threads, figures in measure(name, batch, contenders, options).items():
                results["models"].setdefault(f"{name}, batch {batch}, {threads} threads", {}).update(figures)
                for one, found in figures.items():
                    shown = (
                        found.get("error") or f"{found['ms']:9.3f} ms {found['db']:5.0f} dB {found['made_s']:6.1f} s"
                    )
                    print(f"  {threads} threads  {one!s:32} {shown}", flush=True)
            options.json.write_text(json.dumps(results, indent=1))
    print(f"written: {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
