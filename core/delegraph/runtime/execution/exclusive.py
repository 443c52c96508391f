"""The lock of a Method: one thread at a time uses it, and none that an interrupt took out of it keeps it.

An interrupt (Ctrl-C) may fall between any two steps of the interpreter, also between taking a lock and the `try` that
gives it back. So a call leaves only a note, and a thread that finds another's note looks whether the other
still has a call of the Method on its stack. It looks only where it would be refused otherwise.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from types import FrameType

from delegraph.errors import InvalidState

__all__ = ["Exclusive"]


class Exclusive:
    """A context in which at most one call is at a time. `what` names the thing in use, `remedy` is for others.

    The function that enters it keeps the object whose attribute `_alone` this is as its own `self`. Entering raises
    `InvalidState` while another call is inside; it never waits.
    """

    __slots__ = ("_note", "_remedy", "_what")

    def __init__(
        self,
        what: str,
        remedy: str = "give each thread a session of its own: run.session(); or call run, if it has no state",
    ) -> None:
        self._note: dict[str, list[int]] = {}  # each step on it, or on the note, is one step for all threads
        self._what = what
        self._remedy = remedy

    def __enter__(self) -> None:
        me = get_ident()
        mine = [me]
        while (note := self._note.setdefault("user", mine)) is not mine:
            user = note[-1:]
            if user and self._at_work(user[0], me):
                where = "is being called by one of its own steps" if user == mine else "is executing in another thread"
                raise InvalidState(f"{self._what} {where}; {self._remedy}")
            if self._taken_over(note, me):
                return

    def _taken_over(self, note: list[int], me: int) -> bool:
        """Make a note that was left behind one's own. Of several threads that try, `pop` lets one through."""
        try:
            note.pop()
        except IndexError:
            if self._note.get("user") is note and not note:  # whoever took it over was interrupted as well
                self._note.pop("user", None)
            return False
        note.append(me)
        return self._note.get("user") is note  # else its user had gone in the ordinary way

    def __exit__(self, *exception: object) -> None:
        self._note.clear()

    def _at_work(self, user: int, me: int) -> bool:
        """Whether a call is on the stack of thread `user`; the one that asks is not counted."""
        frame = sys._getframe(3) if user == me else sys._current_frames().get(user)
        while frame is not None:
            if self._is_entered_by(frame):
                return True
            frame = frame.f_back
        return False

    def _is_entered_by(self, frame: FrameType) -> bool:
        return getattr(frame.f_locals.get("self"), "_alone", None) is self
