"""A delegate's run that goes on beside the host's: its event, and a queue of calls for an engine that only blocks.

submit(context, handle, args) -> event        the device has the work, the host goes on with other instructions
event.wait(seconds)                           the runtime needs the outputs, or the inputs' memory
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Protocol

from delegraph.interfaces.forks import leave_at_fork

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["CallQueue", "Event"]


class Event(Protocol):
    """The end of a run that was submitted. Asked by one thread at a time, and again after the end."""

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end, at most so long (None: as long as it takes); whether it has come.

        Raises the error with which the run ended. Not before its end: outputs are written and inputs no longer read
        once this has returned True or raised.
        """


class CallQueue:
    """Calls that a thread makes one after the other, as a device's command queue does, each with an event.

    For an engine that has only a call that blocks, and lets other threads run meanwhile (it releases the interpreter's
    lock: NumPy, onnxruntime, ctypes do). `workers` calls may run at a time. The context variables of `submit`'s caller
    hold in the call, NumPy's `errstate` among them. The thread starts with the first call; a forked child has its own.
    """

    def __init__(self, name: str, workers: int = 1) -> None:
        self._name, self._workers = name, workers
        self._executor: ThreadPoolExecutor | None = None
        leave_at_fork(self._leave)

    def submit(self, call: Callable[[], object]) -> Event:
        """Append `call`. Its event's `wait` raises what it raises."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(self._workers, self._name)
        return _CallEvent(self._executor.submit(copy_context().run, call))

    def _leave(self) -> object:
        executor, self._executor = self._executor, None
        return executor


class _CallEvent:
    __slots__ = ("_future",)

    def __init__(self, future: Future[object]) -> None:
        self._future = future

    def wait(self, seconds: float | None = None) -> bool:
        try:
            self._future.result(seconds)
        except TimeoutError:
            if self._future.done():  # it is the call's own
                raise
            return False
        return True
