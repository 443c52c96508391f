"""A program and a table -> the table of its results, computed in parts that are never computed twice.

source ─parts, read as they are needed─> workers ─results─> parts beside the output ─at the end─> the output
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delegraph.errors import Internal, InvalidArgument, InvalidState, NotInstalled
from delegraph.mapping.row_mapper import OnError, RowFunction, RowMapper
from delegraph.runtime.concurrency import usable_cores
from delegraph.runtime.module import Module

if TYPE_CHECKING:
    import pyarrow as pa

    from delegraph.mapping.job import Job
    from delegraph.mapping.parts import Parts
    from delegraph.mapping.sources import Source

__all__ = ["MapProgress", "MappedTable", "map_table"]

PART_ROWS: Final = 1024
"""Rows of a part: what is lost of each worker's when a run is killed."""

_DEATHS: Final = 3
"""After how many deaths of its worker a part is given up."""


@dataclass(frozen=True, slots=True)
class MapProgress:
    """How far a run is: rows that are done, those of them that an earlier run had done, and all; None: not known."""

    rows: int
    resumed: int
    total: int | None


@dataclass(frozen=True, slots=True)
class MappedTable:
    """An output that is whole: its path, its rows, those of them with an error, and those that an earlier run had
    computed."""

    path: Path
    rows: int
    failed: int
    resumed: int
    seconds: float


def map_table(
    model: Module | str | os.PathLike[str] | bytes,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    methods: Sequence[str] = (),
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    batch_size: int | None = None,
    prepare: RowFunction | None = None,
    finish: RowFunction | None = None,
    keep: Sequence[str] | None = None,
    on_error: OnError = "stop",
    workers: int | Executor = 1,
    part_rows: int = PART_ROWS,
    restart: bool = False,
    progress: Callable[[MapProgress], object] | None = None,
) -> MappedTable:
    """Call a program on each row of `source`, and write the rows with its results to `target`.

        delegraph.map_table("model.pte", "rows.parquet", "scores.parquet", inputs={"x": "pixels"}, workers=4)

    Results are written in parts of `part_rows` rows, or of 64 MiB of input, into the folder `target` + ".parts"; when
    all are there, they are joined, and the folder goes. A run that was ended in whatever way is gone on with by the
    same call: no part is computed twice. The memory that is taken does not depend on how many rows there are.

    source: a .parquet, .arrow, .feather, .csv or .jsonl file, a folder of files of one of these kinds, or any other
        folder, each file of which is a row with its `path`, for `prepare` to read.
    target: a .parquet, .arrow, .feather, .csv or .jsonl file, which has the columns `keep` of the source (None: all)
        and those of the results; dims are nested lists.
    methods, inputs, outputs, batch_size, prepare, finish, on_error: see `RowMapper`. With on_error="record" the results
        of rows that failed are null, and a column `error` says what is wrong with them.
    workers: how many processes, each of which opens the program (a file is mapped, and in memory once), 1 for this one;
        or an `Executor` of any kind, to which the program, the functions and the parts are sent. A worker that dies
        loses nothing. Processes import the module of the functions: a script needs `if __name__ == "__main__":`.
    part_rows: rows of a part.
    restart: forget the parts that an earlier run left.
    progress: called after each part.

    Needs pyarrow: `pip install "delegraph[data]"`. Raises `InvalidState` where there are parts of a run with another
    program, input, function or setting, `InvalidArgument` for what does not fit the program, and what the first row
    raises that fails; its number stands in the message.
    """
    try:
        from delegraph.mapping.job import Job
        from delegraph.mapping.sources import open_source
        from delegraph.mapping.targets import format_of, require_place, require_writable
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        raise NotInstalled(
            'map_table reads and writes tables with pyarrow, which is not installed: pip install "delegraph[data]"',
            name="pyarrow",
        ) from error
    start = time.perf_counter()
    path = Path(target)
    format_of(path)
    require_place(path)
    if part_rows < 1 or (isinstance(workers, int) and workers < 1):
        raise InvalidArgument(f"part_rows={part_rows}, workers={workers}; both are at least 1")
    mapper = RowMapper(model, methods, inputs or {}, outputs or {}, batch_size, prepare, finish, on_error)
    mapper = replace(mapper, model=mapper.module).loaded()  # the Module goes to other processes, with its options
    rows = open_source(source)
    if path.resolve().is_relative_to(rows.path.resolve()):
        raise InvalidArgument(f"the output {path} lies in the input {rows.path}, which it would change; name another")
    _require_columns(rows, mapper, keep)
    kept = rows.schema if keep is None else [rows.schema.field(name) for name in keep]
    require_writable(path, kept)
    job = Job(os.urandom(8).hex(), mapper, None if keep is None else tuple(keep))
    resumed, failed, count = _run(job, rows, path, workers, part_rows, restart, progress)
    return MappedTable(path, count, failed, resumed, time.perf_counter() - start)


def _require_columns(source: Source, mapper: RowMapper, keep: Sequence[str] | None) -> None:
    """Raise `InvalidArgument` for a column that is needed and not there."""
    there = source.schema.names
    needed = [mapped.column for method in mapper.mapped for mapped in method.inputs] if mapper.prepare is None else []
    if len(there) == len(set(needed)) == 1 and source.kind is not None:
        needed = []
    for column in [*needed, *(keep or ())]:
        if column not in there:
            remedy = ""
            if source.kind is None:
                remedy = "; a folder of files needs a function that reads them: --function, prepare="
            elif column in needed:
                remedy = f"; if it has another name: --input COLUMN={column}, inputs={{{column!r}: COLUMN}}"
            raise InvalidArgument(f"{source.path} has no column {column!r}; columns are {', '.join(there)}{remedy}")


def _run(
    job: Job,
    source: Source,
    target: Path,
    workers: int | Executor,
    part_rows: int,
    restart: bool,
    progress: Callable[[MapProgress], object] | None,
) -> tuple[int, int, int]:
    """Compute what is not done yet and join it all: rows that were done, that failed, and all."""
    import pyarrow as pa

    from delegraph.mapping.identity import identity
    from delegraph.mapping.job import computed
    from delegraph.mapping.parts import Parts
    from delegraph.mapping.sources import parts_of
    from delegraph.mapping.targets import write_table

    assert job.mapper is not None
    same = identity(job.mapper, source, {"keep": job.keep})
    with Parts(target, same, restart=restart) as parts:
        done = parts.done()
        resumed = count = sum(end - first for first, end in done.items())
        total = source.count()
        pending = ((first, table) for first, table in parts_of(source, part_rows, done))
        for rows in _written(parts, _computed(job, pending, workers), target):
            count += rows
            if progress is not None:
                progress(MapProgress(count, resumed, total))
        if not count:  # the columns, of no rows
            parts.write(0, 0, computed(job, 0, pa.Table.from_batches([], source.schema)))
        failed = _failed(parts, job.mapper.on_error)
        write_table(target, parts.schema(), parts.tables())
        parts.remove()
    return resumed, failed, count


def _written(parts: Parts, results: Iterator[tuple[int, int, pa.Buffer]], target: Path) -> Iterator[int]:
    """Keep results; how many rows each time. Raises `InvalidArgument` where the target's format cannot hold them."""
    import pyarrow as pa

    from delegraph.mapping.targets import require_writable

    for number, (first, rows, content) in enumerate(results):
        if number == 0:
            require_writable(target, pa.ipc.open_stream(content).schema)
        parts.write(first, rows, content)
        yield rows


def _failed(parts: Parts, on_error: OnError) -> int:
    """How many rows have an error. Raises `InvalidState` where there are to be none, and an earlier run had some."""
    failed = parts.failed()
    if failed and on_error == "stop":
        raise InvalidState(
            f"{parts.folder}: an earlier run recorded errors of {failed} rows; go on with on_error='record', or begin"
            " anew: --restart, restart=True"
        )
    return failed


# ---- where parts are computed ----------------------------------------------------------------------

_Part = tuple[int, "pa.Table"]


def _computed(job: Job, parts: Iterator[_Part], workers: int | Executor) -> Iterator[tuple[int, int, pa.Buffer]]:
    """The first row, the number of rows and the results of each part, as they are ready."""
    from delegraph.mapping.job import begin, computed

    if isinstance(workers, Executor):
        size: int = getattr(workers, "_max_workers", None) or usable_cores()
        yield from _in_executor(job, parts, workers, 2 * size, {})
    elif workers == 1:
        assert job.mapper is not None
        begin(job.key, job.mapper)
        for first, table in parts:
            yield first, table.num_rows, computed(job, first, table)
    else:
        yield from _in_processes(job, parts, workers)


def _in_executor(
    job: Job, parts: Iterator[_Part], executor: Executor, most: int, running: dict[Future[pa.Buffer], _Part]
) -> Iterator[tuple[int, int, pa.Buffer]]:
    """The same, in an executor, `most` parts at a time. `running` has those that are not given yet."""
    from delegraph.mapping.job import computed_of_stream, stream_of

    try:
        while True:
            for first, table in islice(parts, most - len(running)):
                future: Future[pa.Buffer] = Future()
                try:
                    future = executor.submit(computed_of_stream, job, first, stream_of(table))
                finally:
                    running[future] = (first, table)
            if not running:
                return
            ready, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ready:
                first, table = running[future]
                content = future.result()
                del running[future]
                yield first, table.num_rows, content
    finally:
        for future in running:
            future.cancel()


def _in_processes(job: Job, parts: Iterator[_Part], workers: int) -> Iterator[tuple[int, int, pa.Buffer]]:
    """The same, in processes of ours. When one dies, all are made anew, and what they had is computed again."""
    from delegraph.mapping.job import begin_process

    assert job.mapper is not None
    deaths: Counter[int] = Counter()
    while True:
        running: dict[Future[pa.Buffer], _Part] = {}
        brought: Any = partial(begin_process, job.key, job.mapper)
        with ProcessPoolExecutor(workers, get_context("spawn"), brought) as pool:
            try:
                yield from _in_executor(replace(job, mapper=None), parts, pool, 2 * workers, running)
                return
            except BrokenProcessPool as broken:
                deaths.update(first for first, _ in running.values())
                for first, table in running.values():
                    if deaths[first] == _DEATHS:
                        raise Internal(
                            f"rows {first} to {first + table.num_rows - 1}, or those beside them: the process that"
                            f" computed them died {_DEATHS} times; standard error may say why"
                        ) from broken
                parts = chain(running.values(), parts)
