"""`python -m benchmarks.callers [--models a,b] [--threads 1,2]`: calls a second of one loaded model by 1 to 16 threads.

Beside delegraph's backends stand their engines alone: onnxruntime, one session for all threads, and OpenVINO, one
compiled model with a request for each thread: as a server would call them. All take turns, round by round. `threads`
compute within a call, in each.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import delegraph
from benchmarks.models import MODELS, make
from benchmarks.processes import in_process

CALLERS = (1, 2, 4, 16)
ENGINES = {"cpu": "onnxruntime alone", "openvino": "OpenVINO alone"}

Call = Callable[[], Any]


def small() -> tuple[Any, tuple[Any, ...]]:
    """Two linear layers on a row of 64: calling costs more than computing."""
    import torch

    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).eval(), (
        torch.randn(1, 64),
    )


def contenders(name: str, threads: int) -> dict[str, Call]:
    """A call of the model in each of them, for any thread."""
    import onnxruntime
    import openvino
    import torch

    model, args = small() if name == "small" else make(name)
    arrays = [x.numpy() for x in args]
    ours = {
        backend: delegraph.load(
            bytes(delegraph.lower(model, args, backends=[backend])), backend_options={backend: {"num_threads": threads}}
        )
        for backend in ENGINES
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        torch.onnx.export(model, args, file, dynamo=False, verbose=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        # Our blobs are computed as they are written; by itself OpenVINO may take bfloat16.
        settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(str(file), "CPU", settings)
    feeds = {info.name: array for info, array in zip(session.get_inputs(), arrays, strict=True)}
    own = threading.local()

    def openvino_call() -> Any:
        if not hasattr(own, "request"):
            own.request = compiled.create_infer_request()
        return own.request.infer(arrays)

    return {
        "cpu": lambda: ours["cpu"](*arrays),
        "openvino": lambda: ours["openvino"](*arrays),
        "onnxruntime alone": lambda: session.run(None, feeds),
        "OpenVINO alone": openvino_call,
    }


def calls_per_second(name: str, threads: int, seconds: float = 0.5, rounds: int = 10) -> dict[str, list[float]]:
    """The best of some rounds for each number of callers, by contender; their rounds interleaved."""
    calls = contenders(name, threads)
    best = {contender: [0.0] * len(CALLERS) for contender in calls}
    for _ in range(rounds):
        for column, callers in enumerate(CALLERS):
            for contender, call in calls.items():
                best[contender][column] = max(best[contender][column], _rate(call, callers, seconds))
    return best


def _rate(call: Call, callers: int, seconds: float) -> float:
    counts, begins, ends = [0] * callers, [0.0] * callers, [0.0] * callers
    start = threading.Barrier(callers)

    def work(number: int) -> None:
        call()
        start.wait()
        begins[number] = ends[number] = time.perf_counter()  # not this function's: callers may keep it waiting
        while ends[number] < begins[number] + seconds:
            call()
            counts[number] += 1
            ends[number] = time.perf_counter()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (max(ends) - min(begins))


def main() -> None:
    """Print a table: calls a second, and of each backend the ratio to its engine alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(["small", *MODELS]), help="comma-separated")
    parser.add_argument("--threads", default="1,2", help="threads within a call, comma-separated")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each round")
    asked = parser.parse_args()
    table = Table("model", "threads", "runtime", *(f"{n} callers" for n in CALLERS), title="calls a second")
    for name in asked.models.split(","):
        for threads in map(int, asked.threads.split(",")):
            call = f"calls_per_second({name!r}, {threads}, {asked.seconds})"
            rates = in_process("benchmarks.callers", call, threads=threads)
            for contender, row in rates.items():
                cells = [f"{rate:,.0f}" for rate in row]
                if contender in ENGINES:
                    alone = rates[ENGINES[contender]]
                    cells = [
                        f"{cell} ({rate / other:.2f}x)" for cell, rate, other in zip(cells, row, alone, strict=True)
                    ]
                table.add_row(name, str(threads), contender, *cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
