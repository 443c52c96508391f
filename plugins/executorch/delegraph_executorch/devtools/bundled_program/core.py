"""ExecuTorch's `executorch.devtools.bundled_program.core`: `delegraph.devtools.BundledProgram` with its old methods."""

from __future__ import annotations

import os
from collections.abc import Sequence

import delegraph.devtools
from delegraph.aot import ExecutorchProgramManager
from delegraph.devtools import MethodTestSuite, serialize_bundled_program
from delegraph.errors import InvalidArgument, InvalidType
from delegraph_executorch.devtools.bundled_program import records as bp_schema
from delegraph_executorch.exir._serialize.records import record_of

__all__ = ["BundleMismatch", "BundledProgram"]


class BundleMismatch(InvalidArgument, AssertionError):
    """Test cases that do not fit the program; ExecuTorch raises an `AssertionError` for them."""


class BundledProgram(delegraph.devtools.BundledProgram):
    """A program and its test suites. Raises `BundleMismatch` if they do not fit each other."""

    def __init__(
        self,
        executorch_program: ExecutorchProgramManager | None,
        method_test_suites: Sequence[MethodTestSuite],
        pte_file_path: str | os.PathLike[str] | None = None,
    ) -> None:
        try:
            super().__init__(executorch_program, method_test_suites, pte_file_path)
        except (InvalidArgument, InvalidType) as error:
            raise BundleMismatch(str(error)) from error

    def serialize_to_schema(self) -> bp_schema.BundledProgram:
        """The records of ExecuTorch's schema."""
        return record_of(serialize_bundled_program(self), bp_schema.BundledProgram)
