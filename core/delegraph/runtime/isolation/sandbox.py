"""This process -> the same without the system calls by which it could get at files, other processes or the network.

Linux's seccomp, by its numbers (x86-64: `asm/unistd_64.h`; AArch64: `asm-generic/unistd.h`). A filter is a program of
the classic BPF (`linux/filter.h`) over `struct seccomp_data`: the call's number at byte 0, the architecture at 4, and
six arguments of 8 bytes from 16 on. It holds for all threads, cannot be taken back, and only gets stricter.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from enum import Enum
from errno import ENOSYS, EPERM
from typing import Final, NamedTuple

__all__ = ["Allowed", "restrict"]


class Allowed(Enum):
    """The files that a process may open from now on."""

    READING = "files that it reads"
    NOTHING = "none"


class _Machine(NamedTuple):
    audit: int  # AUDIT_ARCH_… of linux/audit.h
    column: int


_MACHINES: Final = {"x86_64": _Machine(0xC000003E, 0), "aarch64": _Machine(0xC00000B7, 1)}

# The numbers of each call: x86-64, AArch64; -1 where it has none.
_DENIED: Final = {
    # the network, and sockets of other kinds
    **{"socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201)},
    **{"accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269)},
    # processes
    **{"execve": (59, 221), "execveat": (322, 281), "fork": (57, -1), "vfork": (58, -1), "ptrace": (101, 117)},
    **{"process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kill": (62, 129), "tkill": (200, 130)},
    **{"rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434)},
    **{"pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438), "unshare": (272, 97), "setns": (308, 268)},
    # names of files
    **{"creat": (85, -1), "openat2": (437, 437), "open_by_handle_at": (304, 265), "unlink": (87, -1)},
    **{"unlinkat": (263, 35), "rename": (82, -1), "renameat": (264, 38), "renameat2": (316, 276), "link": (86, -1)},
    **{"linkat": (265, 37), "symlink": (88, -1), "symlinkat": (266, 36), "mkdir": (83, -1), "mkdirat": (258, 34)},
    **{"rmdir": (84, -1), "mknod": (133, -1), "mknodat": (259, 33), "truncate": (76, 45), "chmod": (90, -1)},
    **{"fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, -1), "fchown": (93, 55)},
    **{"lchown": (94, -1), "fchownat": (260, 54), "utime": (132, -1), "utimes": (235, -1), "utimensat": (280, 88)},
    **{"futimesat": (261, -1), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7)},
    **{"removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16)},
    # the system
    **{"mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "bpf": (321, 280)},
    **{"perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "keyctl": (250, 219)},
    **{"add_key": (248, 217), "request_key": (249, 218), "shmget": (29, 194), "msgget": (68, 186)},
    **{"semget": (64, 190), "mq_open": (240, 180), "init_module": (175, 105), "finit_module": (313, 273)},
    **{"kexec_load": (246, 104), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430)},
}
_OPEN, _OPENAT, _CLONE, _CLONE3, _TGKILL = (2, -1), (257, 56), (56, 220), (435, 435), (234, 131)

_LOAD, _EQUAL, _AT_LEAST, _HAS_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF_LD|W|ABS, BPF_JMP|…|K, BPF_RET|K
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32: Final = 0x40000000
"""Numbers from here on are those of x32, x86-64's other table."""
_THREAD: Final = 0x00010000
"""CLONE_THREAD: without it, a clone is a process."""
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_Step = tuple[int, int, int, int]
"""A BPF instruction: the code, how many to skip if it is true and if it is not, a number."""


def restrict(allowed: Allowed) -> str:
    """Restrict this process, all of its threads; "" if that was done, else why it cannot be, in words."""
    machine = _MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None or sys.maxsize < 2**32:
        return f"there is no seccomp on {sys.platform} ({platform.machine()})"
    steps = _filter(machine, allowed)
    return _install(steps, 317 if machine.column == 0 else 277)


def _filter(machine: _Machine, allowed: Allowed) -> list[_Step]:
    deny: _Step = (_RETURN, 0, 0, _ERROR | EPERM)
    steps: list[_Step] = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, machine.audit), deny]
    steps += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), deny]

    def rule(numbers: tuple[int, int], *then: _Step) -> None:
        if numbers[machine.column] >= 0:
            steps.extend([(_EQUAL, 0, len(then), numbers[machine.column]), *then])

    def unless(argument: int, test: int, number: int) -> tuple[_Step, ...]:
        """Denied, unless the lower half of the argument passes the test."""
        return (_LOAD, 0, 0, _ARGUMENTS + 8 * argument), (test, 1, 0, number), deny, (_RETURN, 0, 0, _ALLOW)

    def if_(argument: int, test: int, number: int) -> tuple[_Step, ...]:
        return (_LOAD, 0, 0, _ARGUMENTS + 8 * argument), (test, 0, 1, number), deny, (_RETURN, 0, 0, _ALLOW)

    for numbers in _DENIED.values():
        rule(numbers, deny)
    rule(_CLONE, *unless(0, _HAS_BIT, _THREAD))
    rule(_CLONE3, (_RETURN, 0, 0, _ERROR | ENOSYS))  # its flags lie in memory; the C library then takes clone
    rule(_TGKILL, *unless(0, _EQUAL, os.getpid()))
    for numbers, flags in ((_OPEN, 1), (_OPENAT, 2)):
        rule(numbers, *(if_(flags, _HAS_BIT, _WRITES) if allowed is Allowed.READING else (deny,)))
    return [*steps, (_RETURN, 0, 0, _ALLOW)]


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


_NO_NEW_PRIVILEGES, _SET_MODE_FILTER, _ALL_THREADS = 38, 1, 1  # linux/prctl.h, linux/seccomp.h


def _install(steps: list[_Step], seccomp: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    instructions = (_Instruction * len(steps))(*[_Instruction(*step) for step in steps])
    program = _Program(len(steps), instructions)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    result = libc.syscall(seccomp, _SET_MODE_FILTER, _ALL_THREADS, ctypes.byref(program))
    return "" if result == 0 else f"seccomp is refused here: {os.strerror(ctypes.get_errno())}"
