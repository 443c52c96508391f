"""Our modules as on Windows: without what only POSIX has, and with files that nobody replaces while they are open.

    python -m tests.platforms.as_windows script.py WORDS …

runs a script so. What is simulated is what an `import` in a module of ours gives: `os`, `sys`, `signal`,
`mmap`, `ctypes` and `time` lack what Python's documentation says is for Unix alone, and `fcntl` and its like are not
there. numpy, torch and the standard library keep the real ones. `/proc` and `/dev` are not there for anybody. A file
that is open or mapped is neither replaced nor removed: Python opens files there without FILE_SHARE_DELETE, so that
MoveFileEx and DeleteFile end with a sharing violation, WinError 32, and with access denied, 5, where it is mapped.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import mmap
import os
import re
import runpy
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

__all__ = ["MISSING_MODULES", "ONLY_ON_POSIX", "is_ours", "simulate"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


MISSING_MODULES: Final = _names("curses fcntl grp posix pty pwd readline resource syslog termios tty")
"""Modules of the standard library that Windows lacks."""

ONLY_ON_POSIX: Final = {
    "os": _names(
        "chown chroot confstr copy_file_range ctermid eventfd fchdir fchown fdatasync fork forkpty fpathconf"
        " fstatvfs get_blocking getegid geteuid getgid getgroups getloadavg getpgid getpgrp getpriority getsid"
        " getuid getxattr initgroups killpg lchown listxattr lockf major makedev memfd_create minor mkfifo mknod"
        " nice openpty pathconf pidfd_open pipe2 posix_fadvise posix_fallocate posix_spawn pread preadv pwrite"
        " pwritev register_at_fork removexattr sched_getaffinity sched_setaffinity sched_yield sendfile"
        " set_blocking seteuid setgid setgroups setpgid setpriority setsid setuid setxattr splice statvfs sync"
        " sysconf tcgetpgrp ttyname uname wait wait3 wait4 waitid O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC"
        " O_NOFOLLOW O_NONBLOCK O_PATH O_SYNC O_TMPFILE WEXITSTATUS WIFEXITED WIFSIGNALED WNOHANG WTERMSIG"
        " environb"
    ),
    "signal": _names(
        "SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPROF SIGQUIT SIGSTOP SIGTSTP SIGURG"
        " SIGUSR1 SIGUSR2 SIG_BLOCK SIG_SETMASK SIG_UNBLOCK alarm getitimer pause pthread_kill pthread_sigmask"
        " setitimer siginterrupt sigpending sigtimedwait sigwait sigwaitinfo"
    ),
    "mmap": frozenset(name for name in dir(mmap) if name.startswith(("MAP_", "PROT_", "MADV_"))),
    "time": _names("clock_getres clock_gettime clock_gettime_ns clock_settime pthread_getcpuclockid tzset"),
    "socket": _names("AF_UNIX SCM_RIGHTS recv_fds send_fds"),
    "select": _names("epoll kqueue poll"),
    "ctypes": frozenset[str](),
    "sys": _names("abiflags"),
}
"""Names of modules of the standard library that are "Availability: Unix" in Python's documentation, and absent here."""

_OPEN: Final = "The process cannot access the file because it is being used by another process"
_MAPPED: Final = "Access is denied"


def is_ours(module: str) -> bool:
    """Whether a module of this name is of this repository."""
    return module.partition(".")[0].startswith("delegraph")


def simulate() -> None:
    """From now on, for what our modules import in this process. It cannot be undone."""
    shown = {name: _Shown(sys.modules[name], absent) for name, absent in ONLY_ON_POSIX.items() if name in sys.modules}
    real_import = builtins.__import__

    def importing(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        top = name.partition(".")[0]
        if level == 0 and is_ours(str((globals or {}).get("__name__", ""))):
            if top in MISSING_MODULES:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if top in shown and (name == top or not fromlist):
                return shown[top]
            if top in ONLY_ON_POSIX and name == top:
                shown[top] = _Shown(real_import(top), ONLY_ON_POSIX[top])
                return shown[top]
        return real_import(name, globals, locals, fromlist, level)

    builtins.__import__ = importing
    _hide_places()
    _keep_open_files()


class _Shown(ModuleType):
    """A module as our modules see it on Windows."""

    def __init__(self, real: ModuleType, absent: frozenset[str]) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(_real=real, _absent=absent, **_CHANGED.get(real.__name__, {}))

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__["_absent"]:
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r}, as on Windows", name=name, obj=self
            )
        return getattr(self.__dict__["_real"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_real"], name, value)


class _Mapping(mmap.mmap):
    """What `mmap.mmap` takes on Windows: no flags, no protection."""

    def __new__(
        cls, fileno: int, length: int, tagname: str | None = None, access: int = 0, offset: int = 0
    ) -> _Mapping:
        return super().__new__(cls, fileno, length, access=access or mmap.ACCESS_WRITE, offset=offset)


class _Library(ctypes.CDLL):
    """What `ctypes.CDLL` takes: a name, for a program's own symbols are in no library."""

    def __init__(self, name: str | None, *args: Any, **kwargs: Any) -> None:
        if name is None:
            raise TypeError("LoadLibrary() argument 1 must be str, not None")
        super().__init__("libc.so.6" if name == "msvcrt" else name, *args, **kwargs)


_CHANGED: Final[dict[str, dict[str, object]]] = {
    "os": {"name": "nt"},
    "sys": {"platform": "win32"},
    "mmap": {"mmap": _Mapping},
    "ctypes": {"CDLL": _Library},
}
"""Names that are there on Windows, and are something else."""


# ---- files -----------------------------------------------------------------------------------------


_PLACES: Final = ("/proc", "/dev/shm", "/sys/")


def _hide_places() -> None:
    """Have nobody in this process, but this module, see what only Linux has."""
    real_access = os.access

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if (
            event == "open"
            and str(args[0]).startswith(_PLACES)
            and sys._getframe(1).f_globals.get("__name__") != __name__
        ):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory, as on Windows", args[0])

    def access(path: Any, *args: Any, **options: Any) -> bool:
        return not str(path).startswith(_PLACES) and real_access(path, *args, **options)

    sys.addaudithook(hook)
    os.access = access


def _keep_open_files() -> None:
    """Have `os` refuse, for everybody in this process, what Windows refuses while a file is open."""
    for name in ("replace", "rename", "unlink", "remove", "link"):
        setattr(os, name, _refusing(getattr(os, name), name))
    import shutil

    shutil._use_fd_functions = False  # type: ignore[attr-defined] # as where functions take no folder's descriptor


def _refusing(real: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(*paths: Any, **options: Any) -> Any:
        if {"src_dir_fd", "dst_dir_fd", "dir_fd", "follow_symlinks"} & options.keys():
            raise NotImplementedError(f"{name}: {', '.join(options)} unavailable on this platform, as on Windows")
        if name == "rename" and os.path.exists(paths[1]):
            raise FileExistsError(
                errno.EEXIST, "Cannot create a file when that file already exists", os.fspath(paths[0])
            )
        for path in () if name == "link" else paths:
            why = _in_use(path)
            if why:
                raise PermissionError(errno.EACCES, why, *map(os.fspath, paths[:1]))
        return real(*paths, **options)

    return call


def _in_use(path: Any) -> str:
    """Why the file at `path` cannot get or lose a name now; "" if it can."""
    with suppress(OSError):
        status = os.stat(path)
        for descriptor in _descriptors():
            with suppress(OSError):
                own = os.fstat(descriptor)
                if (own.st_dev, own.st_ino) == (status.st_dev, status.st_ino):
                    return _OPEN
        for line in _lines("/proc/self/maps"):
            if re.search(rf"\s{status.st_ino}\s+/", line):
                return _MAPPED
    return ""


def _descriptors() -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):
        yield int(name)


def _lines(path: str) -> list[str]:
    with open(path) as file:
        return file.read().splitlines()


if __name__ == "__main__":
    import multiprocessing.util  # noqa: F401 - and what else the standard library decides when it is imported
    import tempfile  # noqa: F401

    script, *words = sys.argv[1:]
    sys.argv = [script, *words]
    assert signal and time
    simulate()
    runpy.run_path(script, run_name="__main__")
