"""Lowering to a backend that could not run here: a warning names who, why and what to do."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram, export

from delegraph.aot import to_backend, to_edge, to_edge_transform_and_lower
from delegraph.aot.delegation.partition import TAG
from delegraph.interfaces import (
    Availability,
    BackendDetails,
    BackendInterface,
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    PreprocessResult,
)
from delegraph.plugins import PluginWarning
from delegraph.plugins.discovery import Offer
from delegraph.plugins.registry import PluginRegistry

X = torch.randn(2, 4)


class Compiles(BackendDetails):
    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        return PreprocessResult(b"blob")


class Runs(BackendInterface):
    def init(self, context: Any, processed: Any, compile_specs: Any) -> None: ...

    def execute(self, context: Any, handle: Any, args: Any) -> None: ...


class Unplugged(Runs):
    def is_available(self) -> Availability:
        return Availability(False, "no device on the bus", "plug it in")


class Broken(Runs):
    def is_available(self) -> bool:
        raise OSError("no bus")


class Takes(Partitioner):
    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        for node in exported_program.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default):
            node.meta[TAG] = "t"
        return PartitionResult(exported_program, {"t": DelegationSpec("Acme")})


def offer(group: str, name: str, value: str) -> Offer:
    return Offer(f"delegraph.{group}", name, value, "acme-npu", "1.0")


def installed(backend: str = "", name: str = "Acme") -> PluginRegistry:
    """acme-npu with its compiling half, and the class `backend` of this file, or another, as the running one."""
    value = backend if ":" in backend else f"{__name__}:{backend}"
    running = [offer("backends", name, value)] if backend else []
    return PluginRegistry([offer("lowerings", "Acme", f"{__name__}:Compiles"), *running])


WOULD_NOT = "backend 'Acme', for which acme-npu 1.0 compiles, would not run here: "
ELSEWHERE = (
    "nothing is wrong if the program is for another machine: `delegraph plugins doctor model.pte` tells it there"
)
CASES = [
    (
        installed(),
        "it is in delegraph.lowerings but not in delegraph.backends: what is lowered to it cannot run here\n"
        "  what to do: install the distribution that has the other half",
    ),
    (
        installed("Runs", "Acmee"),
        "it is in delegraph.lowerings but not in delegraph.backends: what is lowered to it cannot run here; did you"
        " mean 'Acmee'?\n  what to do: its authors give the backend one id",
    ),
    (
        installed("nowhere.to.be.found:Runs"),
        "cannot load plug-in backends:Acme of acme-npu 1.0",
    ),
    (installed("Unplugged"), "it is not available: no device on the bus\n  what to do: plug it in"),
    (
        installed("Broken"),
        "it is not available: its is_available raised OSError: no bus\n  what to do: report it to its authors",
    ),
]


@pytest.mark.parametrize(("plugins", "message"), CASES, ids=["missing", "misnamed", "unloadable", "absent", "broken"])
def test_a_backend_that_could_not_run_is_told(plugins: PluginRegistry, message: str) -> None:
    program = export(torch.nn.ReLU(), (X,))
    with pytest.warns(PluginWarning) as heard:
        manager = to_edge_transform_and_lower(program, partitioner=[Takes()], plugins=plugins)
    [told] = [str(each.message) for each in heard]
    assert told.startswith(WOULD_NOT + message), told
    assert told.endswith(f"\n  {ELSEWHERE}")
    assert len(manager.report.methods["forward"].delegates) == 1


def test_programs_that_are_lowered_by_themselves_are_told_of_too() -> None:
    program = to_edge(export(torch.nn.ReLU(), (X,))).exported_program()
    calls: list[tuple[Any, ...]] = [(program, Takes()), ("Acme", program, [])]
    for arguments in calls:
        with pytest.warns(PluginWarning, match="no device on the bus"):
            to_backend(*arguments, plugins=installed("Unplugged"))


def test_nothing_is_told_of_backends_that_run_here_or_are_not_used() -> None:
    with warnings.catch_warnings(action="error"):
        to_edge_transform_and_lower(export(torch.nn.ReLU(), (X,)), partitioner=[Takes()], plugins=installed("Runs"))
        to_edge_transform_and_lower(export(torch.nn.Tanh(), (X,)), partitioner=[Takes()], plugins=installed())
