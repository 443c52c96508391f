"""A process that is asked one thing at a time, within a time limit, and started anew after it died; both its ends.

    WorkerProcess("package.module").ask({"number": 3}, 10)   ->   {"square": 9}

    # package/module.py, run as `python -m package.module`
    serve(lambda request: {"square": request["number"] ** 2})

Requests and answers are lines of JSON. What is asked may hang, crash or write to standard output.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import IO, Any, Final

__all__ = ["WorkerDied", "WorkerHangs", "WorkerProcess", "serve", "with_our_path"]


_START: Final = 600.0
"""Seconds for a worker to import torch, which on a busy machine takes a minute; no plug-in is loaded in them."""


class WorkerDied(Exception):
    """The process ended, or did not answer in time; the message says how."""


class WorkerHangs(WorkerDied):
    """It did not answer in time, and was ended."""


class WorkerProcess:
    """`python -m MODULE WORDS`, started when it is first asked; it finds whatever this process can import, and has this
    process's environment with the `additions` to it."""

    def __init__(self, module: str, *words: str, additions: Mapping[str, str] = MappingProxyType({})) -> None:
        self._command = [sys.executable, "-m", module, *words]
        self._additions = additions
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._errors: IO[str] | None = None

    def ask(self, request: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """The answer. `limit` is seconds. Raises `WorkerDied`; the next request then gets a new process."""
        process = self._process or self._start()
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it died meanwhile, which the end of its answers tells
        try:
            line = self._answers.get(timeout=limit)
        except queue.Empty:
            self.close()
            raise WorkerHangs(f"it did not answer within {limit:g} s") from None
        if not line:
            code, words = process.wait(), self._last_words()
            self.close()
            raise WorkerDied(f"its process ended with code {code}{_signal(code)}{words and f': {words}'}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._answers = queue.SimpleQueue()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            env={**with_our_path(), **self._additions},
        )
        threading.Thread(target=_pass_on, args=(self._process.stdout, self._answers), daemon=True).start()
        with suppress(queue.Empty):
            if not self._answers.get(timeout=_START):
                self._answers.put("")  # it died: whoever asks is told
        return self._process

    def _last_words(self) -> str:
        assert self._errors is not None
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return lines[-1] if lines else ""

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, self._errors):
            if stream is not None:
                with suppress(BrokenPipeError):  # a request that it never read
                    stream.close()


def _signal(code: int) -> str:
    try:
        return f" ({signal.Signals(-code).name})"
    except ValueError:
        return ""


def with_our_path() -> dict[str, str]:
    """The environment of a process that finds whatever this process can import."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _pass_on(lines: IO[str], answers: queue.SimpleQueue[str]) -> None:
    with lines:
        for line in lines:
            answers.put(line)
    answers.put("")


def serve(
    answer: Callable[[Mapping[str, Any]], Mapping[str, Any]], prepare: Callable[[], object] | None = None
) -> None:
    """Answer requests until there are no more; what is printed meanwhile goes to standard error, not between them.

    `prepare` is called first: slow imports come before the clock runs.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if prepare is not None:
        prepare()
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()
