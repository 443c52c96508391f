"""A program's child process, as its parent has it: started, asked one thing after the other, ended.

Its death, in whatever way, is an exception here. What it sends is not trusted: sizes are bounded, names of errors are
looked up among the runtime's own, and text is escaped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, BinaryIO, Final, cast

from delegraph import errors
from delegraph.errors import Internal, InvalidState, NotSupported, RuntimeFault, printable
from delegraph.program.limits import Limits
from delegraph.runtime.execution.stop import Runs
from delegraph.runtime.isolation.frames import BadFrame, read, values_from, write

__all__ = ["Process"]

_LATER: Final = 1.0
"""Seconds after its limit at which a run that did not end by itself is ended with its process."""


class Process:
    """A child that serves requests, one after the other, of any thread."""

    def __init__(self, limits: Limits) -> None:
        if not sys.executable:
            raise NotSupported("there is no Python interpreter to start: sys.executable is empty")
        self._child = subprocess.Popen(
            [sys.executable, "-m", "delegraph.runtime.isolation.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._end = weakref.finalize(self, _ended, self._child)
        self._limits = limits
        watched = replace(limits, seconds=limits.seconds + _LATER) if limits.watched and limits.seconds else limits
        kill = partial(_kill, self._child)
        self._runs, self._loading = Runs((kill,), watched), Runs((kill,), replace(limits, seconds=None))
        self._turn = Lock()

    def load(self, request: Mapping[str, object], arrays: Sequence[Any]) -> Any:
        """As `ask`, for the first request, which takes the time that it takes."""
        return self._ask(request, arrays, self._loading)

    def ask(self, request: Mapping[str, object], arrays: Sequence[Any] = ()) -> Any:
        """The reply's value. Raises the error that the child replied, `Internal` if it died or sent what is no reply,
        `LimitExceeded` and `Cancelled`, which end it too, and `InvalidState` if it has ended before."""
        return self._ask(request, arrays, self._runs)

    def _ask(self, request: Mapping[str, object], arrays: Sequence[Any], runs: Runs) -> Any:
        with self._turn:
            if not self._end.alive or self._child.poll() is not None:
                raise InvalidState("the process of this isolated program has ended; load it again")
            stop = runs.begin()
            try:
                return self._asked(request, arrays)
            except (EOFError, OSError, BadFrame) as error:
                self.close()
                if stop.fault is not None:
                    raise stop.fault from None
                raise Internal(self._end_told(error)) from None
            except BaseException as error:
                if not isinstance(error, RuntimeFault):  # an interrupt, in the middle of a frame
                    self.close()
                raise
            finally:
                runs.end(stop)

    def _asked(self, request: Mapping[str, object], arrays: Sequence[Any]) -> Any:
        write(cast("BinaryIO", self._child.stdin), request, arrays)
        message, sent = read(cast("BinaryIO", self._child.stdout), self._limits.output_bytes)
        if "error" in message:
            raise _fault(message)
        return values_from(message.get("value"), sent)

    def _end_told(self, error: Exception) -> str:
        if isinstance(error, BadFrame):
            return f"the process of an isolated program sent something else than a reply, and was ended: {error}"
        code = self._child.returncode
        try:
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        except ValueError:
            how = f"by signal {-code}"
        return f"the process of an isolated program ended {how}; what it printed is on standard error; load it again"

    def cancel(self) -> bool:
        """End the request that goes on now, from another thread, and the process with it; False if none does."""
        return self._runs.cancel()

    @property
    def pid(self) -> int:
        """The child's number."""
        return self._child.pid

    def close(self) -> None:
        """End the process, and wait for it. Called again, it does nothing."""
        self._end()


def _kill(child: subprocess.Popen[bytes], requested: bool) -> None:
    if requested:
        child.kill()


def _ended(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:  # what could not be written any more
            pass
    try:
        child.wait(timeout=_LATER)  # it ends by itself where nobody asks any more
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _fault(message: Mapping[str, Any]) -> RuntimeFault:
    kind = getattr(errors, str(message["error"]), Internal) if str(message["error"]) in errors.__all__ else Internal
    text = "\n".join(map(printable, str(message.get("message")).splitlines()))
    if not (isinstance(kind, type) and issubclass(kind, RuntimeFault)):
        kind, text = Internal, f"{printable(str(message['error']))}: {text}"
    return kind(text)
