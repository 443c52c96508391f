"""ExecuTorch's `executorch.devtools.bundled_program.schema`."""

from delegraph_executorch.devtools.bundled_program.schema.bundled_program_schema import (
    Bool,
    BundledMethodTestCase,
    BundledMethodTestSuite,
    BundledProgram,
    Double,
    Int,
    ScalarType,
    Tensor,
    Value,
    ValueUnion,
)

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
