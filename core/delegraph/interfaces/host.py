"""This machine, as code compiled for it depends on it: system, architecture and the processor's instructions."""

from __future__ import annotations

import platform
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["host_description"]

_PREFIXES: Final = ("flags", "Features", "model name", "CPU part", "isa")
"""Of the lines in Linux's /proc/cpuinfo that name a processor or its instructions, on x86, Arm and RISC-V."""


@cache
def host_description() -> str:
    """The operating system and the processor: on Linux with its instructions, elsewhere by its name."""
    told = [platform.system(), platform.machine(), platform.processor()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        told += dict.fromkeys(line for line in lines if line.startswith(_PREFIXES))
    return "\n".join(told)
