"""Tasks, and how the words of a command line become tasks that run: `tools/tasks.py` says which there are."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final

from tools.distributions import ROOT
from tools.environments import SETTINGS, VENV, Environment

__all__ = ["TASKS", "Task", "When", "command", "listed", "main", "pytest", "run", "task"]


class When(Enum):
    """When a task is run; `.github/workflows` runs those of the first two kinds."""

    CHANGE = "On every change"
    NIGHT = "Every night"
    HAND = "By hand"


@dataclass(frozen=True, slots=True)
class Task:
    """A name on the command line and what it does; `says` is its line in the list."""

    name: str
    when: When
    says: str
    run: Callable[[], None]


TASKS: Final[dict[str, Task]] = {}


def task(when: When) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Make a function a task: its name with dashes, its docstring's first line; it runs once, however often asked."""

    def register(function: Callable[[], None]) -> Callable[[], None]:
        once = cache(function)
        name = function.__name__.replace("_", "-")
        TASKS[name] = Task(name, when, (function.__doc__ or "").partition("\n")[0], once)
        return once

    return register


def run(*words: str, environment: Environment = VENV, beside: Environment | None = None, **variables: str) -> None:
    """Run an environment's Python, with the packages `beside` it. Raises `CalledProcessError`."""
    command([str(environment.ready().python), *words], beside, **variables)


def command(words: list[str], beside: Environment | None = None, **variables: str) -> None:
    """Run a command in the repository's root. Raises `CalledProcessError`."""
    if beside:
        paths = (beside.ready().folder, os.environ.get("PYTHONPATH", ""))
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    print("+", *(f"{name}={value}" for name, value in variables.items()), *words, flush=True)
    subprocess.run(words, cwd=ROOT, env=os.environ | variables, check=True)


def pytest(*words: str, beside: Environment | None = None, environment: Environment = VENV, **variables: str) -> None:
    """Run pytest in two processes, of one thread each unless OMP_NUM_THREADS says otherwise: the same tests take a
    sixth less of two cores than with two. Raises `CalledProcessError`."""
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    pytest = ("-m", "pytest", "-q", "-n", "2")
    run(*pytest, *words, beside=beside, environment=environment, OMP_NUM_THREADS=threads, **variables)


def listed() -> str:
    """The list of tasks, by when they are run."""
    width = max(map(len, TASKS)) + 2
    lines = ["python -m tools.tasks NAME … or, where there is make, make NAME …"]
    for when in When:
        lines += ["", f"{when.value}:"]
        lines += [f"  {task.name:{width}}{task.says}" for task in TASKS.values() if task.when is when]
    defaults = ", ".join(f"{name}={value}" for name, value in SETTINGS.items())
    return "\n".join([*lines, "", f"Settings, as words or as the shell's variables: {defaults}"])


def main(words: list[str]) -> int:
    """Run the tasks that `words` name, with the settings among them; returns the exit code."""
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    names = [word for word in words if "=" not in word]
    if names in ([], ["help"]):
        print(listed())
        return 0
    for kind, known, asked in (("task", TASKS, names), ("setting", SETTINGS, settings)):
        for name in asked:
            if name not in known:
                near = "".join(f"; did you mean {match!r}?" for match in difflib.get_close_matches(name, known, 1))
                print(f"no {kind} {name!r}{near} `python -m tools.tasks` lists them", file=sys.stderr)
                return 2
    os.environ.update(settings)
    try:
        for name in names:
            TASKS[name].run()
    except subprocess.CalledProcessError as error:
        return error.returncode
    except KeyboardInterrupt:
        return 130
    return 0
