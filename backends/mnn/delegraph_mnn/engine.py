"""MNN, imported quietly, and its converter, in a process of its own: whoever needs MNN in this package asks here.

`import MNN` would bring its NumPy and its image library as well, so the extension module below it is imported. The
command `mnnconvert` is never used: its module installs packages with pip and reports to a server
(`MNN/tools/utils/log.py`). The extension `_tools`, which converts, does neither. It writes to standard output, and ends
its process for some graphs.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn

from delegraph.errors import NotSupported
from delegraph.interfaces import leave_at_fork

__all__ = ["LEFT", "ConversionFailed", "converted", "mnn", "version"]

_CONVERT: Final = """
import sys
sys.path.append(sys.argv[1])
import _tools
_tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", sys.argv[2], "--MNNModel", sys.argv[3], "--bizCode", "_"])
"""
_TELLING: Final = re.compile(r"(?i)not support|error|fail|can't|invalid")
_LONGEST: Final = 300
"""Characters of the converter's output that stand in a reason."""
_lock = threading.Lock()


class ConversionFailed(Exception):
    """MNN's converter refuses a graph; the text is its own."""


@cache
def version() -> str:
    """MNN's version."""
    return importlib.metadata.version("MNN")


class _Left:
    """In place of MNN's objects, in a child of the process that made them."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NotSupported(
            "this process was forked from one in which delegates of MNN had been loaded, and MNN's threads stayed"
            " there: fork before the first one is loaded, or start processes by spawn"
        )


LEFT: Final[Any] = _Left()


class _Entry:
    """MNN's extension module, one for the process."""

    module: Any = None

    def leave(self) -> object:
        left, self.module = self.module, LEFT
        return left


_ENTRY: Final = _Entry()


def mnn() -> Any:
    """MNN's extension module. In a child of a process that has it, everything asked of it raises `NotSupported`."""
    if _ENTRY.module is None:
        with _lock, _output_aside():
            _ENTRY.module = importlib.import_module("_mnncengine")
        leave_at_fork(_ENTRY.leave)
    return _ENTRY.module


@contextmanager
def _output_aside() -> Iterator[None]:
    """Within the `with`, what C code writes to standard output goes to standard error: MNN tells of the processor when
    it is imported, and standard output may be somebody's result."""
    library = ctypes.CDLL(None) if os.name == "posix" else ctypes.CDLL("msvcrt")
    library.fflush(None)
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        library.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


def converted(model: Path, result: Path) -> None:
    """Write MNN's graph of the ONNX file `model` into the file `result`.

    Raises `ConversionFailed`, and `OSError` where a process may not start another one.
    """
    tools = importlib.util.find_spec("_tools")
    assert tools is not None and tools.origin is not None
    arguments = [str(Path(tools.origin).parent), str(model), str(result)]
    done = subprocess.run([sys.executable, "-I", "-c", _CONVERT, *arguments], capture_output=True, check=False)
    if done.returncode or not result.is_file():
        output = (done.stdout + done.stderr).decode(errors="replace").splitlines()
        told = "; ".join(line for line in output if _TELLING.search(line))
        raise ConversionFailed(told[:_LONGEST] or f"it ended with {done.returncode}")
