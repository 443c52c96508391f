"""A worker's process: asked one thing at a time, within a time limit, and started anew after it died."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import IO, Any, Final

__all__ = ["Died", "Process"]


_START: Final = 600.0
"""Seconds for a worker to import torch, which on a busy machine takes a minute; no plug-in is loaded in them."""


class Died(Exception):
    """The process ended, or did not answer in time; the message says how."""


class Process:
    """`python -m delegraph_testkit.worker MODE`, started when it is first asked, in this process's environment and
    with the `additions` to it."""

    def __init__(self, *mode: str, additions: Mapping[str, str] = MappingProxyType({})) -> None:
        self._mode = mode
        self._additions = additions
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._errors: IO[str] | None = None

    def ask(self, request: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """The answer. Raises `Died`; the next request then gets a new process."""
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
            raise Died(f"it did not answer within {limit:g} s") from None
        if not line:
            code, words = process.wait(), self._last_words()
            self.close()
            raise Died(f"its process ended with code {code}{words and f': {words}'}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._answers = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "delegraph_testkit.worker", *self._mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **self._additions},
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
                stream.close()


def _pass_on(lines: IO[str], answers: queue.SimpleQueue[str]) -> None:
    with lines:
        for line in lines:
            answers.put(line)
    answers.put("")
