"""The platform abstraction layer (PAL): the clock, the log, abort and the allocation that the runtime uses.

A `Platform` is a value. Whoever embeds the runtime hands in another one where a program is loaded
(`Runtime(platform=…)`); nothing is patched globally. The hooks are those of ExecuTorch's `runtime/platform/platform.h`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

import numpy as np

from delegraph.errors import MemoryAllocationFailed
from delegraph.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT: Final = 64
"""Bytes. A cache line, and the widest vector register (AVX-512): the alignment that BLAS and onnxruntime prefer."""


class LogLevel(IntEnum):
    """How serious a message is. The letters on the log line are ExecuTorch's."""

    DEBUG = 0
    INFO = 1
    ERROR = 2
    FATAL = 3


def log_to_stderr(level: LogLevel, message: str) -> None:
    """Write INFO and above as one line on standard error."""
    if level >= LogLevel.INFO:
        print(f"{level.name[0]} delegraph: {message}", file=sys.stderr)


def abort_process() -> NoReturn:
    """End the process at once, as C's `abort` does."""
    os.abort()


def allocate_aligned(nbytes: int) -> NDArray[np.uint8]:
    """`nbytes` of zeroed memory, aligned to `ALIGNMENT`. Pages that nobody touches cost nothing.

    Raises `MemoryAllocationFailed`.
    """
    try:
        block: NDArray[np.uint8] = np.zeros(nbytes + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        raise MemoryAllocationFailed(f"the system did not give {nbytes:,} bytes: {error}") from error
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + nbytes]


@dataclass(frozen=True, slots=True)
class Platform:
    """The machine's clock, log and memory, for the runtime. Replace any field.

    `current_ticks` counts in units of `ns_per_tick` nanoseconds; `allocate(nbytes)` returns writable zeroed bytes.
    """

    current_ticks: Callable[[], int] = time.perf_counter_ns
    ns_per_tick: float = 1.0
    log: Callable[[LogLevel, str], object] = log_to_stderr
    abort: Callable[[], NoReturn] = abort_process
    allocate: Callable[[int], NDArray[np.uint8]] = allocate_aligned


DEFAULT_PLATFORM: Final = Platform()


class PlatformFactory(Protocol):
    """A function: the object behind a `delegraph.platforms` entry point."""

    def __call__(self) -> Platform:
        """The machine's platform. Called for each program that is loaded with it."""
