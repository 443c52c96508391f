"""A program with tensors of several dtypes and a scalar among its inputs and outputs, and kernels to run it on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from core.tests.program.conftest import executorch

from delegraph.devtools import BundledProgram, MethodTestCase, MethodTestSuite
from delegraph.plugins.registry import PluginRegistry, use_registry
from delegraph.program import serialize_program
from delegraph.program.schema import (
    AllocationDetails,
    Bool,
    Chain,
    Double,
    ExecutionPlan,
    Int,
    KernelCall,
    Null,
    Operator,
    Program,
    ScalarType,
    Tensor,
    TensorShapeDynamism,
    Value,
)
from delegraph.runtime import KernelLibrary

__all__ = ["executorch"]


def tensor(
    at: int, *sizes: int, dtype: ScalarType = ScalarType.FLOAT, order: tuple[int, ...] = (), dynamic: bool = False
) -> Tensor:
    return Tensor(
        dtype,
        sizes,
        order or tuple(range(len(sizes))),
        allocation_info=AllocationDetails(1, at),
        shape_dynamism=TensorShapeDynamism.DYNAMIC_BOUND if dynamic else TensorShapeDynamism.STATIC,
    )


def plan(
    name: str, values: list[Value], inputs: tuple[int, ...], outputs: tuple[int, ...], *calls: int
) -> ExecutionPlan:
    """`calls` are the arguments of one call of `test::op`, the method's only instruction."""
    instructions = (KernelCall(0, calls),) if calls else ()
    return ExecutionPlan(
        name, tuple(values), inputs, outputs, (Chain(instructions),), (Operator("test::op", ""),), (), (0, 1024)
    )


def program() -> Program:
    """`forward` doubles float32[2, 3]; `mixed` gives its inputs back, bfloat16, int8, a 0-d bool and three scalars."""
    double = plan("forward", [tensor(0, 2, 3), tensor(64, 2, 3)], (0,), (1,), 0, 1, 1)
    mixed: list[Value] = [
        tensor(0, 2, 2, dtype=ScalarType.BFLOAT16),
        tensor(64, 4, dtype=ScalarType.CHAR, dynamic=True),
        tensor(128, dtype=ScalarType.BOOL),
        Int(-7),
        Bool(True),
        Double(0.5),
    ]
    indices = tuple(range(6))
    image = [tensor(0, 1, 2, 2, 3, order=(0, 2, 3, 1))]
    return Program(
        (
            double,
            plan("image", [*image], (0,), (0,)),
            plan("mixed", mixed, indices, indices),
            plan("optional", [Null(), tensor(0, 1)], (0, 1), (1,)),
        )
    )


def library() -> KernelLibrary:
    kernels = KernelLibrary("numpy")

    @kernels.kernel("test::op")
    def double(context: Any, x: Any, out: Any) -> None:
        np.multiply(x, 2, out)

    return kernels


@pytest.fixture(autouse=True)
def installed() -> Iterator[PluginRegistry]:
    """What is installed on this machine does not matter; this is."""
    registry = PluginRegistry()
    registry.register("kernels", "numpy", library())
    with use_registry(registry):
        yield registry


@pytest.fixture(scope="session")
def pte() -> bytes:
    return serialize_program(program())


X = np.arange(6, dtype=np.float32).reshape(2, 3)

Bundle = Callable[..., BundledProgram]


@pytest.fixture
def bundle(pte: bytes) -> Bundle:
    """The program with cases of one method."""

    def make(*cases: MethodTestCase, method: str = "forward") -> BundledProgram:
        return BundledProgram(pte, [MethodTestSuite(method, cases)])

    return make
