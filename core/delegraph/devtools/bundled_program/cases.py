"""Arguments and results, nested as the model has them -> test cases: flat lists of tensors and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from delegraph.errors import InvalidType
from delegraph.program import nbytes, numpy_dtype, scalar_type
from delegraph.program.schema import Buffer, ScalarType
from delegraph.program.strides import dense_strides
from delegraph.runtime.calls.pytree import TreeSpec
from delegraph.runtime.values.tensors import is_torch_tensor
from delegraph.runtime.values.values import Array

__all__ = ["BundledTensor", "BundledValue", "MethodTestCase", "MethodTestSuite"]


class MethodTestCase:
    """One execution: `inputs`, and the `expected_outputs` to compare with; [] where there is nothing to compare.

    Both are flattened: tensors (NumPy arrays, torch tensors, objects with `__dlpack__`), ints, floats and bools, in
    lists, tuples and dicts down to ten levels. Names as in ExecuTorch `devtools/bundled_program/config.py`.
    Raises `InvalidType` for anything else: a `.bpte` holds neither None nor text.
    """

    def __init__(self, inputs: object, expected_outputs: object = None) -> None:
        self.inputs: list[Any] = _flat(inputs, "input")
        self.expected_outputs: list[Any] = (
            [] if expected_outputs is None else _flat(expected_outputs, "expected output")
        )

    def __repr__(self) -> str:
        return f"MethodTestCase({len(self.inputs)} inputs, {len(self.expected_outputs)} expected outputs)"


@dataclass
class MethodTestSuite:
    """The test cases of one method."""

    method_name: str
    test_cases: Sequence[MethodTestCase]


@dataclass(frozen=True, slots=True)
class BundledTensor:
    """A tensor as a `.bpte` holds it: dense `data`, whose dims lie in memory as `dim_order` says, outer to inner."""

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    data: Buffer

    @classmethod
    def of(cls, array: Array, dim_order: tuple[int, ...]) -> BundledTensor:
        """`array`, laid out anew if it lies otherwise."""
        dense = np.ascontiguousarray(array.transpose(dim_order))
        return cls(scalar_type(array.dtype), array.shape, dim_order, dense.reshape(-1).view(np.uint8).data)

    def array(self) -> Array:
        """A read-only view of the data, which may have more bytes than the tensor. Raises `NotSupported` for dtypes
        that NumPy cannot hold.
        """
        dtype = numpy_dtype(self.scalar_type)
        data = np.frombuffer(self.data, np.uint8)[: nbytes(self.scalar_type, self.sizes)]
        strides = dense_strides(self.sizes, dtype.itemsize, self.dim_order)
        array: Array = np.ndarray(self.sizes, dtype, data, 0, strides)
        array.flags.writeable = False
        return array


BundledValue: TypeAlias = BundledTensor | int | bool | float
"""An input or an expected output in a `.bpte`."""


def _flat(values: object, what: str) -> list[object]:
    leaves = TreeSpec.of(values).flatten(values)
    for index, leaf in enumerate(leaves):
        if not (isinstance(leaf, int | float | np.ndarray | np.generic) or _is_tensor(leaf)):
            raise InvalidType(
                f"{what} {index} is a {type(leaf).__name__}; a bundled program holds tensors, ints, floats and bools"
            )
    return leaves


def _is_tensor(value: object) -> bool:
    return is_torch_tensor(value) or hasattr(value, "__dlpack__")
