"""Programs -> how long they take: each in processes of its own, which `delegraph run` is, the programs in turn.

round 1    a  b  c        what else the machine does in a round, all of them feel;
round 2    b  c  a        no program has another one's threads or memory beside it
round 3    c  a  b
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, TypedDict

from delegraph.errors import DelegraphError, RuntimeFault
from delegraph.remote import DeviceFolder, Done

__all__ = ["TIMEOUT", "Runner", "Times", "in_turns"]

FEW: Final = 3
"""Executions by which the number that fits into a turn is estimated; they are not counted."""
MOST: Final = 2000
"""The most executions of a turn."""
TIMEOUT: Final = 600.0
"""Seconds that a process may take, to load and to execute: a backend that hangs holds nobody up."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of an execution, the median of each turn; of loading, and of the first execution, the median of turns.

    `peak_memory` is what a process took at most, in bytes; None where the system does not tell.
    """

    turns: tuple[float, ...]
    load: float
    first: float
    peak_memory: int | None

    @property
    def seconds(self) -> float:
        """The time of an execution."""
        return median(self.turns)

    @property
    def spread(self) -> float:
        """Half of what turns differ by, as a share of `seconds`."""
        return (max(self.turns) - min(self.turns)) / 2 / self.seconds


class Turn(TypedDict):
    """The result of `delegraph run`, as far as it is read here."""

    latency_seconds: Mapping[str, float]
    load_seconds: float
    first_seconds: float
    peak_memory_nbytes: int | None


@dataclass(slots=True)
class Runner:
    """One method of one program, run by itself again and again, here or on a device; `timeout` is what each process may
    take, in seconds."""

    name: str
    program: Path
    method: str
    inputs: Path
    outputs: Path
    backend_options: str = ""
    timeout: float = TIMEOUT
    device: DeviceFolder | None = None
    repeat: int = FEW
    turns: list[Turn] = field(default_factory=list)
    problem: str = ""

    def prepare(self, seconds: float) -> None:
        """Run a few times, write the outputs, and see how many executions fill `seconds`."""
        said = self._run("--output", self.outputs)
        self.repeat = min(MOST, max(1, round(seconds / said["latency_seconds"]["median"])))

    def turn(self) -> None:
        """Run for about the seconds of `prepare`."""
        self.turns.append(self._run("--warmup", str(self.repeat // 4)))

    def times(self) -> Times:
        """The times of all turns together."""
        peaks = [turn["peak_memory_nbytes"] for turn in self.turns if turn["peak_memory_nbytes"] is not None]
        return Times(
            tuple(turn["latency_seconds"]["median"] for turn in self.turns),
            median(turn["load_seconds"] for turn in self.turns),
            median(turn["first_seconds"] for turn in self.turns),
            max(peaks, default=None),
        )

    def _run(self, *more: str | Path) -> Turn:
        """The result that the process writes into a file: its standard output is open to whatever plug-ins print."""
        told = self.outputs.with_suffix(".json")
        told.unlink(missing_ok=True)
        words = [*self._words(told), *more]
        if self.device is not None:
            done = self.device.run(words, [told, self.outputs], self.timeout)
        else:
            done = run_here(words, self.outputs.with_suffix(".txt"), self.timeout)
        if done.code is None:
            raise RuntimeFault(f"its process took more than {self.timeout:g} s and was ended")
        if done.code or not told.exists():
            raise RuntimeFault(self._reason(done.stderr.strip()) or f"ended with exit code {done.code}")
        turn: Turn = json.loads(told.read_text("utf-8"))
        return turn

    def _words(self, told: Path) -> list[str | Path]:
        options = ["--backend-options", self.backend_options] if self.backend_options else []
        files: list[str | Path] = ["--inputs", self.inputs, "--json-file", told]
        return ["run", self.program, "--method", self.method, "--repeat", str(self.repeat), *files, *options]

    def _reason(self, text: str) -> str:
        """The error message in `text`, without the name of our own file; the last line of a text that is no message."""
        _, named, message = text.rpartition("delegraph run: ")
        return message.removeprefix(f"{self.program}: ") if named else text.rpartition("\n")[2]


def run_here(words: Sequence[str | Path], errors: Path, timeout: float) -> Done:
    """Run `python -m delegraph WORDS`; what it writes to its standard error goes into a file, without a limit."""
    command = [sys.executable, "-m", "delegraph", *map(str, words)]
    with errors.open("wb") as file:
        try:
            code = subprocess.run(
                command, stdout=subprocess.DEVNULL, stderr=file, timeout=timeout, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return Done(None, "", "")
    return Done(code, "", errors.read_text("utf-8", "replace"))


def in_turns(runners: Sequence[Runner], rounds: int, seconds: float, started: Callable[[str], object]) -> None:
    """Run each in every round, beginning with another one; who fails once is left out, and its `problem` says why."""
    for runner in runners:
        started(f"trying {runner.name}")
        _tried(runner, lambda tested: tested.prepare(seconds))
    able = [runner for runner in runners if not runner.problem]
    for turn in range(rounds if able else 0):
        started(f"measuring, round {turn + 1} of {rounds}")
        first = turn % len(able)
        for runner in [*able[first:], *able[:first]]:
            _tried(runner, Runner.turn)


def _tried(runner: Runner, what: Callable[[Runner], object]) -> None:
    if runner.problem:
        return
    try:
        what(runner)
    except DelegraphError as error:
        runner.problem = str(error)
