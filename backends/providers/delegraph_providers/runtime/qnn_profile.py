"""The profile that QNN's provider writes of each run -> events of a tracer: a span for each node, with its cycles.

The provider appends to a file, one line for each thing that it counts, after a heading:

    Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier
    0,NODE,9924,CYCLES,BACKEND,SUB-EVENT,Gemm_0_0:OpId_31 (cycles)
    0,BACKEND,58945,CYCLES,BACKEND,ROOT,Accelerator (execute) time (cycles)
    0,BACKEND,10096,US,BACKEND,ROOT,Accelerator (execute) time

(onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html, `profiling_level` and `profiling_file_path`.)
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delegraph.interfaces import EventTracer

__all__ = ["QnnProfile", "log_nodes"]

_WHOLE: Final = "Accelerator (execute) time"
_ADDED: Final = re.compile(r"(?:[: ]OpId_\d+)? \(cycles\)$")
"""The end of a node's name there: the provider's own number, and the unit."""


class QnnProfile:
    """The file of a session, in a folder of its own."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="delegraph-qnn-profile-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._path = Path(folder, "profile.csv")
        self._read = 0

    @property
    def options(self) -> dict[str, str]:
        """The options of the provider by which it writes there."""
        return {"profiling_level": "detailed", "profiling_file_path": str(self._path)}

    def new_lines(self) -> list[str]:
        """The lines since the last call."""
        if not self._path.exists():
            return []
        with self._path.open(encoding="utf-8", errors="replace") as file:
            file.seek(self._read)
            lines = file.read().splitlines()
            self._read = file.tell()
        return lines


def log_nodes(lines: Sequence[str], tracer: EventTracer, start: int) -> None:
    """Tell `tracer` of the nodes of a run that began at `start`, in nanoseconds: one span behind the other."""
    rows = [row for row in csv.reader(lines) if len(row) == 7 and row[2].isdecimal()]
    counted = {(row[3], row[6].removesuffix(" (cycles)")): int(row[2]) for row in rows}
    cycles, microseconds = (counted.get((unit, _WHOLE), 0) for unit in ("CYCLES", "US"))
    nanoseconds = 1000 * microseconds / cycles if cycles and microseconds else 1.0
    for _, message, count, unit, _, _, identifier in rows:
        if message == "NODE" and unit == "CYCLES":
            name, end = _ADDED.sub("", identifier), start + int(int(count) * nanoseconds)
            metadata = json.dumps({"cycles": int(count)}).encode()
            tracer.log_profiling(name, start, end, delegate_debug_id=name, metadata=metadata)
            start = end
