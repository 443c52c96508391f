"""Runs inside ExecuTorch's environment: `run_programs.py DIR`, which has cases.pt and the programs that it names.

cases.pt is {name: (file, calls)}. results.pt will be {name: (kind, value)}: ("ran", outputs of each call),
("refuses", ExecuTorch's log), ("crashes", its log and the signal); operators.txt has the operators that are registered.
Programs run in forked processes: one that ends its process takes no result of another with it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from executorch.extension.pybindings import portable_lib

import executorch.kernels.quantized  # noqa: F401  isort: skip  registers its kernels

SECONDS_PER_PROGRAM = 20


def main(directory: Path) -> None:
    cases = torch.load(directory / "cases.pt")
    names = list(cases)
    start = 0
    while start < len(names):
        start = _run_chunk(directory, cases, names, start)
    results = {name: torch.load(_result_file(directory, name, cases)) for name in names}
    torch.save(results, directory / "results.pt")
    (directory / "operators.txt").write_text("\n".join(sorted(portable_lib._get_operator_names())))


def _run_chunk(directory: Path, cases: dict[str, Any], names: list[str], start: int) -> int:
    """Run the programs from `start` in a child until it is done or dead. Returns where to go on."""
    log = directory / "log.txt"
    child = os.fork()
    if child == 0:
        _run_all(directory, cases, names[start:], log)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    for position in range(start, len(names)):
        if not _result_file(directory, names[position], cases).exists():
            how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "exited"
            torch.save(("crashes", f"{_read(log)}{how}"), _result_file(directory, names[position], cases))
            return position + 1
    return len(names)


def _run_all(directory: Path, cases: dict[str, Any], names: list[str], log: Path) -> None:
    handle = os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(handle, stream)
    for name in names:
        os.ftruncate(handle, 0)
        signal.alarm(SECONDS_PER_PROGRAM)
        file, calls = cases[name]
        try:
            result: tuple[str, Any] = ("ran", _outputs(directory / file, calls))
        except Exception as error:
            result = ("refuses", f"{_read(log)}{error}")
        torch.save(result, _result_file(directory, name, cases))


def _outputs(path: Path, calls: list[tuple[Any, ...]]) -> list[list[Any]]:
    module = portable_lib._load_for_executorch(str(path))
    return [[_owned(value) for value in module.run_method("forward", tuple(call))] for call in calls]


def _owned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _read(log: Path) -> str:
    return log.read_text(errors="replace")


def _result_file(directory: Path, name: str, cases: dict[str, Any]) -> Path:
    return directory / f"{cases[name][0]}.result"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
