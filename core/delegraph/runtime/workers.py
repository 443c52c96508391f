"""Calls of one method from any thread -> each on a worker that is free, a Method of its own over the shared weights.

    free: [worker]        a call takes the last one, and puts it back: two steps on a list, and no lock
    free: []              a call has another worker made, or stands in `line`; who puts a worker back hands it on

The first worker is the method that was loaded; others are made when a call finds none free, up to a bound.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock as Lock
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from math import inf
from time import monotonic, sleep
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol

from delegraph.errors import Busy, InvalidState
from delegraph.interfaces.forks import leave_at_fork
from delegraph.logs import Logger

if TYPE_CHECKING:
    from delegraph.runtime.concurrency import Concurrency

__all__ = ["Waiter", "Worker", "Workers"]

_log = Logger(__name__)


class Worker(Protocol):
    """A Method, or what stands for one: calls of it come one after the other."""

    def execute(self, inputs: Sequence[object], *, out: Sequence[object] | None = None) -> list[Any]: ...
    def cancel(self, *, next_run: bool = False) -> bool: ...
    def close(self) -> None: ...


class Waiter(Protocol):
    """Who stands in line for a worker."""

    def take(self, worker: Worker | None) -> None:
        """Its turn has come: `worker` is its own until it calls `Workers.give_back`; None: it has one made, by
        `Workers.make`. Called with `Workers.lock`, and returns at once."""


class _Turn:
    """A thread that waits."""

    __slots__ = ("came", "has_come", "worker")

    def __init__(self) -> None:
        self.came = Lock()
        self.came.acquire()
        self.has_come = False
        self.worker: Worker | None = None

    def take(self, worker: Worker | None) -> None:
        self.worker, self.has_come = worker, True
        self.came.release()


class _Last(_Turn):
    """A turn of `close`, which keeps a worker for good."""

    __slots__ = ()


class Workers:
    """The workers of one method. `first` is there; `more` makes another one.

    `is_alone` says whether `first` is all that there can be, for what a call leaves in it is a part of the next one's
    result: then a call that comes while another runs is not made to wait, and `first` itself refuses it.
    `planned_bytes` are each worker's. `concurrency` None: as by default.
    """

    def __init__(
        self,
        name: str,
        first: Worker,
        more: Callable[[], Worker],
        is_alone: Callable[[], bool],
        planned_bytes: int = 0,
        concurrency: Concurrency | None = None,
    ) -> None:
        self.name = name
        self.first = first
        self.lock = Lock()
        self.line: deque[Waiter] = deque()
        self._free = [first]
        self._all = [first]
        self._more = more
        self._tell_alone = is_alone
        self._planned_bytes = planned_bytes
        self._concurrency = concurrency
        self._in_making = 0
        self.submitted = 0
        """How many workers calls have that threads of ours run, and not their callers'. Changed with `lock`."""
        self._is_closed = False
        leave_at_fork(self._leave)

    @cached_property
    def concurrency(self) -> Concurrency:
        """The caller's choices."""
        if self._concurrency is not None:
            return self._concurrency
        from delegraph.runtime.concurrency import Concurrency  # not before a second caller comes

        return Concurrency()

    @cached_property
    def is_alone(self) -> bool:
        """Whether there can be no second worker, and calls are not to wait for the first."""
        return self._tell_alone()

    @cached_property
    def most(self) -> int:
        """How many workers there are at most."""
        return 1 if self.is_alone else self.concurrency.most_workers(self._planned_bytes)

    # ---- calls in their callers' threads ----

    def execute(self, inputs: Sequence[object], out: Sequence[object] | None = None) -> list[Any]:
        """As `Method.execute`, on a worker. Raises `Busy` where no more calls may wait or it has waited too long."""
        try:
            worker = self._free.pop()
        except IndexError:
            if self.is_alone:
                self.require_open()
                return self.first.execute(inputs, out=out)
            worker = self._stand_in_line()
        try:
            return worker.execute(inputs, out=out)
        finally:
            self._free.append(worker)
            if self.line:
                self._hand_on()

    def _stand_in_line(self) -> Worker:
        turn, timeout = _Turn(), self.concurrency.timeout
        deadline = inf if timeout is None else monotonic() + timeout
        self.ask(turn)
        try:
            while True:
                while not turn.came.acquire(timeout=max(0.0, min(deadline - monotonic(), _LOOK_AGAIN))):
                    self._look_again(turn, deadline)
                turn.has_come = turn.worker is not None  # else `make` gives the place back, whatever happens
                again = _Turn()
                worker = turn.worker or self.make(again)
                if worker is not None:
                    return worker
                turn = again
        except BaseException:  # it was late, or an interrupt
            self.leave(turn, turn.worker)
            if turn.has_come and turn.worker is None:
                with self.lock:
                    self._in_making -= 1
            raise

    def _look_again(self, turn: _Turn, deadline: float) -> None:
        with self.lock:
            if turn.has_come:
                return
            if monotonic() >= deadline:
                raise self.late()
            if sum(_is_call(frame, self) for frame in _stack(sys._getframe())) > self.most:
                raise InvalidState(
                    f"method {self.name!r} is being called by one of its own steps, which have all its {self.most}"
                    " workers; set Concurrency(workers=…)"
                )
            self._recover()
            self._serve_line()

    def late(self) -> Busy:
        """The error of a call that has waited for too long."""
        return Busy(
            f"method {self.name!r}: all {self.most} workers were busy for {self.concurrency.timeout:g} seconds;"
            " try again later, or set Concurrency(workers=…, timeout=…)"
        )

    # ---- the line ----

    def ask(self, waiter: Waiter, *, is_bounded: bool = True) -> None:
        """Have `waiter.take` called when its turn comes, perhaps at once. Raises `InvalidState` if this is closed, and
        `Busy` if as many wait as may, unless it is not `is_bounded`."""
        most = self.concurrency.max_waiting
        with self.lock:
            self.require_open()
            self.line.append(waiter)
            self._serve_line()
            if is_bounded and most is not None and len(self.line) > most and self.line[-1] is waiter:
                self.line.pop()
                raise self.crowded()

    def crowded(self) -> Busy:
        """The error of a call that may not wait."""
        return Busy(
            f"method {self.name!r}: {self.concurrency.max_waiting} calls wait for its {self.most} workers, and no more"
            " may; try again later, or set Concurrency(max_waiting=…)"
        )

    def _serve_line(self) -> None:
        """Give free workers, and places for new ones, to those who are first in line. With `lock`."""
        while self.line:
            try:
                worker = self._free.pop()
            except IndexError:
                if len(self._all) + self._in_making >= self.most:
                    return
                if self._recover():
                    continue
                self._in_making += 1
                self.line.popleft().take(None)
            else:
                self.line.popleft().take(worker)

    def _hand_on(self) -> None:
        with self.lock:
            self._serve_line()

    def make(self, again: Waiter) -> Worker | None:
        """A new worker, for a waiter whose turn came without one; None if it cannot be made: there are as many as
        there can be, and `again`, which stands for the same call, is first in line."""
        worker = None
        try:
            worker = self._more()
        except Exception as error:
            _log.info("method %s goes on with %d workers: %s", self.name, len(self._all), error)
        finally:
            with self.lock:
                self._in_making -= 1
                if worker is None:
                    self.most = len(self._all) + self._in_making
                    self.line.appendleft(again)
                    self._serve_line()
                else:
                    self._all.append(worker)
        return worker

    def give_back(self, worker: Worker) -> None:
        """The end of a waiter's turn."""
        self._free.append(worker)
        if self.line:
            self._hand_on()

    def leave(self, waiter: Waiter, worker: Worker | None) -> bool:
        """Take `waiter` out of the line, or the worker back that it got meanwhile; whether it still was in line."""
        with self.lock:
            if waiter in self.line:
                self.line.remove(waiter)
                return True
        if worker is not None:
            self.give_back(worker)
        return False

    def _recover(self) -> bool:
        """Take back the workers that an interrupt (Ctrl-C) lost between two steps of a call: those that are out while
        nobody is inside `execute` but who stands in line. With `lock`."""
        out = [worker for worker in self._all if worker not in self._free]
        waiting = sum(type(waiter) is _Turn for waiter in self.line)
        if not out or self.submitted or self._in_making or self._callers() > waiting:
            return False
        self._free += out
        return True

    def _callers(self) -> int:
        """How many calls of `execute` are on the threads' stacks."""
        frames = [*sys._current_frames().values()]
        return sum(_is_call(frame, self) for top in frames for frame in _stack(top))

    # ---- the end ----

    def require_open(self) -> None:
        """Raise `InvalidState` after `close`."""
        if self._is_closed:
            raise InvalidState(f"method {self.name!r} was closed; load it again")

    def close(self) -> None:
        """Refuse new calls, wait for those that are running or in line, and destroy the workers' delegates."""
        with self.lock:
            if self._is_closed:
                return
            self._is_closed = True
        while not (turns := self._last_turns()):
            sleep(_IN_MAKING)
        for turn in turns:
            while not turn.came.acquire(timeout=_LOOK_AGAIN):
                self._look_again(turn, inf)
        for worker in self._all:
            worker.close()

    def _last_turns(self) -> list[_Last]:
        """A turn for each worker, behind all who wait; none while a worker is being made, for a call that waits for it
        goes before them if it cannot be."""
        with self.lock:
            if self._in_making:
                return []
            self.most = len(self._all)
            turns = [_Last() for _ in self._all]
            self.line.extend(turns)
            self._serve_line()
            return turns

    def _leave(self) -> None:
        """In a fork's child, which has none of the threads that were calling."""
        self.lock = Lock()
        self.line.clear()
        self._free[:] = self._all
        self._in_making = self.submitted = 0


_IN_MAKING: Final = 0.01
"""After how many seconds `close` looks whether the worker is made that is being made."""

_LOOK_AGAIN: Final = 1.0
"""After how many seconds in line a thread looks whether a worker was lost."""


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_call(frame: FrameType, workers: Workers) -> bool:
    return frame.f_code is _EXECUTE and frame.f_locals.get("self") is workers


_EXECUTE: Final[CodeType] = Workers.execute.__code__
