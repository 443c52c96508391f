"""`debug`: does each backend compute what torch computes, and if not, what is the smallest part that shows it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import inf
from pathlib import Path
from typing import Any, Final

from torch.export import ExportedProgram

from delegraph.aot.arguments import read_plugins
from delegraph.aot.delegation.backends import named_partitioners
from delegraph.aot.export import ExampleArguments, ExportRequest, Model, export_method, export_requests
from delegraph.aot.graph.stated_bounds import bounded
from delegraph.debugging.judge import Judge, named
from delegraph.debugging.result import Debugged, Fault
from delegraph.debugging.script import write_repro
from delegraph.debugging.search import Search
from delegraph.errors import LoweringError
from delegraph.plugins.plugin_spec import PluginName, PluginSpec
from delegraph.plugins.registry import default_registry

__all__ = ["QUANTIZED", "debug", "is_quantized", "with_inputs"]

QUANTIZED: Final = 0.02
"""Of a quantized model: two steps of a grid of 8 bits, whose largest value is 127 of them."""


def debug(
    model: Model,
    args: ExampleArguments = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    backends: Sequence[PluginName],
    dynamic_shapes: Any = None,
    bounds: Mapping[str, int] | None = None,
    backend_options: Mapping[str, Mapping[str, bool | int | str]] | None = None,
    folder: str | os.PathLike[str] | None = None,
    tolerance: float | None = None,
    timeout: float = 120.0,
    progress: Callable[[str], object] | None = None,
) -> Debugged:
    """Compare what each backend computes of a model with torch, and cut what fails to the smallest part that does.

        debugged = delegraph.debug(model, (x,), backends=["npu"], folder=".")
        print(debugged)                       # of each fault: the calls, their lines, and a folder with a script

    model: an nn.Module, an ExportedProgram (a quantized one, say), or a mapping of either by method name.
    args: example arguments, as for `lower`: the model is run on them.
    kwargs: example arguments by name.
    backends: names of installed ones, in order of priority.
    dynamic_shapes: which dims vary, as for `lower`.
    bounds: the largest sizes, where they depend on values, by line of code, as for `lower`.
    backend_options: at load, as for `load`.
    folder: where to write, for each fault, a folder with a script that shows it; None: nowhere.
    tolerance: how far a result may be off, as a share of its largest value: by default 1e-4 for float32, 1e-2 for
        float16, 5e-2 for bfloat16, nothing for integers, and 0.02 for all of them in a quantized model.
    timeout: seconds that a trial may take; one that takes longer is a fault.
    progress: is told what is done.

    Every delegate is tried by itself, on torch's values of what it reads, and, if all of them are right, the whole.
    A fault is wrong numbers, a refusal to compile what was taken, another error, the end of the process, or no answer.
    Trials run in a process of their own, which may die of them.

    Raises `LoweringError` for a model that cannot be exported, draws random numbers, or has no example inputs;
    `PluginError` for backends that are not installed; `OSError` for a folder that cannot be written.
    """
    if (tolerance is not None and not 0 <= tolerance < inf) or not 0 < timeout < inf:
        raise LoweringError(f"tolerance is {tolerance} and timeout {timeout}; both are positive numbers")
    chosen = _chosen(backends)
    started = progress or _unsaid
    requests = export_requests(model, args, kwargs, dynamic_shapes)
    faults: list[Fault] = []
    partitions: dict[str, list[tuple[str, int]]] = {}
    with Judge(backend_options, timeout=timeout) as judge:
        programs = {}
        for method, request in requests.items():
            started(f"{method}: exporting")
            programs[method] = with_inputs(export_method(method, request), request)
        for method, program in bounded(programs, bounds).items():
            judge.tolerance = QUANTIZED if tolerance is None and is_quantized(program) else tolerance
            search = Search(method, program, chosen, judge, started)
            partitions[method] = [(named(own), len(calls)) for own, calls in search.partitions]
            for fault, case, own in search.faults():
                started(f"{method}: writing a script for {fault.name}")
                faults.append(fault if folder is None else write_repro(Path(folder), case, fault, own, judge))
    return Debugged(tuple(faults), partitions, judge.trials)


def _chosen(backends: Sequence[PluginName]) -> list[PluginSpec]:
    if isinstance(backends, str):
        raise LoweringError(f"backends is a list, in order of priority: write backends=[{backends!r}]")
    chosen = read_plugins("backends", backends)
    for backend in chosen:
        if not isinstance(backend, PluginSpec):
            raise LoweringError(
                f"backends has a {type(backend).__name__}: another process has to find them, so name installed ones"
            )
    named_partitioners("backends", chosen, default_registry())  # which says whether they can be made
    return [backend for backend in chosen if isinstance(backend, PluginSpec)]


def with_inputs(program: ExportedProgram, request: ExportRequest) -> ExportedProgram:
    """`program` with the example inputs of the request, if those are others than it was exported with."""
    if request.args is None and not request.kwargs:
        return program
    program = copy(program)
    program.example_inputs = (tuple(request.args or ()), dict(request.kwargs or {}))
    return program


def is_quantized(program: ExportedProgram) -> bool:
    """Whether a call of the program quantizes or dequantizes."""
    return any("quantize" in str(node.target) for node in program.graph.nodes if node.op == "call_function")


def _unsaid(_what: str) -> None:
    pass
