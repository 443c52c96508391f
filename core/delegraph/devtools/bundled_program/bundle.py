"""Program + test suites -> BundledProgram: each case looked at beside the method that it is for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, SupportsBytes, TypeAlias

import numpy as np

from delegraph.devtools.bundled_program.cases import (
    BundledTensor,
    BundledValue,
    MethodTestCase,
    MethodTestSuite,
)
from delegraph.errors import InvalidArgument, InvalidType, RuntimeFault, restated
from delegraph.program import deserialize_program, schema
from delegraph.program.schema import Bool, Buffer, Double, ExecutionPlan, Int, Tensor, Value
from delegraph.runtime.calls.inputs import input_check, tensor_check
from delegraph.runtime.data_loader import Source, open_data_loader

__all__ = ["BundledCase", "BundledProgram", "BundledSuite", "ProgramLike"]


class HasBuffer(Protocol):
    """`ExecutorchProgramManager`, or what else has a program's bytes."""

    @property
    def buffer(self) -> Buffer:
        """The bytes of the `.pte`."""


ProgramLike: TypeAlias = HasBuffer | SupportsBytes | Source
"""A program: an `ExecutorchProgramManager`, a `Lowered`, or whatever `Program.load` reads."""


@dataclass(frozen=True, slots=True)
class BundledCase:
    """A test case as the file holds it: tensors laid out as the method has its own."""

    inputs: tuple[BundledValue, ...]
    expected_outputs: tuple[BundledValue, ...]


@dataclass(frozen=True, slots=True)
class BundledSuite:
    """The cases of one method as the file holds them."""

    method_name: str
    test_cases: tuple[BundledCase, ...]


class BundledProgram:
    """A program and `method_test_suites`, which it keeps in the order of their methods' names.

    `executorch_program` is what lowering gave, or bytes, a path, a file or a `DataLoader` of a `.pte`; or name its file
    as `pte_file_path`. Signature of ExecuTorch's class in `devtools/bundled_program/core.py`.

    Raises `InvalidArgument` or `InvalidType` for a method that the program does not have, and for a case that
    does not fit its method: it names the case and the value.
    """

    def __init__(
        self,
        executorch_program: ProgramLike | None,
        method_test_suites: Sequence[MethodTestSuite],
        pte_file_path: str | os.PathLike[str] | None = None,
    ) -> None:
        if (executorch_program is None) == (pte_file_path is None):
            raise InvalidArgument("pass either executorch_program or pte_file_path: the program to bundle")
        self.executorch_program = executorch_program
        self._source = pte_file_path if executorch_program is None else executorch_program
        self.method_test_suites = sorted(method_test_suites, key=lambda suite: suite.method_name)
        _ = self.suites

    @cached_property
    def buffer(self) -> Buffer:
        """The bytes of the program alone, the `.pte`."""
        source: Any = self._source
        content = getattr(source, "buffer", None)
        if isinstance(content, bytes | bytearray | memoryview):
            return content
        if hasattr(source, "__bytes__") and not isinstance(source, os.PathLike):  # of a path it is the name
            return bytes(source)
        loader = open_data_loader(source)
        return loader.load(0, loader.size())

    @cached_property
    def program(self) -> schema.Program:
        """The records of the program. Raises `InvalidProgram`."""
        return deserialize_program(self.buffer)

    @cached_property
    def suites(self) -> tuple[BundledSuite, ...]:
        """The test suites as a file holds them."""
        plans = {plan.name: plan for plan in self.program.execution_plan}
        return tuple(_suite(suite, plans) for suite in self.method_test_suites)

    def __repr__(self) -> str:
        counts = ", ".join(f"{suite.method_name}: {len(suite.test_cases)} cases" for suite in self.method_test_suites)
        return f"BundledProgram({counts or 'no cases'})"


def _suite(suite: MethodTestSuite, plans: dict[str, ExecutionPlan]) -> BundledSuite:
    plan = plans.get(suite.method_name)
    if plan is None:
        raise InvalidArgument(
            f"there are test cases for a method {suite.method_name!r}; the program has {', '.join(sorted(plans))}"
        )
    cases = [_case(plan, index, case) for index, case in enumerate(suite.test_cases)]
    return BundledSuite(suite.method_name, tuple(cases))


def _case(plan: ExecutionPlan, index: int, case: MethodTestCase) -> BundledCase:
    where = f"method {plan.name!r}, test case {index}"
    inputs = _values(plan, plan.inputs, case.inputs, f"{where}, input")
    if not case.expected_outputs:
        return BundledCase(tuple(inputs), ())
    outputs = _values(plan, plan.outputs, case.expected_outputs, f"{where}, expected output")
    return BundledCase(tuple(inputs), tuple(outputs))


def _values(plan: ExecutionPlan, indices: Sequence[int], values: Sequence[object], what: str) -> Iterator[BundledValue]:
    """`values` as a file holds them. Raises `InvalidArgument` or `InvalidType` unless they fit those at `indices`."""
    if len(values) != len(indices):
        raise InvalidArgument(f"{what}s: the method has {len(indices)}, the case {len(values)}")
    is_input = what.endswith("input")
    for position, (index, value) in enumerate(zip(indices, values, strict=True)):
        try:
            yield _value(plan.values[index], value, is_input)
        except RuntimeFault as error:
            raise restated(error, f"{what} {position}: {error}") from error


def _value(record: Value, value: Any, is_input: bool) -> BundledValue:
    if isinstance(record, Tensor):
        return BundledTensor.of(tensor_check(record)(value), record.dim_order)
    if not isinstance(record, _SCALARS):
        raise InvalidType(f"the method has a {type(record).__name__} there, which a bundled program cannot hold")
    if is_input:  # burnt into the program when it was exported, so that no other value will ever fit
        input_check(record)(value)
    kind = _PYTHON[type(record)]
    if not isinstance(value, kind | np.generic) or isinstance(value, bool) != (kind is bool):
        raise InvalidType(f"expected a {kind.__name__}, got {type(value).__name__}")
    return kind(value)


_SCALARS = (Int, Bool, Double)
_PYTHON: dict[type, type[int] | type[bool] | type[float]] = {Int: int, Bool: bool, Double: float}
