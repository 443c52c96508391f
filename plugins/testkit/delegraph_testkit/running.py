"""A stored program -> its results, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import delegraph
from delegraph.interfaces import BackendInterface
from delegraph.plugins import default_registry
from delegraph_testkit.arrays import Array, difference
from delegraph_testkit.bench import Bench, Call, Stored

__all__ = ["KERNELS", "Results", "backend_called", "check_results", "load", "run"]

KERNELS = ("portable",)
Results = list[list[Array]]
"""The results of each call."""


def backend_called(backend_id: str) -> BackendInterface:
    """The installed backend of that id."""
    backend: BackendInterface = default_registry().load("backends", backend_id)
    return backend


def load(
    stored: Stored, backends: Mapping[str, BackendInterface] | None = None, **options: Any
) -> Callable[[Call], list[Array]]:
    """Load the program; what comes back runs a call of it. `options` are of `delegraph.load`."""
    methods = {call.method for call in stored.calls}
    module = delegraph.load(
        stored.file,
        method=min(methods),
        kernels=KERNELS,
        backends=backends or {},
        data_path=stored.external or None,
        **options,
    )

    def run_call(call: Call) -> list[Array]:
        return [np.asarray(result) for result in module[call.method].method.execute(call.inputs)]

    return run_call


def run(stored: Stored, backends: Mapping[str, BackendInterface] | None = None, **options: Any) -> Results:
    """The results of every call, in order, of a program that is loaded for them."""
    run_call = load(stored, backends, **options)
    return [run_call(call) for call in stored.calls]


def check_results(bench: Bench, stored: Stored, results: Sequence[Sequence[Array]]) -> None:
    """Assert that they are torch's."""
    for number, (call, got) in enumerate(zip(stored.calls, results, strict=True)):
        for position, (actual, expected, slack) in enumerate(zip(got, call.expected, call.slack, strict=True)):
            apart = difference(actual, expected, slack, bench.tolerances)
            assert not apart, f"{stored.name}, call {number} of {call.method!r}, result {position}: {apart}"
