"""Module -> several callers at a time: each call on a worker, a Method of its own over the one shared Program.

    with Pool(delegraph.load("model.pte"), workers=4) as pool:
        y = pool(x)                                # in the caller's thread, on a worker that is free
        futures = [pool.submit(x) for x in xs]     # in threads of the pool
        y = await pool.run(x)                      # the same, from a coroutine

Constants, delegates' blobs and code are there once; each worker has planned memory, state and delegates' handles.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Self

from delegraph.errors import InvalidArgument, InvalidState, InvalidType
from delegraph.runtime.module import Module
from delegraph.runtime.program import Program

__all__ = ["Pool"]


class Pool:
    """Calls of one method, up to `workers` at a time; more of them wait, in the order in which they came.

    `method` is the one that calling `module` calls, if it is not named; of a Program it is "forward".
    Any worker may take any call, so it suits methods without state. Kernels run side by side as far as NumPy leaves
    Python's lock, delegates as far as their backends do. Raises `InvalidArgument` for less than one worker,
    `InvalidType` for anything but a Module or a Program, and as loading a method does.
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
        self._free: SimpleQueue[Module] = SimpleQueue()
        for _ in range(workers):
            self._free.put(module.session(method))
        self._threads: ThreadPoolExecutor | None = ThreadPoolExecutor(workers, thread_name_prefix="delegraph-pool")
        self.workers = workers

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method, here and now; waits for a worker. Raises as `StructuredMethod.__call__`."""
        worker = self._free.get()
        try:
            return worker(*args, **kwargs)
        finally:
            self._free.put(worker)

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have the method called in a thread of the pool. Raises `InvalidState` after `close`."""
        if self._threads is None:
            raise InvalidState("the pool was closed; make another one")
        return self._threads.submit(self, *args, **kwargs)

    async def run(self, *args: Any, **kwargs: Any) -> Any:
        """The result of `submit`, awaited. Raises as both."""
        return await asyncio.wrap_future(self.submit(*args, **kwargs))

    def close(self) -> None:
        """Wait for the submitted calls, and end the threads."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
