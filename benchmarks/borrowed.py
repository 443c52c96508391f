"""`python -m benchmarks.borrowed [--models a,b] [--threads 1,2]`: what a call costs on top of onnxruntime's own.

One session of onnxruntime, that of the model's delegate, is called in seven ways in turn: by itself, with arrays
(`run`), with everything bound once, so that it takes no input and gives no result (`run_with_iobinding`), and with the
inputs bound and the outputs copied in each call (`bound anew`); and through Delegraph with inputs and outputs copied,
as it is loaded by default, into the caller's arrays (`out=`), and with a new input array in each call.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import delegraph
from benchmarks.models import MODELS, make
from benchmarks.processes import in_process
from delegraph.runtime import Borrowing

WAYS = ("run", "run_with_iobinding", "bound anew", "copied", "default", "out=", "new arrays")


def microseconds(name: str, seconds: float = 8.0) -> dict[str, float]:
    """The lower quartile of each way, the rounds of all of them interleaved."""
    model, args = make(name)
    data = bytes(delegraph.lower(model, args, backends=["cpu"]))
    arrays = [x.numpy() for x in args]
    calls = _calls(data, arrays)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    end, order = time.perf_counter() + seconds, random.Random(0)
    while time.perf_counter() < end:
        for way, call in order.sample(list(calls.items()), len(calls)):  # what ran before has left its caches
            given = [x.copy() for x in arrays] if way == "new arrays" else arrays
            start = time.perf_counter()
            call(given)
            times[way].append(time.perf_counter() - start)
    return {way: float(np.percentile(found, 25)) * 1e6 for way, found in times.items()}


def _calls(data: bytes, arrays: list[Any]) -> dict[str, Callable[[list[Any]], object]]:
    import onnxruntime

    sessions: list[Any] = []
    original = onnxruntime.InferenceSession.__init__

    def kept(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        sessions.append(self)

    onnxruntime.InferenceSession.__init__ = kept  # the delegate's own session, to be called without it
    try:
        ours = delegraph.load(data)
    finally:
        onnxruntime.InferenceSession.__init__ = original
    (session,) = sessions
    method = ours["forward"].method
    copied = ours.program.load_method("forward", borrowing=Borrowing(inputs="copy"), like=method)
    targets = [np.empty_like(found) for found in method.execute(arrays)]
    names = [found.name for found in session.get_inputs()]
    binding = session.io_binding()
    for input_name, array in zip(names, arrays, strict=True):
        binding.bind_ortvalue_input(input_name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    for output, array in zip(session.get_outputs(), targets, strict=True):
        binding.bind_ortvalue_output(output.name, onnxruntime.OrtValue.ortvalue_from_numpy(np.empty_like(array)))
    anew = session.io_binding()
    for output in session.get_outputs():
        anew.bind_output(output.name, "cpu")

    def bound_anew(given: list[Any]) -> object:
        for input_name, array in zip(names, given, strict=True):
            anew.bind_cpu_input(input_name, array)
        session.run_with_iobinding(anew)
        return anew.copy_outputs_to_cpu()

    return {
        "run": lambda given: session.run(None, dict(zip(names, given, strict=True))),
        "run_with_iobinding": lambda given: session.run_with_iobinding(binding),
        "bound anew": bound_anew,
        "copied": copied.execute,
        "default": method.execute,
        "out=": lambda given: method.execute(given, out=targets),
        "new arrays": method.execute,
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated")
    parser.add_argument("--threads", default="1,2", help="comma-separated")
    options = parser.parse_args()
    table = Table("model", "threads", *WAYS, title="microseconds a call; in brackets, less those of run_with_iobinding")
    for name in options.models.split(","):
        for threads in map(int, options.threads.split(",")):
            found = in_process("benchmarks.borrowed", f"microseconds({name!r})", threads)
            bound = found["run_with_iobinding"]
            table.add_row(name, str(threads), *(f"{found[way]:,.0f} ({found[way] - bound:+,.0f})" for way in WAYS))
    Console().print(table)


if __name__ == "__main__":
    main()
