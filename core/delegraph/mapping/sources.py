"""Files with rows -> tables of some of them, one after the other, read as they are asked for.

a .parquet, .arrow, .feather, .csv, .jsonl file, or a folder of files of one of these kinds   its rows
any other folder, without files of these kinds                     a row for each file in it, a column `path`

Files and folders in a folder whose names begin with `.` or `_` are passed over, as Arrow does.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from delegraph.errors import AccessFailed, InvalidArgument

__all__ = ["FORMATS", "PART_BYTES", "Source", "open_source", "parts_of"]

FORMATS: Final[Mapping[str, str]] = {
    ".parquet": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
}
"""The format of a file, by its suffix, as `pyarrow.dataset` calls it."""

PART_BYTES: Final = 2**26
"""The bytes of rows after which a part ends, whatever rows it was to have: what one process has in memory of them."""


_BLOCK_BYTES: Final = 2**24
"""Bytes of text that are read at a time; a row has to fit."""


@dataclass(frozen=True, slots=True)
class Source:
    """Rows in files; `count` is how many, where the files say it. `kind` None: a row for each file."""

    path: Path
    files: tuple[Path, ...]
    kind: str | None

    @property
    def schema(self) -> pa.Schema:
        """Its columns. Raises `AccessFailed` for a file that is no such file."""
        return pa.schema([("path", pa.string())]) if self.kind is None else self._dataset().schema

    def count(self) -> int | None:
        """How many rows there are, where the files say so without being read."""
        if self.kind is None:
            return len(self.files)
        if self.kind not in ("parquet", "ipc"):
            return None
        rows: int = self._dataset().count_rows()
        return rows

    def _dataset(self) -> ds.Dataset:
        try:
            return ds.dataset([str(file) for file in self.files], format=_format(self.kind))
        except (pa.ArrowException, OSError) as error:
            raise AccessFailed(f"{self.path} is no {self.kind} that can be read: {error}") from error

    def tables(self, rows: int) -> Iterator[pa.Table]:
        """The rows in order, at most about `rows` at a time. Raises `AccessFailed`, with the row, where one cannot be
        read."""
        if self.kind is None:
            for start in range(0, len(self.files), rows):
                yield pa.table({"path": [str(file) for file in self.files[start : start + rows]]})
            return
        read = 0
        options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
        if self.kind == "parquet":
            options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False)
        try:
            for batch in self._dataset().to_batches(batch_size=self._batch_rows(rows), **options):
                read += batch.num_rows
                yield pa.Table.from_batches([batch])
        except (pa.ArrowException, OSError) as error:
            raise AccessFailed(f"{self.path} cannot be read behind row {read}: {error}") from error

    def _batch_rows(self, rows: int) -> int:
        """How many rows are decoded at a time: of wide rows, fewer."""
        if self.kind != "parquet":
            return rows
        import pyarrow.parquet as pq

        metadata = pq.ParquetFile(self.files[0]).metadata
        wide = [metadata.row_group(group) for group in range(min(metadata.num_row_groups, 1))]
        widest = max((group.total_byte_size // max(group.num_rows, 1) for group in wide), default=1)
        return max(1, min(rows, PART_BYTES // max(widest, 1)))


def _format(kind: str | None) -> Any:
    """The format, with blocks that hold long rows, and texts of several lines in CSV."""
    if kind == "csv":
        import pyarrow.csv as csv

        lines = csv.ParseOptions(newlines_in_values=True)
        return ds.CsvFileFormat(read_options=csv.ReadOptions(block_size=_BLOCK_BYTES), parse_options=lines)
    if kind == "json":
        import pyarrow.json as json

        return ds.JsonFileFormat(read_options=json.ReadOptions(block_size=_BLOCK_BYTES))
    return kind


def open_source(path: str | os.PathLike[str]) -> Source:
    """The rows at `path`. Raises `AccessFailed` where there is nothing, `InvalidArgument` for another kind, and for a
    folder whose files are not all of one kind."""
    place = Path(path)
    if place.is_dir():
        files = tuple(sorted(file for file in place.rglob("*") if file.is_file() and not _is_hidden(file, place)))
        return Source(place, files, _only_kind(place, files))
    if not place.is_file():
        raise AccessFailed(f"there is no file or folder {place}")
    kind = FORMATS.get(place.suffix.lower())
    if kind is None:
        raise InvalidArgument(f"{place}: a file with rows is called {', '.join(FORMATS)}; or name a folder of files")
    return Source(place, (place,), kind)


def _only_kind(place: Path, files: tuple[Path, ...]) -> str | None:
    """The kind of all `files`; None if none has rows. Raises `InvalidArgument` that names one of the fewest."""
    by_kind: dict[str | None, list[Path]] = {}
    for file in files:
        by_kind.setdefault(FORMATS.get(file.suffix.lower()), []).append(file)
    if len(by_kind) > 1:
        odd, *_, most = sorted(by_kind, key=lambda kind: (len(by_kind[kind]), kind is not None))
        raise InvalidArgument(
            f"{place} has files of several kinds, {by_kind[odd][0].name} and {by_kind[most][0].name}: name a folder of"
            " tables of one kind, or of files that are none; what is to be passed over gets a name that begins with _"
        )
    return next(iter(by_kind), None)


def _is_hidden(file: Path, below: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(below).parts)


def parts_of(source: Source, rows: int, done: Mapping[int, int]) -> Iterator[tuple[int, pa.Table]]:
    """Tables of `rows` rows, or of fewer where these are large, with the first one's number; without the rows of the
    parts that are `done`, end by start."""
    pending: list[pa.Table] = []
    position, first, skipped_to = 0, 0, 0
    starts = sorted(done)
    for table in source.tables(rows):
        while table.num_rows:
            if not pending:
                first, skipped_to = position, max(skipped_to, done.get(position, 0))
            if position < skipped_to:
                count = min(skipped_to - position, table.num_rows)
            else:
                later = bisect_right(starts, position)
                end = min(first + rows, starts[later] if later < len(starts) else first + rows)
                count = min(end - position, table.num_rows)
                pending.append(table.slice(0, count))
                if position + count == end or sum(piece.nbytes for piece in pending) >= PART_BYTES:
                    yield first, pa.concat_tables(pending)
                    pending = []
            table, position = table.slice(count), position + count
    if pending:
        yield first, pa.concat_tables(pending)
