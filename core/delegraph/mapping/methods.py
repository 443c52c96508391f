"""A loaded method -> which columns its inputs take and its outputs give, and how many rows a call of it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import InvalidArgument, InvalidType, NotSupported
from delegraph.program.contract import DimRange
from delegraph.program.dtypes import is_extended, numpy_dtype, storable
from delegraph.program.schema import Tensor
from delegraph.runtime.method_meta import TensorInfo
from delegraph.runtime.structured_method import StructuredMethod

__all__ = ["MappedInput", "MappedMethod", "mapped_methods"]

DEFAULT_ROWS: Final = 64
"""Rows of a call, where the method takes so many and nobody says otherwise: beyond it calls seldom get faster a row."""


@dataclass(frozen=True, slots=True)
class MappedInput:
    """A tensor input: its place among the flat inputs, its name, and the column that it is made of."""

    index: int
    name: str
    column: str
    tensor: TensorInfo

    @property
    def rank(self) -> int:
        """How many dims it has."""
        return len(self.tensor.sizes())

    def is_alone(self, rows: NDArray[Any]) -> bool:
        """Whether each of `rows` is the input of a call by itself, and not stacked with others along dim 0."""
        return rows.ndim - 1 == self.rank

    def row(self, value: Any) -> NDArray[Any]:
        """A row's value, with a dim of 1 before its own. Raises as `rows`, and `InvalidArgument` for None."""
        if value is None:
            raise InvalidArgument(f"input {self.name!r}: the row has null")
        return self.rows(np.asarray(value)[np.newaxis])

    def rows(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows along dim 0 in the input's dtype, with the dims that they have in the input. Raises `InvalidType` for
        numbers that the dtype cannot hold, `InvalidArgument` for other dims."""
        typed = self._typed(rows)
        tail, shape = self.tensor.sizes()[1:], typed.shape[1:]
        if len(shape) == 1 and len(tail) > 1 and shape[0] == prod(tail):
            typed = typed.reshape(-1, *tail)
        if self.rank - (typed.ndim - 1) not in (0, 1):
            raise InvalidArgument(
                f"input {self.name!r}: the row has shape {list(shape)}, and rows of {self.tensor!r} have"
                f" {self.rank - 1} dims, or {self.rank}, each a call"
            )
        return typed

    def _typed(self, array: NDArray[Any]) -> NDArray[Any]:
        code = self.tensor.dtype()
        dtype = numpy_dtype(code)
        if array.dtype == dtype:
            return array
        whole = array.dtype.kind in "iu" and dtype.kind in "iu"
        floats = array.dtype.kind in "iuf" and is_extended(code)
        if not (whole or floats or np.can_cast(array.dtype, dtype, "same_kind")):
            raise InvalidType(f"input {self.name!r} takes {dtype}, and the row has {_told(array)}")
        typed = array.astype(dtype)
        if whole and (typed != array).any():
            raise InvalidType(f"input {self.name!r} takes {dtype}, which cannot hold a number of the row")
        return typed


def _told(array: NDArray[Any]) -> str:
    """The content of an array that is not of numbers alone, in words of tables."""
    if array.dtype.kind == "O":
        return "null among its numbers" if any(item is None for item in array.flat) else "parts of several kinds"
    return "text" if array.dtype.kind == "U" else str(array.dtype)


@dataclass(frozen=True, slots=True)
class MappedMethod:
    """A method without state. A call has `least` to `most` rows; what it has less is filled up and cut off again."""

    name: str
    method: StructuredMethod
    inputs: tuple[MappedInput, ...]
    constants: tuple[object, ...]
    outputs: Mapping[int, str]
    """The column of each output that is a tensor, by its place."""
    least: int
    most: int

    def call(self, inputs: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The outputs, by column, of a call on rows of each input. Raises as the call."""
        alone = {mapped.is_alone(rows) for mapped, rows in zip(self.inputs, inputs, strict=True)}
        if len(alone) > 1:
            raise InvalidArgument(f"method {self.name!r}: rows of some inputs are stacked, and those of others are not")
        (is_alone,) = alone
        flat = list(self.constants)
        for mapped, rows in zip(self.inputs, inputs, strict=True):
            flat[mapped.index] = rows[0] if is_alone else _filled(rows, self.least)
        results, count = self.method.execute(flat), len(inputs[0])
        return {
            column: storable(results[index][np.newaxis] if is_alone else self._cut(results[index], column, count))
            for index, column in self.outputs.items()
        }

    def _cut(self, output: NDArray[Any], column: str, count: int) -> NDArray[Any]:
        filled = max(count, self.least)
        if not output.ndim or len(output) != filled:
            raise NotSupported(
                f"method {self.name!r}: of {filled} rows, output {column!r} has the shape {list(output.shape)}: it has"
                " no row for each; map a method whose outputs have"
            )
        return output[:count]

    def no_results(self) -> dict[str, NDArray[Any]]:
        """The outputs, by column, of no rows."""
        metas = {column: self.method.metadata.output_tensor_meta(index) for index, column in self.outputs.items()}
        return {
            column: storable(np.empty((0, *meta.sizes()[1:]), numpy_dtype(meta.dtype())))
            for column, meta in metas.items()
        }

    def rows_of_a_call(self, inputs: Sequence[NDArray[Any]]) -> int:
        """How many rows like these go into one call."""
        return 1 if self.inputs[0].is_alone(inputs[0]) else self.most


def _filled(rows: NDArray[Any], least: int) -> NDArray[Any]:
    """At least so many rows: the last one again."""
    return rows if len(rows) >= least else np.concatenate([rows, np.repeat(rows[-1:], least - len(rows), 0)])


def mapped_methods(
    methods: Mapping[str, StructuredMethod],
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    batch_size: int | None,
) -> list[MappedMethod]:
    """Each of `methods` with its columns. `inputs` and `outputs` are columns by the names of inputs and outputs, which
    are also `method.name`; others have their column's name. Outputs of several methods are called `method_name`.

    Raises `InvalidArgument` for a name that there is not, and for a method that keeps state or takes no tensor.
    """
    names_in, names_out = set[str](), set[str]()
    mapped = []
    for name, method in methods.items():
        if method.method.keeps_state:
            raise InvalidArgument(f"method {name!r} keeps state: a row's result would depend on the rows before it")
        taken = _inputs(name, method, inputs, names_in)
        if not taken:
            raise InvalidArgument(f"method {name!r} takes no tensor, so that its results are the same for every row")
        columns = _outputs(name, method, outputs, names_out, len(methods) > 1)
        low, high = _rows(name, taken, batch_size)
        values = [method.metadata.input_value(index) for index in range(method.metadata.num_inputs())]
        constants = tuple(None if isinstance(value, Tensor) else getattr(value, "value", None) for value in values)
        mapped.append(MappedMethod(name, method, taken, constants, columns, low, high))
    _require_known("input", inputs, names_in)
    _require_known("output", outputs, names_out)
    return mapped


def _inputs(
    name: str, method: StructuredMethod, columns: Mapping[str, str], known: set[str]
) -> tuple[MappedInput, ...]:
    meta = method.metadata
    taken = []
    for index, own in enumerate(method.method.arguments.names):
        if isinstance(meta.input_value(index), Tensor):
            known.update((own, f"{name}.{own}"))
            column = columns.get(f"{name}.{own}") or columns.get(own) or own
            taken.append(MappedInput(index, own, column, meta.input_tensor_meta(index)))
    return tuple(taken)


def _outputs(
    name: str, method: StructuredMethod, columns: Mapping[str, str], known: set[str], several: bool
) -> dict[int, str]:
    by_place = {}
    for index, own in enumerate(method.output_names):
        if isinstance(method.metadata.output_value(index), Tensor):
            known.update((own, f"{name}.{own}"))
            default = f"{name}_{own}" if several else own
            by_place[index] = columns.get(f"{name}.{own}") or columns.get(own) or default
    return by_place


def _require_known(what: str, named: Iterable[str], known: set[str]) -> None:
    for name in named:
        if name not in known:
            raise InvalidArgument(f"there is no {what} {name!r}; {what}s are {', '.join(sorted(known))}")


def _rows(name: str, inputs: Sequence[MappedInput], batch_size: int | None) -> tuple[int, int]:
    """How few and how many rows a call may have. Raises `InvalidArgument` for a `batch_size` that it cannot have."""
    bounds = [_bounds(mapped.tensor) for mapped in inputs if mapped.rank]
    low = max((bound.low for bound in bounds), default=1)
    highs = [bound.high for bound in bounds if bound.high is not None]
    high = min(highs, default=None)
    most = batch_size or (DEFAULT_ROWS if high is None else max(low, min(high, DEFAULT_ROWS)))
    if most not in DimRange(None, max(low, 1), high):
        raise InvalidArgument(
            f"batch_size={most}: a call of method {name!r} has {DimRange(None, low, high).allowed} rows"
        )
    return max(low, 1), most


def _bounds(tensor: TensorInfo) -> DimRange:
    first = tensor.dims[0] if tensor.dims else tensor.sizes()[0]
    if isinstance(first, DimRange):
        return first
    return DimRange(None, 0 if tensor.dims is None and tensor.is_dynamic() else first, first)
