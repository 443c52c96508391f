"""Arguments of many calls, read as they are needed -> their results, in order, with a bound on what is under way.

arguments ── at most so many submitted, their results not yet taken ──> results
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from delegraph.errors import InvalidArgument
from delegraph.runtime.submitted_calls import Call
from delegraph.runtime.workers import Workers

__all__ = ["calls_ahead", "results_in_order"]


def calls_ahead(workers: Workers, buffersize: int | None) -> int:
    """How many calls are submitted before the result of the first is waited for: `buffersize`, or twice as many as can
    run at a time, within what `Concurrency` lets wait. It is 1 where each call goes on where the last one ended, or
    gives the memory that the next one writes.

    Raises `InvalidArgument` for less than 1.
    """
    if buffersize is not None and buffersize < 1:
        raise InvalidArgument(f"buffersize={buffersize}; it is at least 1")
    if workers.is_alone:
        return 1
    bounds = workers.concurrency
    fitting = buffersize or 2 * workers.most * bounds.max_batch
    if bounds.max_waiting is None:
        return fitting
    running = 0 if bounds.max_batch > 1 else workers.most
    return max(1, min(fitting, running + bounds.max_waiting))


def results_in_order(submit: Callable[..., Call], arguments: Iterable[tuple[Any, ...]], ahead: int) -> Iterator[Any]:
    """The result of `submit(*arguments)` for each. Whoever stops taking them cancels the calls that are left."""
    calls: deque[Call] = deque()
    source = iter(arguments)
    try:
        while True:
            calls.extend(submit(*args) for args in islice(source, ahead - len(calls)))
            if not calls:
                return
            yield calls.popleft().result()
    finally:
        for call in calls:
            call.cancel()
