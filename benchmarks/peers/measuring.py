"""Contenders' files -> milliseconds: all are loaded, then called in rounds, in another order each time."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.peers.contenders import Contender, command
from benchmarks.peers.preparing import last_lines
from benchmarks.processes import POOLS

__all__ = ["measured"]

Figures = dict[str, Any]


def measured(
    prepared: Mapping[Contender, Figures], folder: Path, threads: int, rounds: int, seconds: float, prefix: list[str]
) -> dict[Contender, Figures]:
    """What is `prepared`, seconds to the first result, dB to eager's, milliseconds of a call, and the peak in MB."""
    figures = {one: dict(found) for one, found in prepared.items()}
    with ExitStack() as stack:
        runners = {}
        for one in (one for one, found in figures.items() if "error" not in found):
            runner = runners[one] = Runner(
                [*prefix, *command("run", one.peer, one.precision, folder, threads)], threads
            )
            stack.callback(runner.kill)
        for one, runner in list(runners.items()):
            try:
                figures[one] |= runner.load()
            except RuntimeError as error:
                figures[one]["error"] = str(error)
                del runners[one]
        for one, medians in _rounds(runners, rounds, seconds).items():
            figures[one] |= {"ms": min(medians), "rounds": medians, "peak_mb": runners[one].peak()}
    return figures


class Runner:
    """A contender in a process of its own: it imports what it needs at once, `load` loads, `round` gives milliseconds,
    `peak` ends it.
    """

    def __init__(self, command: list[str], threads: int) -> None:
        environment = os.environ | dict.fromkeys(POOLS, str(threads))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )

    def load(self) -> Figures:
        """Seconds to the first result, and how far that is from eager's. Raises `RuntimeError` with what it said."""
        self._answer()  # its imports are done
        return self._ask("load")

    def round(self, seconds: float) -> float:
        """The median of calls for so long."""
        return float(self._ask(str(seconds))["ms"])

    def peak(self) -> float:
        """The most memory that its process had, in MB."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return float(self._answer()["peak_mb"])

    def kill(self) -> None:
        """End the process, in whatever state it is."""
        self._process.kill()
        self._process.wait()

    def _ask(self, line: str) -> Figures:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Figures:
        assert self._process.stdout is not None
        told = []
        for line in self._process.stdout:
            if line.startswith("{"):
                found: Figures = json.loads(line)
                return found
            told.append(line)
        raise RuntimeError(last_lines("".join(told)))


def _rounds(runners: Mapping[Contender, Runner], rounds: int, seconds: float) -> dict[Contender, list[float]]:
    medians: dict[Contender, list[float]] = {one: [] for one in runners}
    order = random.Random(0)
    for _ in range(rounds):
        for one in order.sample(list(runners), len(runners)):
            medians[one].append(runners[one].round(seconds))
    return medians
