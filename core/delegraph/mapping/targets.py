"""Tables with the same columns -> a file, written whole or not at all."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from delegraph.errors import InvalidArgument
from delegraph.mapping.sources import FORMATS
from delegraph.program.files.atomic_file import write_atomically

__all__ = ["format_of", "require_place", "require_writable", "write_table"]


def format_of(path: Path) -> str:
    """The format of `path`, by its suffix. Raises `InvalidArgument` for one that is not known."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidArgument(f"{path}: the output is called {', '.join(FORMATS)}, by what it is to be")
    return FORMATS[path.suffix.lower()]


def require_place(path: Path) -> None:
    """Raise `InvalidArgument` if no file can get the name `path`, which is seen before anything is computed."""
    if path.is_dir():
        raise InvalidArgument(f"the output {path} is a folder; name a file in it")
    if not path.absolute().parent.is_dir():
        raise InvalidArgument(f"the output {path}: there is no folder {path.parent}; make it first")
    if path.exists() and not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK)):
        raise InvalidArgument(f"the output {path} is there, and read-only; remove it, or name another")


def require_writable(path: Path, fields: Iterable[pa.Field]) -> None:
    """Raise `InvalidArgument` if the format cannot hold these columns."""
    nested = [field for field in fields if pa.types.is_nested(field.type)]
    if format_of(path) == "csv" and nested:
        raise InvalidArgument(
            f"{path}: CSV has no lists, and column {nested[0].name!r} is {nested[0].type}; write .parquet,"
            " leave a column of the input out (--keep, keep=), or have `finish` give a number or a text for each row"
        )


def write_table(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write `tables` to `path`, one after the other, each with the columns of `schema` as far as it has them."""
    write_atomically(path, _pieces(_WRITERS[format_of(path)], schema, tables))


def _pieces(open_writer: Callable[..., Any], schema: pa.Schema, tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """The bytes of the file, as they come."""
    sink = _Sink()
    writer: AbstractContextManager[Any] = open_writer(sink, schema)
    with writer as opened:
        for table in tables:
            opened.write_table(_fitted(table, schema))
            yield sink.taken()
    yield sink.taken()


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


class _Sink(io.RawIOBase):
    """Bytes that are written, until they are taken."""

    def __init__(self) -> None:
        self._written = bytearray()
        self._before = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._written += view
        return view.nbytes

    def tell(self) -> int:
        return self._before + len(self._written)

    def taken(self) -> bytes:
        """The bytes since the last time."""
        taken = bytes(self._written)
        self._before += len(taken)
        self._written.clear()
        return taken

    def close(self) -> None:
        """Stay open for `taken`; Arrow closes what it has written."""


class _JsonLines:
    """A writer of an object a line; what JSON has no word for, a time or bytes, is its text."""

    def __init__(self, sink: _Sink, schema: pa.Schema) -> None:
        self._sink = sink

    def __enter__(self) -> _JsonLines:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing stands behind the last line."""

    def write_table(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            self._sink.write(f"{json.dumps(row, default=str)}\n".encode())


def _parquet(sink: _Sink, schema: pa.Schema) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(sink, schema)


def _csv(sink: _Sink, schema: pa.Schema) -> Any:
    import pyarrow.csv as csv

    return csv.CSVWriter(sink, schema)


_WRITERS: Final[Mapping[str, Callable[[_Sink, pa.Schema], Any]]] = {
    "parquet": _parquet,
    "ipc": pa.ipc.new_file,
    "csv": _csv,
    "json": _JsonLines,
}
