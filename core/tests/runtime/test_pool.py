"""Several callers of one program: each on a worker of its own, waiting where there are more calls than workers."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from delegraph.errors import InvalidArgument, InvalidState, InvalidType
from delegraph.interfaces import BackendInterface
from delegraph.program import serialize_program
from delegraph.runtime import Module, Pool, load


class Meets(BackendInterface):
    """Returns once as many calls are inside at a time as `barrier` waits for."""

    def __init__(self, callers: int) -> None:
        self.barrier = threading.Barrier(callers)
        self.handles = 0

    def init(self, context: Any, processed: Any, compile_specs: Any) -> int:
        self.handles += 1
        return self.handles

    def execute(self, context: Any, handle: int, args: Any) -> None:
        self.barrier.wait(timeout=30)
        args[-1][...] = args[0] * 10 + handle


def module(build: Any, backend: BackendInterface) -> Module:
    x, out = build.tensor(1), build.tensor(1)
    build.delegate("Meets", x, out)
    return load(serialize_program(build.program(build.plan([x], [out]))), backends={"Meets": backend})


def number(n: int) -> Any:
    return np.float32([n])


def test_workers_are_inside_at_a_time_each_with_a_handle_of_its_own(build: Any) -> None:
    backend = Meets(3)
    with Pool(module(build, backend), workers=3) as pool:
        futures = [pool.submit(number(n)) for n in range(6)]
        results = [int(future.result()[0][0]) for future in futures]
    assert [result // 10 for result in results] == list(range(6))
    assert len({result % 10 for result in results[:3]}) == 3


def test_coroutines_wait_for_their_results(build: Any) -> None:
    with Pool(module(build, Meets(2)), workers=2) as pool:

        async def all_at_once() -> list[Any]:
            return await asyncio.gather(*(pool.run(number(n)) for n in range(4)))

        assert [int(result[0][0]) // 10 for result in asyncio.run(all_at_once())] == [0, 1, 2, 3]


def test_a_call_in_the_callers_thread_gives_its_worker_back_after_an_error(build: Any) -> None:
    pool = Pool(module(build, Meets(1)), workers=1)
    for _ in range(3):
        with pytest.raises(InvalidArgument):
            pool(number(1), number(2))
        with pytest.raises(InvalidArgument):
            pool.submit().result()
    assert int(pool(number(4))[0][0]) // 10 == 4
    pool.close()
    pool.close()
    with pytest.raises(InvalidState, match="the pool was closed; make another one"):
        pool.submit(number(1))


def test_a_pool_of_a_program(build: Any) -> None:
    program = module(build, Meets(1)).program
    for method in (None, "forward"):
        with Pool(program, workers=2, method=method) as pool:
            assert int(pool(number(4))[0][0]) // 10 == 4
    with pytest.raises(
        InvalidType, match=r"a pool is made of a Module, which delegraph\.load\(…\) returns, .* 'm\.pte'"
    ):
        Pool("m.pte", workers=2)  # type: ignore[arg-type]


def test_a_pool_of_nobody(build: Any) -> None:
    with pytest.raises(InvalidArgument, match="a pool of 0 workers; it has at least one"):
        Pool(module(build, Meets(1)), workers=0)


def test_workers_load_the_method_that_they_run_alone(build: Any) -> None:
    backend = Meets(1)
    x, out = build.tensor(1), build.tensor(1)
    build.delegate("Meets", x, out)
    plans = [build.plan([x], [out], name=name) for name in ("forward", "other")]
    both = load(serialize_program(build.program(*plans)), backends={"Meets": backend})
    before = backend.handles
    with Pool(both, workers=2, method="other") as pool:
        assert int(pool(number(1))[0][0]) // 10 == 1
    assert backend.handles - before == 2
