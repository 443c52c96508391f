"""ExecuTorch's `executorch.devtools.bundled_program.schema`: a `.bpte` as plain dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from delegraph.program import ScalarType
from delegraph_executorch.exir.schema import Bool, Int


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
