"""Calls that run in threads of ours, and not in their callers' -> futures of their results.

submit -> a Call in the workers' line -> its turn comes: a thread runs it -> its result, and the worker back
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from math import inf
from time import monotonic
from typing import Any, Protocol, TypeAlias, cast

from delegraph.interfaces.forks import leave_at_fork
from delegraph.runtime.workers import Waiter, Worker, Workers

__all__ = ["Call", "SubmittedCalls"]

Inputs: TypeAlias = Sequence[object]
Finish: TypeAlias = Callable[[list[Any]], Any]


class Runner(Waiter, Protocol):
    """A waiter that a thread of ours runs."""

    def run_on(self, worker: Worker) -> None:
        """Run; never raises."""


class SubmittedCalls:
    """The calls of one method that were submitted, and the threads that run them: as many as workers, at most."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self._threads: ThreadPoolExecutor | None = None
        leave_at_fork(self._leave)

    def submit(self, inputs: Inputs, out: Sequence[object] | None, finish: Finish) -> Call:
        """A call on `inputs`, whose result is `finish` of its outputs. Raises as `Workers.ask`."""
        call = Call(self, inputs, out, finish)
        self.workers.ask(call)
        return call

    async def result(self, call: Call) -> Any:
        """The result of `call`, to a coroutine: one that is cancelled cancels the call. Raises `Busy` once it has
        waited for a worker for as long as it may."""
        timeout, loop = self.workers.concurrency.timeout, asyncio.get_running_loop()
        alarm = None if timeout is None else loop.call_later(timeout, call.give_up)
        try:
            return await asyncio.wrap_future(call)
        finally:
            if alarm is not None:
                alarm.cancel()

    def start(self, runner: Runner, worker: Worker | None) -> None:
        """The turn of `runner` has come: have a thread run it. With the workers' lock."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.workers.most, thread_name_prefix="delegraph")
        self.workers.submitted += 1
        self._threads.submit(self._turn, runner, worker)

    def _turn(self, runner: Runner, worker: Worker | None) -> None:
        """Run `runner`, and those behind it in line as long as they are runners too: no thread has to wake for them."""
        workers, following = self.workers, cast("Runner | None", runner)
        if worker is None:
            worker = workers.make(runner)
        while worker is not None and following is not None:
            following.run_on(worker)
            following = self._next_in_line()
        if worker is None:
            with workers.lock:
                workers.submitted -= 1
        else:
            workers.give_back(worker)

    def _next_in_line(self) -> Runner | None:
        with self.workers.lock:
            line = self.workers.line
            if line and hasattr(line[0], "run_on"):
                return cast("Runner", line.popleft())
            self.workers.submitted -= 1
            return None

    def close(self) -> None:
        """End the threads, when the calls that they run are over."""
        if self._threads is not None:
            self._threads.shutdown()

    def _leave(self) -> object:
        left, self._threads = self._threads, None
        return left


class Call(Future[Any]):
    """A call that was submitted: `result()` waits for its result, or raises what it raises.

    `cancel()` also stops one that runs already, which then raises `Cancelled`; no other call is touched by it. One that
    runs in a batch with others goes on.
    """

    def __init__(self, calls: SubmittedCalls, inputs: Inputs, out: Sequence[object] | None, finish: Finish) -> None:
        super().__init__()
        self.inputs = inputs
        """The flat inputs."""
        timeout = calls.workers.concurrency.timeout
        self._deadline = inf if timeout is None else monotonic() + timeout
        self._calls = calls
        self._out, self._finish = out, finish
        self._context = copy_context()
        self._worker: Worker | None = None
        self._is_cancelled = False

    def cancel(self) -> bool:
        """Take it out of the line, or end its run; False if it is over."""
        workers = self._calls.workers
        if super().cancel():
            if workers.leave(self, None):
                self.set_running_or_notify_cancel()
            return True
        with workers.lock:
            if self._worker is None:
                return False
            self._is_cancelled = True
            return self._worker.cancel(next_run=True)

    def give_up(self) -> None:
        """Its time to wait is over: if it has not begun, it raises `Busy`."""
        workers = self._calls.workers
        with workers.lock:
            is_late = not self.cancelled() and self.begins()
        if is_late:
            workers.leave(self, None)
            self.set_exception(workers.late())

    def begins(self) -> bool:
        """Whether it is to run now: nobody cancelled it, and it was not given up. With the workers' lock."""
        if self.running() or (self.done() and not self.cancelled()):
            return False
        return self.set_running_or_notify_cancel()

    def take(self, worker: Worker | None) -> None:
        """Its turn has come."""
        self._calls.start(self, worker)

    def run_on(self, worker: Worker) -> None:
        """Run on `worker`, unless it was cancelled, or has waited for too long."""
        with self._calls.workers.lock:
            begins = self.begins()
            is_late = begins and monotonic() > self._deadline
            if begins and not is_late:
                self._worker = worker  # at once: whoever cancels it from now on has to stop its run
        if is_late:
            self.set_exception(self._calls.workers.late())
        elif begins:
            self.run_alone(worker)

    def refuses(self) -> bool:
        """Whether it has waited for longer than it may; then it raises `Busy`."""
        if monotonic() <= self._deadline:
            return False
        self.set_exception(self._calls.workers.late())
        return True

    def run_alone(self, worker: Worker) -> None:
        """Run, now that it begins, so that it can be cancelled."""
        with self._calls.workers.lock:
            self._worker = worker
        self.settle(self._outputs, worker)

    def settle(self, make_outputs: Callable[..., list[Any]], *args: Any) -> None:
        """Set its result to that of `make_outputs(*args)`, called in its caller's context, or to what that raises."""
        result = fault = None
        try:
            result = self._finish(self._context.run(make_outputs, *args))
        except BaseException as error:
            fault = error
        with self._calls.workers.lock:
            worker, self._worker = self._worker, None
            if worker is not None and self._is_cancelled:
                worker.cancel()  # the wish to end a run that had ended before is not to end the next one
        if fault is None:
            self.set_result(result)
        else:
            self.set_exception(fault)
        del fault

    def _outputs(self, worker: Worker) -> list[Any]:
        return worker.execute(self.inputs, out=self._out)
