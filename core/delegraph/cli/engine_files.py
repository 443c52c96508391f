"""`delegraph inspect m.pte --delegates DIR`: delegates as their engines' own files, for Netron and others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delegraph.plugins.registry import PluginRegistry
    from delegraph.program import schema
    from delegraph.program.schema import Buffer
    from delegraph.runtime.program import Program

__all__ = ["write_delegates"]


@dataclass(frozen=True, slots=True)
class _Delegate:
    """A delegate and the sizes of the files that were written for it, by name; or why there are none."""

    method: str
    index: int
    backend: str
    files: dict[str, int]
    reason: str = ""


def write_delegates(records: schema.Program, folder: str, data: Sequence[str], as_json: bool) -> None:
    """Write the files of all delegates into `folder`, which is made, and print which; external weights are in `data`.

    Nothing is written if one of the blobs cannot be read. Raises their backends' errors, and `OSError`.
    """
    from delegraph.plugins.registry import default_registry
    from delegraph.program.files.atomic_file import write_together
    from delegraph.runtime.program import Program, Verification

    program = Program.load(records, verification=Verification.Minimal, data_path=data or None)
    files_of_delegates = list(_made(program, default_registry()))
    os.makedirs(folder, exist_ok=True)
    for _, files in files_of_delegates:
        write_together([(os.path.join(folder, name), pieces) for name, pieces in files.items()])
    delegates = [delegate for delegate, _ in files_of_delegates]
    if as_json:
        print(json.dumps({"folder": folder, "delegates": [asdict(delegate) for delegate in delegates]}, indent=2))
    else:
        _print(folder, delegates)


def _made(program: Program, plugins: PluginRegistry) -> Iterator[tuple[_Delegate, dict[str, Sequence[Buffer]]]]:
    for plan in program.records.execution_plan:
        for index, record in enumerate(plan.delegates):
            files, reason = _files(program, plan, index, plugins)
            sizes = {name: sum(memoryview(piece).nbytes for piece in pieces) for name, pieces in files.items()}
            yield _Delegate(plan.name, index, record.id, sizes, reason), files


def _files(
    program: Program, plan: schema.ExecutionPlan, index: int, plugins: PluginRegistry
) -> tuple[dict[str, Sequence[Buffer]], str]:
    """The files of a delegate, or why it has none."""
    from urllib.parse import quote

    from delegraph.errors import PluginNotFound
    from delegraph.plugins.blob_views import engine_files

    record = plan.delegates[index]
    name = f"{quote(plan.name, safe='')}_delegate_{index}"  # a method is called what its file says
    blob = program.records.delegate_data[record.processed]
    try:
        files = dict(engine_files(record.id, name, blob, program.named_data, plugins))
    except PluginNotFound:
        return {}, "its backend is not installed here"
    return files, "" if files else "its backend has no format that others open"


def _print(folder: str, delegates: Sequence[_Delegate]) -> None:
    from delegraph.tables import Table, count, print_table

    rows = [
        (delegate.method, str(delegate.index), delegate.backend, name, size)
        for delegate in delegates
        for name, size in [(name, count(size)) for name, size in delegate.files.items()] or [(delegate.reason, "")]
    ]
    columns = ("method", "delegate", "backend", "file", "bytes")
    print_table(Table(f"delegates, in {folder}", columns, rows, frozenset({"bytes"})))
    if not rows:
        print("the program has no delegates")
