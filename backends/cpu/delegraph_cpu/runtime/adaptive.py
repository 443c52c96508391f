"""Two ways to wait for work, two sessions -> the one for each call: the better one depends on who else computes.

    cores are free            idle threads spin: to wake one up takes 80 us, and a model has hundreds of operators
    others use the cores      idle threads sleep: one that spins uses up its time slice, and is late where it is needed
                              (`python -m benchmarks.shared_machine`)

onnxruntime fixes this with the session, so there is a second one as soon as it is needed; both read the same weights.

A child that a fork makes has none of the threads, and makes its sessions again.
"""

from __future__ import annotations

import os
from _thread import allocate_lock as Lock
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

from delegraph.errors import InvalidArgument
from delegraph.interfaces import leave_at_fork
from delegraph_cpu.runtime.other_processes import CoresOfOthers

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["AdaptiveSession", "ThreadedSession", "call_of_the_moment", "cores_of_others", "spare_cores"]

SOME: Final = 0.3
"""Cores that others use: more than the services of a quiet machine, less than one busy process gets beside ours."""


class ThreadedSession:
    """A session with threads, made by `make` now and, in a child of this process, when it is first needed there."""

    def __init__(self, make: Callable[[], onnxruntime.InferenceSession]) -> None:
        self._make = make
        self._session: onnxruntime.InferenceSession | None = make()
        self._lock = Lock()
        leave_at_fork(self._leave)

    def session(self) -> onnxruntime.InferenceSession:
        """The session for a call that begins now. Raises what making it raises."""
        return self._session or self._made()

    def _made(self) -> onnxruntime.InferenceSession:
        with self._lock:
            self._session = self._session or self._make()
            return self._session

    def _leave(self) -> object:
        left, self._session = self._session, None
        self._lock = Lock()  # another thread of the parent may have it
        return left


class AdaptiveSession(ThreadedSession):
    """A session that spins, and a session that sleeps, made when cores are first missed; each has `num_threads`."""

    def __init__(
        self,
        make_spinning: Callable[[], onnxruntime.InferenceSession],
        make_sleeping: Callable[[], onnxruntime.InferenceSession],
        num_threads: int,
        others: Callable[[], float],
    ) -> None:
        super().__init__(make_spinning)
        self._make_sleeping = make_sleeping
        self._sleeping: onnxruntime.InferenceSession | None = None
        self._others = others
        self._spare = spare_cores(num_threads)

    def session(self) -> onnxruntime.InferenceSession:
        """The session for a call that begins now."""
        if self._others() <= self._spare:
            return super().session()
        if self._sleeping is None:
            with self._lock:
                self._sleeping = self._sleeping or self._made_sleeping()
        return self._sleeping

    def _made_sleeping(self) -> onnxruntime.InferenceSession:
        """The session that sleeps, or the one that spins where a shared pool, made since, allows no other."""
        try:
            return self._make_sleeping()
        except InvalidArgument:
            return self._session or self._make()

    def _leave(self) -> object:
        sleeping, self._sleeping = self._sleeping, None
        return super()._leave(), sleeping


def call_of_the_moment(
    sessions: ThreadedSession, bind: Callable[[onnxruntime.InferenceSession], Callable[[], object] | None]
) -> Callable[[], object] | None:
    """A call that runs `bind(session)` for the session of the moment; None if `bind` returns None for a session."""
    bound_to = sessions.session()
    call = bind(bound_to)
    if call is None:
        return None

    def run() -> None:
        nonlocal bound_to, call
        session = sessions.session()
        if session is not bound_to:
            bound_to, call = session, bind(session)
        assert call is not None
        call()

    return run


@cache
def cores_of_others() -> CoresOfOthers | None:
    """The load meter that all delegates of this process share; None where the system does not tell."""
    try:
        return CoresOfOthers()
    except (OSError, AttributeError):  # no /proc; no affinity
        return None


def spare_cores(num_threads: int) -> float:
    """The number of cores that others may use and still leave `num_threads`, 0 for all that this process may use."""
    return _cores() - (num_threads or _cores()) + SOME


def _cores() -> int:
    return len(os.sched_getaffinity(0))
