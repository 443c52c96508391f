"""A runtime's fault -> the same, its message begun as ExecuTorch's bindings begin it, with the error's number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from delegraph.errors import RuntimeFault, restated

__all__ = ["failing_to"]


@contextmanager
def failing_to(action: str) -> Iterator[None]:
    """Within: `RuntimeFault`s say "Failed to <action>, error: 0x12" before what they say by themselves.

    Numbers are ExecuTorch's (`runtime/core/error.h`); they are the faults' `code`.
    """
    try:
        yield
    except RuntimeFault as fault:
        raise restated(fault, f"Failed to {action}, error: {fault.code:#x}\n{fault}") from fault.__cause__
