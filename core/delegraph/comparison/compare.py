"""`compare`: lower a model in several ways, run all of them here, and see which is fastest and how exact."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from delegraph.aot.authoring import as_array
from delegraph.aot.export import ExampleArguments, Model, export_method, export_requests
from delegraph.aot.graph.stated_bounds import bounded
from delegraph.aot.lower import Lowered
from delegraph.aot.quantize.measurement.measure import sqnr
from delegraph.aot.quantize.recipes import RecipeOrRules
from delegraph.aot.quantize.request import CalibrationData, batches_by_method, with_examples
from delegraph.comparison.candidates import BackendsOfOne, backends_of, candidates, inputs_of, outputs_of
from delegraph.comparison.result import Compared, Comparison
from delegraph.comparison.timing import TIMEOUT, Runner, in_turns
from delegraph.errors import LoweringError
from delegraph.interfaces.lowering import Partitioner
from delegraph.plugins.discovery import did_you_mean
from delegraph.plugins.plugin_spec import PluginSpec
from delegraph.plugins.registry import default_registry
from delegraph.program.dtypes import storable
from delegraph.remote import Device, DeviceFolder

__all__ = ["compare"]


def compare(
    model: Model,
    args: ExampleArguments = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    backends: Sequence[BackendsOfOne],
    recipes: Sequence[RecipeOrRules] = ("float",),
    calibration_data: CalibrationData | None = None,
    dynamic_shapes: Any = None,
    bounds: Mapping[str, int] | None = None,
    backend_options: Mapping[str, Mapping[str, bool | int | str]] | None = None,
    rounds: int = 5,
    seconds: float = 0.5,
    timeout: float = TIMEOUT,
    device: Device | None = None,
    progress: bool | Callable[[str], object] = False,
) -> Comparison:
    """Lower a model for each of `backends` by each of `recipes`, run them in turns, and compare.

        compared = delegraph.compare(model, (x,), backends=["cpu", "openvino"], recipes=["float", "int8_dynamic"])
        compared.print()
        compared.fastest(min_sqnr=25).lowered.save("model.pte")

    model: an nn.Module, an ExportedProgram, or a mapping of either by method name, as for `lower`.
    args: example arguments, as for `lower`: every candidate runs on them.
    kwargs: example arguments by name.
    backends: a list of candidates, each with its backends in order of priority:
        `["cpu", "npu,cpu", [("npu", {"optimize": "size"}), "cpu"]]`; `""` is kernel libraries alone.
    recipes: as for `quantize`; `"float"` is the model as it is.
    calibration_data: what static recipes need, as for `quantize`.
    dynamic_shapes: which dims vary, as for `lower`.
    bounds: the largest sizes, where they depend on values, by line of code, as for `lower`.
    backend_options: at load, as for `load`; a candidate gets those of its own backends.
    rounds: how many turns each candidate gets.
    seconds: about how long a turn takes.
    timeout: how many seconds a candidate's process may take, with loading; one that takes longer is left out.
    device: where they run, `delegraph.remote.Device("user@board")`, over ssh; None is this machine. What runs is
        installed there, what lowers here.
    progress: say on standard error what is done, or tell a function.

    Every candidate runs in processes of its own, in turns; each round begins with another one. One that cannot be
    lowered or run says why and holds nobody up.

    Backends are installed ones, since another process has to find them. Raises `LoweringError` for a model that cannot
    be exported or has no candidate, `PluginError` for backends that are written wrongly.
    """
    if isinstance(backends, (str, Mapping)) or not backends or not recipes:
        raise LoweringError('backends is a list of candidates, such as ["cpu", "npu,cpu"], and recipes one of recipes')
    if rounds < 1 or seconds <= 0 or not 0 < timeout < inf:
        raise LoweringError(f"rounds is {rounds}, seconds {seconds} and timeout {timeout}; all are positive numbers")
    started = progress if callable(progress) else _said if progress else _unsaid
    calibration_data, args, kwargs = with_examples(model, calibration_data, args, kwargs)
    chosen = [backends_of(candidate) for candidate in backends]
    _check_options(backend_options or {}, chosen)
    requests = export_requests(model, args, kwargs, dynamic_shapes)
    started(f"exporting {', '.join(requests)}")
    programs = bounded({method: export_method(method, request) for method, request in requests.items()}, bounds)
    inputs = {
        method: [storable(as_array(tensor.detach().cpu())) for tensor in inputs_of(program)]
        for method, program in programs.items()
    }
    data = {method: list(batches) for method, batches in batches_by_method(calibration_data, programs).items()}
    prepared = list(candidates(programs, chosen, recipes, data, started))
    with (
        tempfile.TemporaryDirectory(prefix="delegraph-compare-") as folder,
        DeviceFolder(device) if device else nullcontext() as there,
    ):
        runners = _runners(prepared, inputs, backend_options or {}, timeout, Path(folder), there)
        in_turns([runner for by_method in runners for runner in by_method.values()], rounds, seconds, started)
        expected = {method: outputs_of(program) for method, program in programs.items()}
        compared = [_compared(candidate, own, expected) for candidate, own in zip(prepared, runners, strict=True)]
    return Comparison(sorted(compared, key=lambda candidate: candidate.seconds))


def _runners(
    prepared: Sequence[Compared],
    inputs: Mapping[str, Sequence[NDArray[np.generic]]],
    backend_options: Mapping[str, Mapping[str, bool | int | str]],
    timeout: float,
    folder: Path,
    device: DeviceFolder | None,
) -> list[dict[str, Runner]]:
    """The runners of each candidate, by method; the files that they read lie in `folder`."""
    paths = {method: folder / f"{index}.npz" for index, method in enumerate(inputs)}
    for method, path in paths.items():
        np.savez(path, *inputs[method])
    runners: list[dict[str, Runner]] = []
    for index, candidate in enumerate(prepared):
        own = folder / str(index)
        own.mkdir()
        runners.append({})
        if candidate.lowered is not None:
            candidate.lowered.save(own / "model.pte")
            options = _options_of(candidate.lowered, backend_options)
            for number, (method, path) in enumerate(paths.items()):
                name = f"{candidate.backends}, {candidate.recipe}: {method}"
                outputs = own / f"{number}.npz"
                runners[-1][method] = Runner(name, own / "model.pte", method, path, outputs, options, timeout, device)
    return runners


def _check_options(options: Mapping[str, object], candidates: Sequence[Sequence[PluginSpec | Partitioner]]) -> None:
    """Raise `LoweringError` for options under a name that is no candidate's backend and no id of an installed one."""
    named = [each.name for backends in candidates for each in backends if isinstance(each, PluginSpec)]
    ids = default_registry().names("backends")
    for name in options:
        if name not in named and name not in ids:
            raise LoweringError(
                f"backend_options has {name!r}, and no candidate has such a backend; theirs are"
                f" {', '.join(dict.fromkeys(named)) or 'none'}{did_you_mean(name, [*named, *ids])}"
            )


def _options_of(lowered: Lowered, options: Mapping[str, Mapping[str, bool | int | str]]) -> str:
    """The options for backends of the program, as the command line has them."""
    delegates = [entry for method in lowered.report.methods.values() for entry in method.delegates]
    known = {name for entry in delegates for name in (entry.backend, entry.partitioner)}
    return ",".join(str(PluginSpec(name, settings)) for name, settings in options.items() if name in known)


def _compared(candidate: Compared, runners: Mapping[str, Runner], expected: Mapping[str, Sequence[object]]) -> Compared:
    """`candidate` with its measurements."""
    if candidate.lowered is None:
        return candidate
    problem = next((runner.problem for runner in runners.values() if runner.problem), "")
    if problem:
        return replace(candidate, problem=problem)
    pairs = [pair for method, runner in runners.items() for pair in _pairs(expected[method], runner)]
    folder = next(iter(runners.values())).program.parent
    return replace(
        candidate,
        times={method: runner.times() for method, runner in runners.items()},
        sqnr=sqnr(*pairs) if pairs else None,
        nbytes=sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".pte", ".ptd")),
        planned_nbytes=sum(memory.planned_bytes for memory in candidate.lowered.program.memory.values()),
    )


def _pairs(expected: Sequence[object], runner: Runner) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The outputs in floating point, each of torch and of the program."""
    with np.load(runner.outputs, allow_pickle=False) as outputs:
        return [
            (value, torch.from_numpy(outputs[f"output_{index}"]))
            for index, value in enumerate(expected)
            if isinstance(value, torch.Tensor) and value.is_floating_point()
        ]


def _said(what: str) -> None:
    print(what, file=sys.stderr)


def _unsaid(_what: str) -> None:
    pass
