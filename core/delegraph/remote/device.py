"""A host, and a request with files -> the answer of its Python, over the system's ssh, so that ~/.ssh/config counts."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from types import MappingProxyType
from typing import IO, Any, Final

from delegraph.errors import DeviceError
from delegraph.remote import receiver

__all__ = ["Device"]

_NOT_REACHED: Final = 255
"""The exit code of ssh's own failures (ssh(1)); any other is that of the command on the host."""
_NO_PROGRAM: Final = (126, 127)
"""The exit codes of a shell that cannot run a program, or finds none (POSIX, XCU 2.8.2)."""


@dataclass(frozen=True, slots=True)
class Device:
    """A machine with Delegraph that ssh reaches.

    host: as ssh takes it: `board`, `user@board`.
    ssh: the command, with its options: `ssh -p 2222 -i key`; the default is the variable DELEGRAPH_SSH, or `ssh`.
    python: the interpreter there that has Delegraph; the default is the variable DELEGRAPH_PYTHON, or `python3`.
    """

    host: str
    ssh: str = ""
    python: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[^\s-]\S*", self.host):
            raise DeviceError(f"{self.host!r} is no host; write it as ssh takes it, such as user@board")

    def ask(
        self,
        action: str,
        files: Sequence[Path] = (),
        outputs: Mapping[str, Path] = MappingProxyType({}),
        patience: float | None = None,
        **words: Any,
    ) -> dict[str, Any]:
        """The receiver's answer to an action with these words, which gets the content of `files`.

        Files that come back, which the answer lists by name, are written where `outputs` says. `patience` is seconds
        after which the connection is given up; None waits. Raises `DeviceError`.
        """
        request = {"action": action, "with": words, "sizes": [file.stat().st_size for file in files]}
        with self._connection() as (process, errors), _ended_after(patience, process):
            assert process.stdin is not None and process.stdout is not None
            with suppress(BrokenPipeError):  # it has seen enough, or ended, which its answer or its code tells
                process.stdin.write(json.dumps(request).encode() + b"\n")
                for file in files:
                    with file.open("rb") as content:
                        shutil.copyfileobj(content, process.stdin)
                process.stdin.flush()  # and stays open: its end tells the receiver that nobody waits any more
            told = _answer(process.stdout)
            if told is None:
                with suppress(BrokenPipeError):
                    process.stdin.close()
                raise DeviceError(self._failure(process.wait(), errors))
            if "error" in told:
                raise DeviceError(f"{self.host}: {told['error']}")
            answer: dict[str, Any] = told["answer"]
            for name, size in zip(answer.get("outputs", ()), told["sizes"], strict=True):
                self._write(process.stdout, size, outputs[name])
        return answer

    @contextmanager
    def _connection(self) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
        """A process of ssh in which the receiver runs there, and what it writes to its standard error."""
        command = shlex.split(self.ssh or os.environ.get("DELEGRAPH_SSH") or "ssh")
        source = Path(receiver.__file__).read_text("utf-8")
        there = f"{_quoted(self.python or os.environ.get('DELEGRAPH_PYTHON') or 'python3')} -c {shlex.quote(source)}"
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    [*command, "-T", "--", self.host, there],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                )
            except OSError as error:
                raise DeviceError(f"{command[0]} cannot be run: {error.strerror}; install OpenSSH's client") from error
            try:
                yield process, errors
            finally:
                process.kill()
                with suppress(BrokenPipeError):
                    process.__exit__(None, None, None)

    def _write(self, stream: IO[bytes], size: int, place: Path) -> None:
        content = stream.read(size)
        if len(content) < size:
            raise DeviceError(f"{self.host}: the connection ended {size - len(content):,} bytes early")
        place.write_bytes(content)

    def _failure(self, code: int, errors: IO[bytes]) -> str:
        """The reason for which there is no answer."""
        errors.seek(0)
        words = errors.read().decode(errors="replace").strip().rpartition("\n")[2].strip()
        python = self.python or os.environ.get("DELEGRAPH_PYTHON") or "python3"
        if code == _NOT_REACHED:
            return f"{self.host} cannot be reached: {words or 'ssh says nothing'}; try `ssh {self.host} true`"
        if code in _NO_PROGRAM:
            return f"{self.host} has no {python} ({words}); name its interpreter: --python, or DELEGRAPH_PYTHON"
        return f"{self.host}: {python} ended with code {code}{words and f': {words}'}"


@contextmanager
def _ended_after(patience: float | None, process: subprocess.Popen[bytes]) -> Iterator[None]:
    timer = Timer(patience or 0, process.kill)
    if patience is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _quoted(program: str) -> str:
    """The program as a word for the shell there, which finds the home folder."""
    home, slash, rest = program.partition("/")
    return f"{home}/{shlex.quote(rest)}" if slash and home == "~" else shlex.quote(program)


def _answer(stream: IO[bytes]) -> Mapping[str, Any] | None:
    """The header of the answer; None if the stream ends before it."""
    for line in stream:
        _, mark, text = line.partition(receiver.MARK)
        if mark:
            told: dict[str, Any] = json.loads(text)
            return told
    return None
