"""A method of somebody else's class -> another one in its place, in this thread, within a `with` block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

__all__ = ["replaced"]

_LOCKS: dict[tuple[type, str], threading.RLock] = {}


@contextmanager
def replaced(owner: type, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """Within the block this thread's calls of the method `owner.name` are calls of `replacement`.

    Other threads' calls go to the method itself; one that would replace it too waits. The method is back when the block
    is left, however it is left.
    """
    with _LOCKS.setdefault((owner, name), threading.RLock()):
        method, thread = vars(owner)[name], threading.get_ident()

        @wraps(method)
        def chosen(*args: Any, **kwargs: Any) -> Any:
            return (replacement if threading.get_ident() == thread else method)(*args, **kwargs)

        try:
            setattr(owner, name, chosen)
            yield
        finally:
            setattr(owner, name, method)
