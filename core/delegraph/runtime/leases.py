"""A file that is in use -> a word before somebody else writes to it: Linux's leases (`fcntl(2)`, F_SETLEASE).

Whoever opens a leased file for writing, or cuts it, waits until its holders gave their leases back, 45 seconds at most
(`/proc/sys/fs/lease-break-time`). A thread of this module is told, copies what is in use, and gives the lease back.

It is told by SIGURG, which is sent to that thread alone and blocked in no other: no handler is set, no other thread is
interrupted, and a SIGURG of the host's own goes where it went before. It needs Python's lock: an extension that opens
such a file for writing and keeps that lock waits for the 45 seconds.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from contextlib import suppress
from enum import Enum
from threading import Event, RLock, Thread, get_native_id
from typing import Final, Protocol
from weakref import WeakSet

__all__ = ["LOCK", "Lease", "Leaseholder", "give_back", "take_lease"]

LOCK: Final = RLock()
"""Held while a lease is taken or given back, and by a fork: its child sees no copy that is half made."""

_F_SETOWN_EX, _F_OWNER_TID = 15, 0  # asm-generic/fcntl.h; the first takes struct f_owner_ex, two ints


class Lease(Enum):
    """The answer to asking for a lease."""

    GRANTED = "nobody writes before `keep_copy` has returned"
    WRITTEN = "somebody has the file open for writing"
    REFUSED = "the system, the file system or the file's owner gives none"


class Leaseholder(Protocol):
    """Somebody who uses a file, and can do without it."""

    def fileno(self) -> int:
        """The descriptor, opened for reading alone, which the lease is on."""

    def keep_copy(self) -> None:
        """Copy what is in use, and give the lease back. Called by another thread, which has `LOCK`; never raises."""


_HOLDERS: WeakSet[Leaseholder] = WeakSet()
_WATCHER: list[int] = []  # the thread that is told, by the system's number


def take_lease(holder: Leaseholder) -> Lease:
    """Have `holder.keep_copy` called when somebody is about to write to its file. The caller has `LOCK`.

    A lease ends with the last descriptor of its open file, at the latest.
    """
    if sys.platform != "linux":
        return Lease.REFUSED
    from fcntl import F_RDLCK, F_SETLEASE, F_SETSIG, fcntl
    from signal import SIGURG

    try:
        watcher = _watcher()
        file = holder.fileno()
        fcntl(file, F_SETSIG, SIGURG)
        fcntl(file, _F_SETOWN_EX, struct.pack("ii", _F_OWNER_TID, watcher))
        fcntl(file, F_SETLEASE, F_RDLCK)
    except OSError as error:
        return Lease.WRITTEN if error.errno == errno.EAGAIN else Lease.REFUSED
    except RuntimeError:  # no thread can be started: there are too many, or the interpreter ends
        return Lease.REFUSED
    _HOLDERS.add(holder)
    return Lease.GRANTED


def give_back(holder: Leaseholder) -> None:
    """Let those write who wait. The caller has `LOCK`."""
    if sys.platform == "linux":
        from fcntl import F_SETLEASE, F_UNLCK, fcntl

        _HOLDERS.discard(holder)
        with suppress(OSError):  # it has none
            fcntl(holder.fileno(), F_SETLEASE, F_UNLCK)


def _watcher() -> int:
    if not _WATCHER:
        is_ready = Event()
        Thread(target=_watch, args=(is_ready,), name="delegraph-leases", daemon=True).start()
        is_ready.wait()
    return _WATCHER[0]


def _watch(is_ready: Event) -> None:
    from fcntl import F_GETLEASE, F_UNLCK, fcntl
    from signal import SIG_BLOCK, SIGIO, SIGURG, pthread_sigmask, sigwait

    pthread_sigmask(SIG_BLOCK, {SIGURG, SIGIO})  # SIGIO, which would end the process, comes where SIGURG cannot
    _WATCHER.append(get_native_id())
    is_ready.set()
    while True:
        sigwait({SIGURG})
        with LOCK:
            for holder in [*_HOLDERS]:
                if fcntl(holder.fileno(), F_GETLEASE) == F_UNLCK:  # what is asked for, while somebody waits
                    _HOLDERS.discard(holder)
                    holder.keep_copy()


def _forget() -> None:
    """In a fork's child, which has neither the thread nor leases of its own."""
    _WATCHER.clear()
    _HOLDERS.clear()
    LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=_forget)
