"""A runtime's fault -> the same, its message begun as ExecuTorch's bindings begin it, with the error's number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from delegraph.errors import InvalidArgument, InvalidType, RuntimeFault, restated

__all__ = ["failing_to"]

NUMBERS: Final[dict[type[RuntimeFault], int]] = {InvalidType: InvalidArgument.code}
"""Where ExecuTorch has another number than the fault's `code`: an input of a wrong dtype is an invalid argument."""


@contextmanager
def failing_to(action: str) -> Iterator[None]:
    """Within: `RuntimeFault`s say "Failed to <action>, error: 0x12" before what they say by themselves.

    Numbers are ExecuTorch's (`runtime/core/error.h`): the faults' `code`, but for `NUMBERS`.
    """
    try:
        yield
    except RuntimeFault as fault:
        number = NUMBERS.get(type(fault), fault.code)
        raise restated(fault, f"Failed to {action}, error: {number:#x}\n{fault}") from fault.__cause__
