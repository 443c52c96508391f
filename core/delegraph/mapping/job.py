"""A part of the rows -> its results, in whatever process it is computed."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from multiprocessing import parent_process
from threading import Thread
from typing import Any

import pyarrow as pa

from delegraph.errors import InvalidArgument
from delegraph.mapping.arrow import ArrowColumns, arrow_column
from delegraph.mapping.parts import FAILED
from delegraph.mapping.row_mapper import ERROR, RowMapper

__all__ = ["Job", "begin", "begin_process", "computed", "computed_of_stream", "stream_of"]


@dataclass(frozen=True, slots=True)
class Job:
    """The same for all parts. `mapper` None: that which `begin` brought to the process under the same `key`.
    `keep` are the columns of the input that the output has, None for all."""

    key: str
    mapper: RowMapper | None
    keep: tuple[str, ...] | None


_BEGUN: dict[str, RowMapper] = {}
"""The last job's mapper, by its key: a process opens the program once."""


def begin(key: str, mapper: RowMapper) -> RowMapper:
    """Have `mapper` for all parts of the job `key` that come to this process."""
    _BEGUN.clear()
    _BEGUN[key] = mapper
    return mapper


def begin_process(key: str, mapper: RowMapper) -> None:
    """The same, in a process that is made for it: it ends with its parent, however that ends, and at Ctrl-C at once."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent,), daemon=True).start()
    begin(key, mapper)


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def computed(job: Job, first_row: int, table: pa.Table) -> pa.Buffer:
    """The results of the rows in `table`, the first of which has the number `first_row`: a stream of Arrow.

    Raises what the first row that fails raises, unless errors are recorded, in a column `error`.
    """
    mapper = _BEGUN.get(job.key)
    if mapper is None:
        assert job.mapper is not None
        mapper = begin(job.key, job.mapper)
    mapped = mapper.map(ArrowColumns(table), first_row)
    kept = table if job.keep is None else table.select(list(job.keep))
    columns = dict(zip(kept.column_names, kept.columns, strict=True))
    failed = sorted(mapped.errors)
    results = {name: arrow_column(values, failed) for name, values in mapped.columns.items()}
    if mapper.on_error == "record":
        texts = [mapped.errors.get(row) for row in range(table.num_rows)]
        results[ERROR] = pa.array(texts, pa.string())
    for name in results:
        if name in columns:
            raise InvalidArgument(
                f"column {name!r} is in the input and among the results: call one otherwise, or leave one out"
            )
    return stream_of(pa.table(columns | results, metadata={FAILED: str(len(failed))}))


def computed_of_stream(job: Job, first_row: int, rows: pa.Buffer) -> pa.Buffer:
    """The same, of rows that came from another process: see `stream_of`."""
    return computed(job, first_row, pa.ipc.open_stream(rows).read_all())


def stream_of(table: pa.Table) -> pa.Buffer:
    """`table` as a stream of Arrow: its rows alone, where pickle takes all that the slice was cut from."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
