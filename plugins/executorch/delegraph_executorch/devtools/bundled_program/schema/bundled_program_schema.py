"""ExecuTorch's `executorch.devtools.bundled_program.schema.bundled_program_schema`: a `.bpte` as plain dataclasses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import delegraph.devtools
from delegraph.devtools import BundledTensor
from delegraph.program import ScalarType
from delegraph_executorch.devtools.bundled_program.version import BUNDLED_PROGRAM_SCHEMA_VERSION
from delegraph_executorch.exir.schema import Bool, Int

__all__ = [
    "Bool",
    "BundledMethodTestCase",
    "BundledMethodTestSuite",
    "BundledProgram",
    "Double",
    "Int",
    "ScalarType",
    "Tensor",
    "Value",
    "ValueUnion",
]


@dataclass
class Tensor:
    """A dense tensor; `dim_order` lists its dims from outer to inner in memory."""

    scalar_type: ScalarType
    sizes: list[int]
    data: bytes
    dim_order: list[int]


@dataclass
class Double:
    """A float."""

    double_val: float


ValueUnion: TypeAlias = Tensor | Int | Double | Bool


@dataclass
class Value:
    """An input or an expected output."""

    val: ValueUnion


@dataclass
class BundledMethodTestCase:
    """One execution of a method."""

    inputs: list[Value]
    expected_outputs: list[Value]


@dataclass
class BundledMethodTestSuite:
    """The test cases of a method."""

    method_name: str
    test_cases: list[BundledMethodTestCase]


@dataclass
class BundledProgram:
    """A `.bpte`."""

    version: int
    method_test_suites: list[BundledMethodTestSuite]
    program: bytes


def as_schema(bundled: delegraph.devtools.BundledProgram) -> BundledProgram:
    """The records of a bundled program."""
    suites = [
        BundledMethodTestSuite(
            suite.method_name,
            [BundledMethodTestCase(_values(case.inputs), _values(case.expected_outputs)) for case in suite.test_cases],
        )
        for suite in bundled.suites
    ]
    return BundledProgram(BUNDLED_PROGRAM_SCHEMA_VERSION, suites, bytes(bundled.buffer))


def _values(values: Iterable[BundledTensor | int | bool | float]) -> list[Value]:
    return [Value(_union(value)) for value in values]


def _union(value: BundledTensor | int | bool | float) -> ValueUnion:
    if isinstance(value, BundledTensor):
        return Tensor(value.scalar_type, list(value.sizes), bytes(value.data), list(value.dim_order))
    if isinstance(value, bool):
        return Bool(value)
    return Int(value) if isinstance(value, int) else Double(value)
