"""A partitioner's name -> the result of a trial: small models are lowered onto its backend, and run without torch.

`delegraph plugins check` does this for every partitioner that it is asked about. The halves have processes of their
own, `python -m delegraph.cli.plugin_trial lower NAME M.pte …` and `… run M.pte`, which print a line of JSON for each.
Kernels that compute nothing stand for the operators that a backend leaves over: a trial tells whether a plug-in's parts
fit each other, not whether its results are right.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from delegraph.plugins.discovery import Offer

if TYPE_CHECKING:
    import torch

    from delegraph.interfaces import KernelLibraryInterface

__all__ = ["TrialResult", "try_out"]


_Answer: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a partitioner's trial: sound, unless there is an `error`, or a part that it needs is `unavailable`.
    `told` is a remark on a sound one."""

    offer: Offer
    error: str = ""
    unavailable: str = ""
    told: str = ""


def try_out(partitioners: Sequence[Offer], limit: float) -> list[TrialResult]:
    """Try every partitioner, each half of each within `limit` seconds."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        files = [str(Path(folder, f"{index}.pte")) for index in range(len(partitioners))]
        lowered = _lowered([(offer.name, file) for offer, file in zip(partitioners, files, strict=True)], limit)
        # Each runs in a process of its own, so that none is spared the blame for another's import of torch.
        return list(pool.map(partial(_result, limit=limit), partitioners, files, lowered))


def _lowered(trials: Sequence[tuple[str, str]], limit: float) -> list[_Answer]:
    """The results of lowering for each (partitioner, file), in one process, which is started anew after a crash."""
    answers: list[_Answer] = []
    while len(answers) < len(trials):
        rest = trials[len(answers) :]
        told, death = _ask(["lower", *(word for trial in rest for word in trial)], limit * len(rest))
        answers += told
        if len(told) < len(rest):
            answers.append({"error": death})
    return answers


def _result(offer: Offer, file: str, lowered: _Answer, limit: float) -> TrialResult:
    if "taken" not in lowered:
        return TrialResult(offer, lowered.get("error", ""), lowered.get("unavailable", ""))
    if not lowered["taken"]:
        told = f"its partitioner took nothing of {lowered['models']} small models, so that nothing was run"
        return TrialResult(offer, told=told)
    answers, death = _ask(["run", file], limit)
    ran = answers[0] if answers else {"error": death}
    taken = f"it took {', '.join(lowered['taken'])}, which "
    if "unavailable" in ran:
        return TrialResult(offer, unavailable=f"{taken}compiled and cannot run here: {ran['unavailable']}")
    return TrialResult(offer, ran.get("error", ""), told=f"{taken}ran")


def _ask(words: list[str], limit: float) -> tuple[list[_Answer], str]:
    """A process's answers, and how it died if it did before the last one."""
    search = os.pathsep.join(filter(None, sys.path))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "delegraph.cli.plugin_trial", *words],
            capture_output=True,
            check=False,
            env={**os.environ, "PYTHONPATH": search},
            timeout=limit,
        )
    except subprocess.TimeoutExpired as expired:
        return _lines(expired.stdout), f"to {words[0]} a small model took more than {limit:g} s"
    last_words = (done.stderr.decode(errors="replace").splitlines() or [""])[-1]
    died = f"its process ended with code {done.returncode} as it was to {words[0]} a small model"
    return _lines(done.stdout), f"{died}: {last_words}"


def _lines(output: bytes | None) -> list[_Answer]:
    """The answers whose lines are complete."""
    return [json.loads(line) for line in (output or b"").decode().split("\n")[:-1]]


# ---- in the process of the compiling half --------------------------------------------------------------


def _lower(name: str, file: str) -> _Answer:
    """Lower the small models until the partitioner takes something of one."""
    import delegraph
    from delegraph.aot import ExecutorchBackendConfig
    from delegraph.aot.emission.planners import naive

    models = _models()
    for model, args in models:
        config = ExecutorchBackendConfig(check_kernels=False, memory_planner=naive)
        lowered = delegraph.lower(model, args, backends=[name], config=config)
        taken = [node for delegate in lowered.report.methods["forward"].delegates for node in delegate.nodes]
        if taken:
            lowered.save(file)
            return {"taken": taken}
    return {"taken": [], "models": len(models)}


def _models() -> list[tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]:
    """Arithmetic, a perceptron and a convolution: something of it every backend should take."""
    import torch
    from torch import nn

    class Arithmetic(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return ((x + y) * y - x).relu()

    perceptron = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    image = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
    return [
        (Arithmetic(), (torch.ones(2, 8), torch.ones(2, 8))),
        (perceptron.eval(), (torch.ones(1, 8),)),
        (image.eval(), (torch.ones(1, 3, 8, 8),)),
    ]


# ---- in the process of the running half ----------------------------------------------------------------


def _run(file: str) -> _Answer:
    """Load the program, run it on zeros and destroy its delegates, watching for torch."""
    from delegraph.plugins.torch_watch import TorchWatch
    from delegraph.program import deserialize_program
    from delegraph.runtime import Runtime

    runtime = Runtime(kernels=[_do_nothing()])
    plans = deserialize_program(Path(file).read_bytes()).execution_plan
    for backend in {delegate.id for plan in plans for delegate in plan.delegates}:
        runtime.backend_registry.is_available(backend)  # whose engine needs torch says so: it imports torch to answer
    with TorchWatch() as watch:
        method = runtime.load_program(file).load_method("forward")
        method.execute(_zeros(method.metadata))
        method.close()
    if watch.leak:
        return {"error": f"running it brought torch into a process that runs without it: {watch.leak} imports it"}
    return {}


def _zeros(metadata: Any) -> list[object]:
    import numpy as np

    return [np.zeros(metadata.input_tensor_meta(index).sizes(), np.float32) for index in range(metadata.num_inputs())]


def _do_nothing() -> KernelLibraryInterface:
    """A library that has every kernel, and none of them does anything."""
    from delegraph.interfaces import Kernel, KernelLibraryInterface

    class Nothing(KernelLibraryInterface):
        name = "nothing"

        def lookup(self, op: str, key: object) -> Kernel:
            return Kernel(op, lambda *arguments: None, self.name)

        def operator_names(self) -> frozenset[str]:
            return frozenset()

    return Nothing()


def _serve(half: str, *arguments: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a plug-in's prints go to stderr, not between the answers
    trials: list[Callable[[], _Answer]] = [partial(_run, file) for file in arguments]
    if half == "lower":
        trials = [partial(_lower, *pair) for pair in zip(arguments[::2], arguments[1::2], strict=True)]
    for trial in trials:
        answers.write(json.dumps(_caught(half, trial)) + "\n")
        answers.flush()


def _caught(half: str, trial: Callable[[], _Answer]) -> _Answer:
    from delegraph.errors import BackendMissing, InvalidArgument, PluginUnavailable

    try:
        return trial()
    except (BackendMissing, PluginUnavailable) as error:  # a backend without its other half is reported for that
        return {"unavailable": str(error)}
    except Exception as error:
        if isinstance(error.__cause__, InvalidArgument):  # of the options that were left out, which a user gives
            return {"unavailable": f"it is not tried without its options: {error.__cause__}"}
        return {"error": f"{type(error).__name__} as it was to {half} a small model: {error}"}


if __name__ == "__main__":
    _serve(*sys.argv[1:])
