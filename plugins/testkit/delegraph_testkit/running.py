"""A stored program -> its results, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import delegraph
from delegraph.interfaces import BackendInterface
from delegraph.plugins import default_registry
from delegraph.program import schema
from delegraph_testkit.arrays import Array, difference
from delegraph_testkit.bench import Bench, Call, Stored
from delegraph_testkit.opaque import kernel_order
from delegraph_testkit.whole_keeper import WHOLE_KEEPER, WholeKeeper

__all__ = ["Loaded", "Results", "backend_called", "check_call", "check_results", "load", "run"]

Results: TypeAlias = list[list[Array]]
"""The results of each call."""


def backend_called(backend_id: str) -> BackendInterface:
    """The installed backend of that id."""
    backend: BackendInterface = default_registry().load("backends", backend_id)
    return backend


@dataclass(frozen=True, slots=True)
class Loaded:
    """A program, loaded."""

    module: delegraph.Module

    def __call__(self, call: Call) -> list[Array]:
        """The results of a call, the caller's own."""
        return [np.asarray(result) for result in self.module[call.method].method.execute(call.inputs)]

    def close(self) -> None:
        """Close its methods."""
        for name in self.module.methods:
            self.module[name].method.close()


def load(stored: Stored, program: schema.Program | Path | None = None, **options: Any) -> Loaded:
    """Load a stored program, or `program` in its place; `options` are of `delegraph.load`."""
    own = {WHOLE_KEEPER: WholeKeeper()} if WHOLE_KEEPER in stored.facts.backends else {}
    module = delegraph.load(
        stored.file if program is None else program,
        method=min(call.method for call in stored.calls),
        backends=own,
        data_path=stored.external or None,
        **{"kernels": kernel_order(stored.facts.kernels), **options},
    )
    return Loaded(module)


def run(stored: Stored, **options: Any) -> Results:
    """The results of every call, in order, of the program, loaded for them."""
    loaded = load(stored, **options)
    return [loaded(call) for call in stored.calls]


def check_results(bench: Bench, stored: Stored, results: Sequence[Sequence[Array]]) -> None:
    """Assert that they are torch's."""
    for number, (call, got) in enumerate(zip(stored.calls, results, strict=True)):
        check_call(bench, call, got, f"{stored.name}, call {number} of {call.method!r}")


def check_call(bench: Bench, call: Call, results: Sequence[Any], what: str) -> None:
    """Assert that the results of a call are torch's."""
    for position, (actual, expected, slack) in enumerate(zip(results, call.expected, call.slack, strict=True)):
        apart = difference(actual, expected, slack, bench.tolerances)
        assert not apart, f"{what}, result {position}: {apart}"
