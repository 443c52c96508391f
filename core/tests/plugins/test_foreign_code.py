"""Whatever the code of a plug-in does, what comes out of it is an error of ours, which names the plug-in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import delegraph
from delegraph import ExecutorchBackendConfig
from delegraph.errors import Internal, InvalidPartition, LoweringError
from delegraph.interfaces import BackendInterface, KernelLibrary

ONE = (torch.ones(1, 3),)
X = np.ones((1, 3), np.float32)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def leaves(*args: Any) -> Any:
    sys.exit(3)


def fails(*args: Any) -> Any:
    raise Unprintable


def gives_text(*args: Any) -> Any:
    return "a plan"


WAYS: list[tuple[Callable[..., Any], str]] = [
    (leaves, "it raised SystemExit: 3"),
    (fails, "it raised Unprintable, which cannot be printed (ValueError in its __str__)"),
    (lambda: None, "it raised TypeError: "),
]


@pytest.mark.parametrize(("planner", "told"), [*WAYS, (gives_text, "it returned str, not a Plan")])
def test_memory_planners(planner: Any, told: str) -> None:
    with pytest.raises(LoweringError, match="memory planner ") as caught:
        delegraph.lower(torch.nn.ReLU(), ONE, config=ExecutorchBackendConfig(memory_planner=planner))
    assert f"memory planner {planner.__name__}: {told}" in str(caught.value)


@pytest.mark.parametrize(("partition", "told"), WAYS)
def test_partitioners_that_derive_from_nothing(partition: Any, told: str) -> None:
    loose = type("Loose", (), {"partition": staticmethod(partition)})()
    with pytest.raises(LoweringError, match="partitioner Loose") as caught:
        delegraph.lower(torch.nn.ReLU(), ONE, backends=[loose])
    assert told in str(caught.value) or "its signature is partition()" in str(caught.value)
    none = type("Loose", (), {"partition": staticmethod(lambda exported_program: None)})()
    with pytest.raises(InvalidPartition, match="it returned NoneType, not a PartitionResult"):
        delegraph.lower(torch.nn.ReLU(), ONE, backends=[none])


def run_kernel(function: Callable[..., object], bind: Any = None) -> None:
    library = KernelLibrary("mine")
    library.kernel("aten::relu.out", bind=bind)(function)
    delegraph.load(bytes(delegraph.lower(torch.nn.ReLU(), ONE)), kernels=[library, "portable"]).forward(X)


def test_kernels() -> None:
    for bind in (None, lambda *args: fails):
        with pytest.raises(Internal, match=r"instruction 0, aten::relu.out.*: Unprintable, which cannot be printed"):
            run_kernel(fails, bind)


@pytest.mark.parametrize("function", [lambda context, self: None, lambda context, self, out, inplace: None])
def test_a_kernel_of_another_arity_is_told_at_load(function: Any) -> None:
    library = KernelLibrary("mine")
    library.kernel("aten::relu.out")(function)
    program = bytes(delegraph.lower(torch.nn.ReLU(), ONE))
    with pytest.raises(
        Internal, match=r"the kernel of 'mine' takes [24] parameters, and is called with 3: the context"
    ):
        delegraph.load(program, kernels=[library, "portable"])


@pytest.mark.parametrize("function", [lambda context, *args: None, lambda context, self, out, extra=1: None])
def test_a_kernel_that_takes_more_than_it_must(function: Any) -> None:
    run_kernel(function)


@pytest.mark.parametrize("name", ["init", "execute", "bind", "destroy", "num_outputs", "check", "is_available"])
def test_backends(name: str) -> None:
    class Odd(BackendInterface):
        def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
            return "handle"

        def execute(self, context: Any, handle: Any, args: Any) -> None:
            args[-1][...] = args[0]

    setattr(Odd, name, fails)
    program = bytes(delegraph.lower(torch.nn.Linear(3, 3), ONE, backends=["cpu"]))

    def loaded_run_and_closed() -> None:
        module = delegraph.load(program, backends={"CpuBackend": Odd()})
        module.forward(X)
        module["forward"].method.close()

    with pytest.raises(delegraph.DelegraphError, match=r"CpuBackend|destroying a delegate") as caught:
        loaded_run_and_closed()
    assert "Unprintable, which cannot be printed (ValueError in its __str__)" in str(caught.value)
