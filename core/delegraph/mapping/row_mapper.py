"""Columns of rows -> columns of results, a call of the program for as many rows as it takes.

    rows ─prepare─> inputs ─rows of one shape together─> calls ─finish─> results

What raises is tried again row by row, so that what is wrong with a row is that row's alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import (
    DelegraphError,
    Internal,
    InvalidArgument,
    InvalidType,
    LimitExceeded,
    cause_of,
    restated,
)
from delegraph.mapping.methods import MappedMethod, mapped_methods
from delegraph.runtime.module import Module, load

__all__ = ["Columns", "MappedRows", "OnError", "RowMapper"]

Columns: TypeAlias = "Mapping[str, Any]"
"""Rows by column: arrays whose dim 0 is the row, or sequences of a value for each."""

OnError: TypeAlias = Literal["stop", "record"]

ERROR: Final = "error"
"""The column that says what is wrong with a row."""

_OF_A_ROW: Final = (InvalidArgument, InvalidType, Internal, LimitExceeded)
"""The faults of a call's rows. Anything else that it raises ends the run."""

RowFunction: TypeAlias = "Callable[[Columns], Any]"
_Inputs: TypeAlias = "list[list[NDArray[Any]]]"
"""Rows of each input along dim 0, method by method."""


@dataclass(frozen=True, slots=True)
class MappedRows:
    """Results by column, and what is wrong with those rows that have none, by their place."""

    columns: dict[str, NDArray[Any]]
    errors: dict[int, str]


@dataclass(frozen=True)
class RowMapper:
    """Calls a program on rows: what `map_batches` of Ray, `map_partitions` of Dask and `mapInPandas` of Spark take.

        mapper = delegraph.RowMapper("model.pte", outputs={"output": "scores"})
        scores = mapper({"x": np.zeros((1000, 8), np.float32)})["scores"]

    It takes a mapping of columns, arrays whose dim 0 is the row, or a DataFrame, and gives the same with the results:
    a mapping of these alone, or the DataFrame with columns more. Rows of different shapes are called apart. It can be
    sent to another process, and opens the program there when it is first called; any thread may call it.

    model: a loaded Module, or the path or bytes of a `.pte`.
    methods: which methods are called on each row; the default is the Module's main one, or "forward".
    inputs, outputs: columns by the names of inputs and outputs, or by `method.name`; the others have the input's name
        (or are the only column there is), and the output's, which is `output`, or `output_0` …, or the key in a dict.
    batch_size: how many rows a call has at most; None: 64, or what the method takes. A call that must have more rows
        than are left is filled up.
    prepare: a function of the columns of some rows, which gives a mapping with the inputs' columns, or the one array.
    finish: a function of the outputs of some rows, by column, which gives the columns that are needed, or the one.
    on_error: "stop" raises for a row that fails, with its number; "record" goes on, and gives a column `error`, ""
        where all is well. A failed row has NaN in floating results and 0, or None, in others.

    Raises `InvalidArgument` for names and numbers that do not fit the program, and for a method that keeps state.
    """

    model: Module | str | os.PathLike[str] | bytes
    methods: Sequence[str] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    batch_size: int | None = None
    prepare: RowFunction | None = None
    finish: RowFunction | None = None
    on_error: OnError = "stop"

    def __post_init__(self) -> None:
        if self.on_error not in ("stop", "record"):
            raise InvalidArgument(f"on_error={self.on_error!r}; it is 'stop' or 'record'")
        if self.batch_size is not None and self.batch_size < 1:
            raise InvalidArgument(f"batch_size={self.batch_size}; it is at least 1")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("module", "mapped")}

    @cached_property
    def module(self) -> Module:
        """The program, loaded."""
        if isinstance(self.model, Module):
            return self.model
        return load(self.model, method=next(iter(self.methods), "forward"))

    @cached_property
    def mapped(self) -> list[MappedMethod]:
        """Its methods, with their columns. Raises as the class says."""
        names = self.methods or (self.module.metadata.name(),)
        methods = {name: self.module[name] for name in names}
        return mapped_methods(methods, self.inputs, self.outputs, self.batch_size)

    def loaded(self) -> Self:
        """The same, the program opened and its names checked. Raises as the class says, and what loading raises."""
        self.mapped  # noqa: B018
        return self

    def __call__(self, rows: Any) -> Any:
        """The results of `rows`. Raises what the first row that fails raises, unless `on_error` is "record"."""
        if isinstance(rows, Mapping):
            return self._told(rows)
        columns = {name: rows[name].to_numpy() for name in rows.columns}  # a DataFrame
        results = {name: _cells(values) for name, values in self._told(columns).items()}
        return rows.assign(**results)

    def _told(self, columns: Columns) -> dict[str, Any]:
        mapped = self.map(columns)
        if self.on_error == "stop":
            return mapped.columns
        count = len(next(iter(columns.values())))
        return {**mapped.columns, ERROR: np.array([mapped.errors.get(row, "") for row in range(count)], object)}

    def map(self, columns: Columns, first_row: int = 0) -> MappedRows:
        """The results of rows, which messages count from `first_row`. Raises as calling it."""
        count = len(next(iter(columns.values()))) if columns else 0
        run = _Run(self, first_row, count)
        step = count if self.prepare is None else max(method.most for method in self.mapped)
        for start in range(0, count, max(step, 1)):
            run.prepare(columns, range(start, min(start + step, count)))
        return MappedRows(run.columns(), run.errors)


class _Run:
    """The outcome for some rows: results of some of them at a time, and errors."""

    def __init__(self, mapper: RowMapper, first_row: int, count: int) -> None:
        self.errors: dict[int, str] = {}
        self._mapper = mapper
        self._first_row = first_row
        self._count = count
        self._results: list[tuple[Sequence[int], dict[str, Sequence[Any]]]] = []

    def prepare(self, columns: Columns, rows: range) -> None:
        """The inputs of `rows`, and their results; where the function raises, of each row by itself."""
        prepare = self._mapper.prepare
        cut = _Slice(columns, rows)
        if prepare is None:
            self._inputs(cut, rows)
            return
        try:
            inputs = self._checked("prepare", prepare, cut, self._mapper.mapped[0].inputs[0].column, len(rows))
        except _Failed as failure:
            if len(rows) == 1:
                self._fail(rows[0], failure)
            else:
                for row in rows:
                    self.prepare(columns, range(row, row + 1))
        else:
            self._inputs(inputs, rows)

    def _inputs(self, columns: Columns, rows: range) -> None:
        """Call the methods on `rows`: on all where each column is an array of numbers, else on those of one shape."""
        columns = self._named(columns)
        methods = self._mapper.mapped
        if all(_is_numbers(columns[mapped.column]) for method in methods for mapped in method.inputs):
            try:
                whole = [[mapped.rows(columns[mapped.column]) for mapped in method.inputs] for method in methods]
            except _OF_A_ROW:
                pass  # row by row it is seen which are wrong
            else:
                self._calls(list(rows), whole)
                return
        sound: list[tuple[int, _Inputs]] = []
        for place, row in enumerate(rows):
            try:
                own = [[mapped.row(columns[mapped.column][place]) for mapped in method.inputs] for method in methods]
            except _OF_A_ROW as error:
                self._fail(row, error)
            else:
                sound.append((row, own))
        sound.sort(key=_shapes)  # stable: rows of one shape stay in order
        for _, group in groupby(sound, key=_shapes):
            alike = list(group)
            places = [range(len(method.inputs)) for method in methods]
            stacked = [
                [np.concatenate([own[method][place] for _, own in alike]) for place in inputs]
                for method, inputs in enumerate(places)
            ]
            self._calls([row for row, _ in alike], stacked)

    def _named(self, columns: Columns) -> Columns:
        """`columns`, by the names that the methods want; the only one there is may have any. Raises `InvalidArgument`
        for one that is missing."""
        needed = {mapped.column for method in self._mapper.mapped for mapped in method.inputs}
        if len(needed) == len(columns) == 1:
            return dict(zip(needed, columns.values(), strict=True))
        for column in sorted(needed):
            if column not in columns:
                raise InvalidArgument(f"there is no column {column!r}; columns are {', '.join(columns)}")
        return columns

    def _calls(self, rows: Sequence[int], inputs: _Inputs) -> None:
        """Call the methods on rows of one shape, as many at a time as each takes."""
        if not rows:
            return
        methods = self._mapper.mapped
        size = min(method.rows_of_a_call(own) for method, own in zip(methods, inputs, strict=True))
        for start in range(0, len(rows), size):
            self._call(rows[start : start + size], _cut(inputs, start, start + size))

    def _call(self, rows: Sequence[int], inputs: _Inputs) -> None:
        try:
            outputs: dict[str, Any] = {}
            for method, own in zip(self._mapper.mapped, inputs, strict=True):
                outputs |= method.call(own)
            if self._mapper.finish is not None:
                outputs = self._checked("finish", self._mapper.finish, outputs, "output", len(rows))
        except (*_OF_A_ROW, _Failed) as error:
            if len(rows) == 1:
                self._fail(rows[0], error)
            else:
                for place, row in enumerate(rows):
                    self._call([row], _cut(inputs, place, place + 1))
        else:
            self._results.append((rows, outputs))

    def _checked(self, what: str, function: RowFunction, rows: Columns, only: str, count: int) -> dict[str, Any]:
        """The result of a user's function for `count` rows, by column. Raises `_Failed` for whatever it raises."""
        try:
            result = function(rows)
        except Exception as error:
            raise _Failed(f"{what} raised {cause_of(error)}") from error
        by_column = dict(result) if isinstance(result, Mapping) else {only: result}
        for column, values in by_column.items():
            if not hasattr(values, "__len__") or len(values) != count:
                told = f"{len(values)} values" if hasattr(values, "__len__") else f"a {type(values).__name__}"
                raise _Failed(f"{what} gave {told} in column {column!r} for {count} rows")
        return by_column

    def _fail(self, row: int, error: Exception) -> None:
        message = str(error) if isinstance(error, _Failed) else cause_of(error)
        if self._mapper.on_error == "record":
            self.errors[row] = message
            return
        told = f"row {self._first_row + row}: "
        if isinstance(error, DelegraphError) and not isinstance(error, _Failed):
            raise restated(error, f"{told}{error}") from error
        raise InvalidArgument(f"{told}{message}") from error.__cause__

    def columns(self) -> dict[str, NDArray[Any]]:
        """All results, by column: one array where all rows' are alike, else an array of each row's."""
        if not self._count:
            return self._columns_of_no_rows()
        names = dict.fromkeys(name for _, results in self._results for name in results)
        if not self._results and self._mapper.finish is None:
            names = dict.fromkeys(column for method in self._mapper.mapped for column in method.outputs.values())
        return {name: self._column(name) for name in names}

    def _columns_of_no_rows(self) -> dict[str, NDArray[Any]]:
        """The columns that rows would have: `finish`, which gives them, is called with none."""
        outputs = {name: rows for method in self._mapper.mapped for name, rows in method.no_results().items()}
        if self._mapper.finish is None:
            return outputs
        try:
            finished = self._checked("finish", self._mapper.finish, outputs, "output", 0)
        except _Failed as failure:
            told = "there are no rows; finish is called with none, for their columns"
            raise InvalidArgument(f"{told}, and {failure}; have it take arrays of no rows") from failure.__cause__
        return {
            name: values if isinstance(values, np.ndarray) else np.empty(0, object) for name, values in finished.items()
        }

    def _column(self, name: str) -> NDArray[Any]:
        parts = [(rows, results[name]) for rows, results in self._results if name in results]
        kinds = {(_kind(values), np.shape(values)[1:]) for _, values in parts}
        if len(kinds) == 1 and None not in {kind for kind, _ in kinds}:
            ((dtype, shape),) = kinds
            blank = np.nan if np.issubdtype(dtype, np.inexact) else 0
            column: NDArray[Any] = np.full((self._count, *shape), blank, dtype)
            for rows, values in parts:
                column[list(rows)] = values
            return column
        cells = np.full(self._count, None, object)
        for rows, values in parts:
            for row, value in zip(rows, values, strict=True):
                cells[row] = value
        return cells


class _Failed(InvalidArgument):
    """A function of the user's raised, or gave what fits no rows."""


class _Slice(Mapping[str, Any]):
    """Some of the rows of columns."""

    def __init__(self, columns: Columns, rows: range) -> None:
        self._columns = columns
        self._rows = slice(rows.start, rows.stop)

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def _cut(inputs: _Inputs, start: int, end: int) -> _Inputs:
    return [[rows[start:end] for rows in own] for own in inputs]


def _is_numbers(column: Any) -> bool:
    return isinstance(column, np.ndarray) and column.dtype != object


def _shapes(row: tuple[int, _Inputs]) -> list[tuple[int, ...]]:
    return [array.shape for inputs in row[1] for array in inputs]


def _kind(values: Sequence[Any]) -> np.dtype[Any] | None:
    """The dtype of an array of numbers; None for anything else."""
    return values.dtype if isinstance(values, np.ndarray) and values.dtype.kind in "biufcmM" else None


def _cells(values: NDArray[Any]) -> Any:
    """A column as DataFrames have it: a value for each row, which is an array where results have dims."""
    return values if values.ndim == 1 else [*values]
