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
from typing import Any, Final

from delegraph.errors import DelegraphError, RuntimeFault

__all__ = ["Runner", "Times", "in_turns"]

FEW: Final = 3
"""Executions that say how many fit into a turn; they are not counted."""
MOST: Final = 2000
"""Executions of a turn."""


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
        """Of an execution."""
        return median(self.turns)

    @property
    def spread(self) -> float:
        """Half of what turns differ by, as a share of `seconds`."""
        return (max(self.turns) - min(self.turns)) / 2 / self.seconds


@dataclass(slots=True)
class Runner:
    """One method of one program, run by itself again and again."""

    name: str
    program: Path
    method: str
    inputs: Path
    outputs: Path
    backend_options: str = ""
    repeat: int = FEW
    turns: list[Mapping[str, Any]] = field(default_factory=list)
    problem: str = ""

    def prepare(self, seconds: float) -> None:
        """Run a few times, write the outputs, and see how many executions fill `seconds`."""
        said = self._run("--output", str(self.outputs))
        self.repeat = min(MOST, max(1, round(seconds / said["latency_seconds"]["median"])))

    def turn(self) -> None:
        """Run for about the seconds of `prepare`."""
        self.turns.append(self._run("--warmup", str(self.repeat // 4)))

    def times(self) -> Times:
        """All turns together."""
        peaks = [turn["peak_memory_nbytes"] for turn in self.turns if turn["peak_memory_nbytes"] is not None]
        return Times(
            tuple(turn["latency_seconds"]["median"] for turn in self.turns),
            median(turn["load_seconds"] for turn in self.turns),
            median(turn["first_seconds"] for turn in self.turns),
            max(peaks, default=None),
        )

    def _run(self, *more: str) -> Any:
        options = ["--backend-options", self.backend_options] if self.backend_options else []
        named = ["--method", self.method, "--inputs", str(self.inputs), "--repeat", str(self.repeat), *options]
        command = [sys.executable, "-m", "delegraph", "run", str(self.program), "--json", *named, *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeFault(self._reason(done.stderr.strip()) or f"ended with exit code {done.returncode}")
        return json.loads(done.stdout)

    def _reason(self, text: str) -> str:
        """Its message, without the name of our own file; the last line of what is none."""
        _, named, message = text.rpartition("delegraph run: ")
        return message.removeprefix(f"{self.program}: ") if named else text.rpartition("\n")[2]


def in_turns(runners: Sequence[Runner], rounds: int, seconds: float, started: Callable[[str], object]) -> None:
    """Run each in every round, beginning with another one; who fails once is left out, and its `problem` says why."""
    for runner in runners:
        started(f"trying {runner.name}")
        _tried(runner, lambda one: one.prepare(seconds))
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
