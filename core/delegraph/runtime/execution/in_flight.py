"""Delegates that were submitted and go on: waited for in their place, and at the latest when the run ends.

    submit delegate 0 ──> Flight(event) ──> wait for delegate 0
                              └─ the run fails, or is stopped: its engine is told, and it is waited for a moment

Nobody may touch the memory of a delegate that still runs. One that does not end, though its run was stopped, keeps its
memory, and its method, to itself: the method refuses to run until it has ended, and is never destroyed before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from delegraph.errors import Internal, InvalidState
from delegraph.interfaces.platform import DEFAULT_PLATFORM, LogLevel
from delegraph.runtime.execution.stop import Stop

if TYPE_CHECKING:
    from delegraph.interfaces.backend import Argument
    from delegraph.interfaces.submission import Event

__all__ = ["Flight", "InFlight"]

SLICE: Final = 0.02
"""Seconds for which an event is waited for at a time: so late is a stop seen that its engine does not hear of."""

GRACE: Final = 1.0
"""Seconds that a delegate has to end in once its run has failed or was stopped."""

_LEFT: Final[list[object]] = []
"""Methods with a delegate that never ended, whose memory it may still write."""


class Flight:
    """The runs of one delegate call, one after the other: at most one goes on."""

    __slots__ = ("_args", "_cancel", "_in_flight", "event", "name")

    def __init__(self, name: str, cancel: Callable[[bool], object], in_flight: InFlight) -> None:
        self.name, self._cancel, self._in_flight = name, cancel, in_flight
        self.event: Event | None = None
        self._args: Sequence[Argument] = ()

    def begin(self, submit: Callable[[], Event], args: Sequence[Argument]) -> None:
        """Begin a run on `args`, by `submit`."""
        event: Any = submit()
        if not callable(getattr(event, "wait", None)):
            raise Internal(f"its submit returned {event!r}; it has to return an event, which has a method wait")
        self.event, self._args = event, args  # which it reads and writes until it ends

    def wait(self) -> None:
        """Wait for its end. Raises its error, and returns early where the method's run is to stop."""
        stop = self._in_flight.stop
        while stop.fault is None:
            if self.ends_within(SLICE):
                return

    def ends_within(self, seconds: float) -> bool:
        """Whether the run is over, at the latest in so many seconds. Raises its error."""
        if self.event is None:
            return True
        try:
            ended = self.event.wait(seconds)
        except BaseException as error:
            if isinstance(error, Exception):  # else an interrupt of the wait itself
                self._is_over()
            raise
        if ended:
            self._is_over()
        return bool(ended)

    def stop(self) -> None:
        """Tell the engine to end it."""
        self._cancel(True)

    def has_stopped(self, seconds: float) -> bool:
        """Whether a run that was told to stop is over, in whatever way; its engine may run again then."""
        try:
            if not self.ends_within(seconds):
                return False
        except Exception:
            pass  # the error that counts is the one for which it was stopped
        self._cancel(False)
        return True

    def _is_over(self) -> None:
        self.event, self._args = None, ()


class InFlight:
    """The delegate calls of a method that are submitted."""

    def __init__(self) -> None:
        self.stop = Stop()
        self._flights: dict[tuple[int, int], Flight] = {}

    def flight(self, chain: int, instruction: int, name: str, cancel: Callable[[bool], object]) -> Flight:
        """The flight of that instruction: the same for all that is bound to it."""
        return self._flights.setdefault((chain, instruction), Flight(name, cancel, self))

    def around(self, execute: Callable[[Stop], None]) -> Callable[[Stop], None]:
        """`execute`, behind which no delegate is at work."""
        return partial(self._run, execute)

    def destroying(self, destroy: Callable[[], None]) -> Callable[[], None]:
        """`destroy`, which is called as soon as no delegate is at work."""
        return partial(self._destroy, destroy)

    def _run(self, execute: Callable[[Stop], None], stop: Stop) -> None:
        for flight in self._at_work():
            if not flight.has_stopped(0):
                raise InvalidState(
                    f"{flight.name} of an earlier run, which was ended, is still at work: its device does not answer;"
                    " load the method again, or restart the device"
                )
        self.stop = stop
        try:
            execute(stop)
        except BaseException:
            self._end()
            raise

    def _at_work(self) -> list[Flight]:
        return [flight for flight in self._flights.values() if flight.event is not None]

    def _end(self) -> None:
        """Wait a moment for those that are at work, having told them to stop."""
        flights = self._at_work()
        for flight in flights:
            flight.stop()
        until = monotonic() + GRACE
        for flight in flights:
            flight.has_stopped(max(0.0, until - monotonic()))

    def _destroy(self, destroy: Callable[[], None]) -> None:
        late = [flight.name for flight in self._at_work() if not flight.has_stopped(0)]
        if not late:
            destroy()
        elif not any(left is self for left in _LEFT):
            _LEFT.append(self)
            DEFAULT_PLATFORM.log(LogLevel.ERROR, f"{late[0]} is still at work, so its memory is kept and never freed")
