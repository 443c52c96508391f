"""Actors of Ray as a `concurrent.futures.Executor`, for `delegraph.map_table` and `delegraph map --ray`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from typing import Any, Final

import ray

from delegraph_ray.shipping import files_shipped

__all__ = ["RayExecutor"]

_RETRIES: Final = 3
"""How often a call is made again whose actor died."""


class _Worker:
    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Whatever `function` gives."""
        return function(*args)


class RayExecutor(Executor):
    """Calls in actors of Ray, each on the one with the fewest. Programs that are sent go to each node once.

        with delegraph_ray.RayExecutor("auto", workers=8) as executor:
            delegraph.map_table("model.pte", "in.parquet", "out.parquet", workers=executor)

    address: the cluster's, as `ray.init` takes it; where this process is connected already, that connection is used.
    workers: how many actors, each with `num_cpus` CPUs; they are spread over the nodes.
    by_value: functions whose module the nodes do not have: it is sent along.

    An actor that dies is started again, and its calls are made again. Raises what `ray.init` raises.
    """

    def __init__(
        self, address: str = "auto", workers: int = 1, *, num_cpus: float = 1, by_value: Iterable[Any] = ()
    ) -> None:
        self._end = ExitStack()
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False)
            self._end.callback(ray.shutdown)
        for function in by_value:
            module = sys.modules[function.__module__]
            ray.cloudpickle.register_pickle_by_value(module)
            self._end.callback(ray.cloudpickle.unregister_pickle_by_value, module)
        self._end.enter_context(files_shipped())
        self._max_workers = workers
        options = {"num_cpus": num_cpus, "max_restarts": -1, "max_task_retries": _RETRIES}
        actor = ray.remote(_Worker).options(scheduling_strategy="SPREAD", **options)
        self._actors = [actor.remote() for _ in range(workers)]
        self._calls: Counter[int] = Counter()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A future of `fn(*args)`, which raises what that raises."""
        assert not kwargs, "map_table has none"
        number = min(range(len(self._actors)), key=lambda number: self._calls[number])
        self._calls[number] += 1
        future: Future[Any] = Future()

        def done(inner: Future[Any]) -> None:
            self._calls[number] -= 1
            error = inner.exception()
            if not future.set_running_or_notify_cancel():
                return
            if error is None:
                future.set_result(inner.result())
            else:
                future.set_exception(getattr(error, "cause", None) or error)

        self._actors[number].run.remote(fn, *args).future().add_done_callback(done)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the actors, and the connection if it was made here."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors.clear()
        self._end.close()
