"""Results of parts of the rows, in a folder beside the output as long as that is not whole.

    out.parquet.parts/run.json                                  what the parts are of: see `identity`
                      rows-000000000000-000000001024.arrow      each written whole or not at all

The folder marks the output as partial: it goes when the output is there.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa

from delegraph.errors import InvalidState
from delegraph.program.files.atomic_file import write_atomically

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["FAILED", "Parts"]

FAILED: Final = b"delegraph.failed"
"""The key of the schema of a part under which the number of its rows with an error stands."""

_NAME: Final = re.compile(r"rows-(\d{12})-(\d{12})\.arrow")


class Parts:
    """The parts of the run whose output is `target`. A context manager: two runs cannot have it at the same time.

    Raises `InvalidState` where the folder has parts of another run, or another process works on it.
    """

    def __init__(self, target: Path, identity: dict[str, Any], *, restart: bool = False) -> None:
        self.folder = target.with_name(f"{target.name}.parts")
        self._record = self.folder / "run.json"
        self.folder.mkdir(exist_ok=True)
        self._lock = self._locked(target)
        if restart:
            for file in self.folder.glob("rows-*.arrow"):
                file.unlink()
        elif self._record.exists() and self.done():
            self._require_same(identity)
        write_atomically(self._record, [json.dumps(identity, indent=2).encode()])

    def _locked(self, target: Path) -> IO[bytes]:
        file = (self.folder / "lock").open("wb")
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                raise InvalidState(f"another process works on {target}: {self.folder} is locked") from None
        return file

    def _require_same(self, identity: dict[str, Any]) -> None:
        before = json.loads(self._record.read_text("utf-8"))
        now = json.loads(json.dumps(identity))
        other = [name for name in now if before.get(name) != now[name]]
        if other:
            self._lock.close()
            raise InvalidState(
                f"{self.folder} has parts of another run: {', '.join(other)} {'is' if len(other) == 1 else 'are'} not"
                " what they were made with; go on with that, or begin anew: --restart, restart=True"
            )

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()
        if self.folder.is_dir() and not self.done():  # nothing to go on with
            shutil.rmtree(self.folder)

    def done(self) -> dict[int, int]:
        """The rows of the parts that are there: the end by the start."""
        matches = [_NAME.fullmatch(file.name) for file in self.folder.iterdir()]
        return dict(sorted((int(match[1]), int(match[2])) for match in matches if match))

    def write(self, first: int, rows: int, content: pa.Buffer) -> None:
        """Keep the results of `rows` rows from `first` on: a stream of Arrow."""
        write_atomically(self._path(first, first + rows), [memoryview(content)])

    def _path(self, first: int, end: int) -> Path:
        return self.folder / f"rows-{first:012d}-{end:012d}.arrow"

    def tables(self) -> Iterator[pa.Table]:
        """The results, part by part, in the order of the rows."""
        for first, end in self.done().items():
            with pa.OSFile(str(self._path(first, end))) as file:
                yield pa.ipc.open_stream(file).read_all()

    def schema(self) -> pa.Schema:
        """The columns of all parts: types that differ are widened, and a column that one has, all have."""
        schemas = [schema.remove_metadata() for schema in self._schemas()]
        return pa.unify_schemas(schemas, promote_options="permissive") if schemas else pa.schema([])

    def failed(self) -> int:
        """How many of their rows have an error."""
        return sum(int(schema.metadata[FAILED]) for schema in self._schemas())

    def _schemas(self) -> Iterator[pa.Schema]:
        for first, end in self.done().items():
            with pa.OSFile(str(self._path(first, end))) as file:
                yield pa.ipc.open_stream(file).schema

    def remove(self) -> None:
        """The output is there."""
        self._lock.close()
        shutil.rmtree(self.folder)
