"""An exception of Python or of the system that says what is lacking -> the fault that says so, with what to do.

MemoryError, ENOMEM, a library that finds no room     MemoryAllocationFailed
a package that is not installed                       NotSupported
EMFILE, ENFILE                                        AccessFailed
"""

from __future__ import annotations

import errno
from typing import Final

from delegraph.errors import AccessFailed, MemoryAllocationFailed, NotSupported, RuntimeFault, cause_of

__all__ = ["lacking"]

_NO_ROOM: Final = ("failed to map segment", "cannot allocate memory")
"""As the dynamic loader says it, and the C library."""


def lacking(error: BaseException) -> RuntimeFault | None:
    """The fault in the place of `error`; None if it says of nothing that it is lacking."""
    number = error.errno if isinstance(error, OSError) else None
    says_so = any(words in cause_of(error).lower() for words in _NO_ROOM)
    if isinstance(error, MemoryError) or number == errno.ENOMEM or says_so:
        return MemoryAllocationFailed("the system did not give the memory for it")
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        package = error.name.partition(".")[0]
        return NotSupported(f"it needs the package {package!r}, which is not installed here; pip install {package}")
    if isinstance(error, OSError) and number in (errno.EMFILE, errno.ENFILE):
        return AccessFailed(
            f"{error.strerror}: each loaded file keeps one open; let go of programs that are not used, or raise the"
            " limit (ulimit -n)"
        )
    return None
