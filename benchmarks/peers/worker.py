"""A process for one peer: `worker.py prepare PEER PRECISION;… FOLDER MODEL BATCH`, `run PEER PRECISION FOLDER THREADS`.

prepare: the model -> files in FOLDER, and a line of JSON for each precision: seconds, bytes.
run: a line of JSON when all is imported; then, for a line on standard input, those files -> a callable and its figures,
and for each further line so many seconds of calls and the median of them. At the end of the input, the most memory that
the process has had.

It runs in whatever environment has the peer, and imports no more than that needs: what `run` takes is measured.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

PEERS = {
    "delegraph": "delegraph_side",
    "delegraph on openvino": "delegraph_side",
    "delegraph on mnn": "delegraph_side",
    "eager": "torch_side",
    "torch.compile": "torch_side",
    "onnxruntime": "onnxruntime_side",
    "onnxruntime, dynamo": "onnxruntime_side",
    "OpenVINO": "openvino_side",
    "MNN": "mnn_side",
    "XNNPACK": "executorch_side",
}

LATE = 4
"""Where three calls take longer than so many times the seconds of a round, fewer count."""


def prepare(side: Any, peer: str, precisions: list[str], name: str, batch: int, folder: Path) -> None:
    """Make the peer's files, a folder for each precision, and tell of each. What is imported first does not count."""
    from benchmarks.peers import models

    warm, warm_args = models.make("mlp")
    with tempfile.TemporaryDirectory() as place:
        side.prepare(peer, precisions[0], warm, models.calibration(warm_args), Path(place))
    for precision in precisions:
        own = folder / f"{peer}, {precision}"
        own.mkdir()
        model, args = models.make(name, batch)
        data = models.calibration(args)
        start = time.perf_counter()
        try:
            calibration = side.prepare(peer, precision, model, data, own)
        except Exception as error:
            _answer({"precision": precision, "error": f"{type(error).__name__}: {error}"[-400:]})
            continue
        made = time.perf_counter() - start
        nbytes = sum(file.stat().st_size for file in own.iterdir())
        _answer({"precision": precision, "made_s": made, "calibration_s": calibration, "bytes": nbytes})


def run(side: Any, peer: str, precision: str, folder: Path, threads: int) -> None:
    """Load, answer each line with a median in milliseconds, and end with the peak in MB."""
    arrays = list(np.load(folder / "inputs.npz").values())
    expected = np.load(folder / "expected.npy")
    _answer({"imported": True})
    sys.stdin.readline()
    start = time.perf_counter()
    call = side.load(peer, precision, folder / f"{peer}, {precision}", arrays, threads)
    got = np.asarray(call())
    _answer({"first_s": time.perf_counter() - start, "db": _decibels(expected, got)})
    for line in sys.stdin:
        _answer({"ms": _median_ms(call, float(line))})
    _answer({"peak_mb": _peak_mb()})


def _median_ms(call: Callable[[], Any], seconds: float) -> float:
    call()
    times: list[float] = []
    begin = time.perf_counter()
    while (passed := time.perf_counter() - begin) < seconds or (len(times) < 3 and passed < LATE * seconds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def _decibels(expected: Any, got: Any) -> float:
    """Signal to error: 20 are a tenth of the signal, 40 a hundredth."""
    error = float(((expected - got.reshape(expected.shape)) ** 2).sum())
    return float(10 * np.log10((expected**2).sum() / max(error, 1e-30)))


def _peak_mb() -> float:
    """Not `ru_maxrss`, with which a child starts at its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _answer(figures: dict[str, Any]) -> None:
    print("\n" + json.dumps(figures), flush=True)


def main(what: str, peer: str, precision: str, folder: str, *rest: str) -> None:
    side = importlib.import_module(f"benchmarks.peers.{PEERS[peer]}")
    if what == "prepare":
        prepare(side, peer, precision.split(";"), rest[0], int(rest[1]), Path(folder))
    else:
        run(side, peer, precision, Path(folder), int(rest[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
