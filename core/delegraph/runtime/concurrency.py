"""The choices of a loaded module's user for calls that come at the same time."""

from __future__ import annotations

import os
from typing import Final

from delegraph.errors import InvalidArgument
from delegraph.lazy_dataclass import dataclass

__all__ = ["Concurrency"]


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How calls of a method without state, which may come from any number of threads and tasks, are run.

    Each runs on a worker: the method loaded once more, over the same weights and compiled delegates, with planned
    memory of its own. There is one worker until a call comes while another runs. Raises `InvalidArgument` for a number
    that is out of its range.
    """

    workers: int | None = None
    """How many calls run at a time, at most. None: as many as this process may use cores, and up to 16 as long as their
    planned memory is 16 MiB at most: calls of small models would take longer to wait than to run."""
    max_waiting: int | None = None
    """How many more may wait for a worker. Those beyond raise `Busy` at once. None: no bound."""
    timeout: float | None = None
    """After how many seconds of waiting for a worker a call raises `Busy`; None: never. The time in which it runs is
    that of `Limits.seconds`."""
    max_batch: int = 1
    """Up to so many rows (the size of the first dim), calls that wait are run as one; 1: each is run alone. The rows
    of a batch must not depend on each other; the last bits of a result may depend on how many there are."""
    max_delay: float = 0.0
    """For how many seconds, from its first call on, a batch waits for more calls although a worker is free."""

    def __post_init__(self) -> None:
        least = (("workers", 1), ("max_waiting", 0), ("timeout", 0), ("max_batch", 1), ("max_delay", 0))
        for name, bound in least:
            value = getattr(self, name)
            if value is not None and not value >= bound:
                raise InvalidArgument(f"Concurrency({name}={value}); it is {bound} or more")
        if self.max_waiting is not None and self.max_waiting < self.max_batch > 1:
            raise InvalidArgument(
                f"Concurrency(max_batch={self.max_batch}, max_waiting={self.max_waiting}): a batch is made of calls"
                " that wait; let as many wait as are to be one batch"
            )

    def most_workers(self, planned_bytes: int) -> int:
        """The number of workers at most, for a method with so much planned memory."""
        return self.workers or max(usable_cores(), min(_MOST, _MOST_BYTES // max(planned_bytes, 1)))


_MOST: Final = 16
_MOST_BYTES: Final = 2**24


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
