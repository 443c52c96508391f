"""A Module called by several threads, as it was before a Module could be: a session with a number of workers."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Self

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.runtime.concurrency import Concurrency
from delegraph.runtime.module import Module
from delegraph.runtime.program import Program

__all__ = ["Pool"]


class Pool:
    """Deprecated: call the Module from any thread, loaded with `Concurrency(workers=…)`. This is a session of it.

    `method` is the one that calling `module` calls, if it is not named; of a Program it is "forward". Raises
    `InvalidArgument` for less than one worker, `InvalidType` for anything but a Module or a Program, and as loading a
    method does.
    """

    def __init__(self, module: Module | Program, workers: int, *, method: str | None = None) -> None:
        if workers < 1:
            raise InvalidArgument(f"a pool of {workers} workers; it has at least one")
        if isinstance(module, Program):
            module = Module(module, method or "forward")
        if not isinstance(module, Module):
            raise InvalidType(
                f"a pool is made of a Module, which delegraph.load(…) returns, or of a Program, not of {module!r:.80}"
            )
        self._session = module.session(method, concurrency=Concurrency(workers=workers))
        self.workers = workers

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method, here and now; waits for a worker. Raises as `StructuredMethod.__call__`."""
        return self._session(*args, **kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """As `Module.submit`. Raises `InvalidState` after `close`."""
        return self._session.submit(*args, **kwargs)

    async def run(self, *args: Any, **kwargs: Any) -> Any:
        """As `Module.acall`."""
        return await self._session.acall(*args, **kwargs)

    def close(self) -> None:
        """As `Module.close`."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
