"""Runtime halves of the demo delegates in ExecuTorch's tests, whose own are C++ in its test build.

Written from what their AOT halves write: `BackendWithCompilerDemo` a line of text

    2version:0#op:demo::aten.mm.default, numel:4, dtype:torch.float32<debug_handle>1#op:demo::aten.add.Tensor, …#

and `ExecutorBackend` a `.pte`, which a runtime in the runtime executes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import delegraph
from delegraph.errors import DelegateInvalidCompatibility, InvalidArgument
from delegraph.interfaces import BackendInterface
from delegraph.plugins import default_registry

__all__ = ["CompilerDemo", "Executor", "register"]

VERSION = 0
MAX_NUMEL = 4  # the tests know that more numbers than that are refused
INSTRUCTION = re.compile(r"op:demo::([\w.]+), numel:(\d+), dtype:([\w.]+)<debug_handle>")


def sine(value: np.ndarray) -> np.ndarray:
    """The first two terms of its series: the tests know that demo's sin(1) is 0.8333."""
    return value - value**3 / 6


OPERATORS: dict[str, tuple[int, Callable[..., np.ndarray]]] = {
    "aten.sin.default": (1, sine),
    "aten.mm.default": (2, np.matmul),
    "aten.add.Tensor": (2, np.add),
}
"""Operator -> how many operands it has, and what it computes."""


class CompilerDemo(BackendInterface):
    """Runs the operators one after the other, each on the last one's result and the next inputs."""

    def init(self, context: Any, processed: Any, compile_specs: Sequence[Any]) -> list[tuple[str, int]]:
        text = bytes(processed).decode()
        version = int(text.partition("version:")[2].partition("#")[0])
        if version != VERSION:
            raise DelegateInvalidCompatibility(f"the blob is of version {version}; this demo runs version {VERSION}")
        return [(name, int(numel)) for name, numel, _ in INSTRUCTION.findall(text)]

    def execute(self, context: Any, handle: list[tuple[str, int]], args: Sequence[Any]) -> None:
        *inputs, out = args
        waiting, result = iter(inputs), None
        for name, numel in handle:
            if numel > MAX_NUMEL:
                raise InvalidArgument(f"{name} gives {numel} numbers; this demo computes up to {MAX_NUMEL}")
            count, compute = OPERATORS[name]
            given = [] if result is None else [result]
            given += [next(waiting, given[-1] if given else None) for _ in range(count - len(given))]
            result = compute(*given)
        out[...] = result


class Executor(BackendInterface):
    """A program in a delegate: loaded when the delegate is, executed when it is."""

    def init(self, context: Any, processed: Any, compile_specs: Sequence[Any]) -> Any:
        return delegraph.load(bytes(processed))

    def execute(self, context: Any, handle: Any, args: Sequence[Any]) -> None:
        count = handle.metadata.num_inputs()
        results = handle(*args[:count])
        results = results if isinstance(results, (tuple, list)) else [results]
        for out, result in zip(args[count:], results, strict=True):
            out[...] = np.asarray(result)


def register() -> None:
    """Offer them in this process."""
    default_registry().register("backends", "BackendWithCompilerDemo", CompilerDemo())
    default_registry().register("backends", "ExecutorBackend", Executor())
