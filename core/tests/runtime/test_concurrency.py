"""One loaded module, called from many threads and tasks: each call on a worker, in line where there are none left."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest
from core.tests.runtime.test_interrupts import interrupted

from delegraph.errors import Busy, Cancelled, DelegateInvalidHandle, InvalidArgument, InvalidState
from delegraph.interfaces import BackendInterface
from delegraph.program import serialize_program
from delegraph.runtime import Call, Concurrency, EventTracer, KernelLibrary, Module, load

__all__ = ["interrupted"]

PATIENCE = 30
"""Seconds after which a test that waits for something fails."""


class Gate(BackendInterface):
    """Each call says that it is inside, and stays there until a permit comes; out = 10 x + the handle's number."""

    def __init__(self) -> None:
        self.inside = threading.Semaphore(0)
        self.permits = threading.Semaphore(0)
        self.order: list[int] = []
        self.handles = 0
        self.destroyed = 0
        self.cancelled: list[int] = []

    def init(self, context: Any, processed: Any, compile_specs: Any) -> int:
        self.handles += 1
        return self.handles

    def execute(self, context: Any, handle: int, args: Any) -> None:
        self.order.append(int(args[0][0]))
        self.inside.release()
        assert self.permits.acquire(timeout=PATIENCE)
        args[-1][...] = args[0] * 10 + handle

    def cancel(self, handle: int, requested: bool) -> None:
        if requested:
            self.cancelled.append(handle)
            self.permits.release()

    def destroy(self, handle: int) -> None:
        self.destroyed += 1

    def wait_for(self, calls: int = 1) -> None:
        """Until so many more calls are inside."""
        for _ in range(calls):
            assert self.inside.acquire(timeout=PATIENCE)


def number(n: int) -> Any:
    return np.float32([n])


def program_of(build: Any, steps: int = 1) -> bytes:
    x = value = build.tensor(1)
    for _ in range(steps):
        out = build.tensor(1)
        build.delegate("Gate", value, out)
        value = out
    return serialize_program(build.program(build.plan([x], [value])))


@pytest.fixture
def gate() -> Iterator[Gate]:
    """The backend; whatever still waits in the end goes on."""
    gate = Gate()
    yield gate
    gate.permits.release(100)


def gated(build: Any, gate: Gate, **options: Any) -> Module:
    concurrency = Concurrency(**options)
    return load(program_of(build), backends={"Gate": gate}, concurrency=concurrency)


@contextmanager
def callers(count: int) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(count) as threads:
        yield threads


def in_line(model: Module, count: int) -> None:
    """Wait until `count` calls stand in line."""
    workers = model["forward"]._workers
    assert workers is not None
    for _ in range(PATIENCE * 1000):
        with workers.lock:
            if len(workers.line) == count:
                return
        threading.Event().wait(0.001)
    pytest.fail(f"{len(workers.line)} calls stand in line, not {count}")


def is_refused(model: Module) -> None:
    """Wait until the module takes no more calls."""
    workers = model["forward"]._workers
    for _ in range(PATIENCE * 1000):
        try:
            workers.require_open()
        except InvalidState:
            return
        threading.Event().wait(0.001)
    pytest.fail("new calls are still taken")


def answer(result: Any) -> int:
    return int(result[0][0]) // 10


# ---- threads -----------------------------------------------------------------------------------------


def test_calls_that_meet_run_at_a_time_each_on_a_worker_of_its_own(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=3)
    with callers(3) as threads:
        calls = [threads.submit(model, number(n)) for n in range(3)]
        gate.wait_for(3)
        gate.permits.release(3)
        results = [call.result(PATIENCE) for call in calls]
    assert [answer(result) for result in results] == [0, 1, 2]
    assert len({int(result[0][0]) % 10 for result in results}) == gate.handles == 3


def test_there_is_one_worker_until_two_calls_meet(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=3)
    gate.permits.release(12)
    with callers(4) as threads:
        for n in range(12):
            assert answer(threads.submit(model, number(n)).result(PATIENCE)) == n  # one after the other
    assert gate.handles == 1


def test_more_calls_than_workers_wait_in_order(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=1)
    with callers(5) as threads:
        calls = []
        for n in range(5):
            calls.append(threads.submit(model, number(n)))
            gate.wait_for() if n == 0 else in_line(model, n)
        gate.permits.release(5)
        assert [answer(call.result(PATIENCE)) for call in calls] == gate.order == [0, 1, 2, 3, 4]
    assert gate.handles == 1


def test_no_more_wait_than_may(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=1, max_waiting=1)
    with callers(2) as threads:
        calls = [threads.submit(model, number(0))]
        gate.wait_for()
        calls.append(threads.submit(model, number(1)))
        in_line(model, 1)
        refusal = r"method 'forward': 1 calls wait for its 1 workers, and no more may; .*max_waiting"
        for call in (model, model.submit, lambda x: asyncio.run(model.acall(x))):
            with pytest.raises(Busy, match=refusal):
                call(number(2))
        gate.permits.release(2)
        assert [answer(call.result(PATIENCE)) for call in calls] == [0, 1]
    gate.permits.release()
    assert answer(model(number(3))) == 3  # there is room again


def test_a_call_waits_as_long_as_it_may(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=1, timeout=0.02)
    refusal = r"all 1 workers were busy for 0.02 seconds; try again later, or set Concurrency"
    with callers(1) as threads:
        first = threads.submit(model, number(0))
        gate.wait_for()
        with pytest.raises(Busy, match=refusal):
            model(number(1))
        with pytest.raises(Busy, match=refusal):
            asyncio.run(model.acall(number(2)))
        late = model.submit(number(3))
        threading.Event().wait(0.05)
        gate.permits.release(1)
        assert answer(first.result(PATIENCE)) == 0
        with pytest.raises(Busy, match=refusal):
            late.result(PATIENCE)
    assert gate.order == [0]


@pytest.mark.parametrize(
    "options", [{"workers": 0}, {"max_waiting": -1}, {"timeout": -1}, {"max_batch": 0}, {"max_delay": -0.1}]
)
def test_numbers_that_make_no_sense(options: dict[str, Any]) -> None:
    ((name, value),) = options.items()
    with pytest.raises(InvalidArgument, match=rf"Concurrency\({name}={value}\); it is \d or more"):
        Concurrency(**options)


def test_small_models_have_more_workers_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegraph.runtime.concurrency.usable_cores", lambda: 4)
    default = Concurrency()
    assert [default.most_workers(size) for size in (0, 2**10, 2**21, 2**30)] == [16, 16, 8, 4]
    assert Concurrency(workers=2).most_workers(2**10) == 2


def test_an_error_is_its_own_calls_alone(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=1)
    with callers(1) as threads:
        first = threads.submit(model, number(0))
        gate.wait_for()
        wrong = model.submit(np.zeros(2, np.float32))
        right = model.submit(number(2))
        with pytest.raises(InvalidArgument, match="takes"):
            model.submit(number(1), number(1))
        gate.permits.release(2)
        assert answer(first.result(PATIENCE)) == 0
        with pytest.raises(InvalidArgument, match="got shape"):
            wrong.result(PATIENCE)
        assert answer(right.result(PATIENCE)) == 2


def test_where_no_second_worker_can_be_made_calls_wait_for_the_first(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=4)

    def refuse(*arguments: Any) -> Any:
        raise MemoryError("the device has room for one")

    gate.init = refuse  # type: ignore[method-assign]
    with callers(3) as threads:
        calls = [threads.submit(model, number(0))]
        gate.wait_for()
        calls += [threads.submit(model, number(n)) for n in (1, 2)]
        in_line(model, 2)
        gate.permits.release(3)
        assert sorted(answer(call.result(PATIENCE)) for call in calls) == [0, 1, 2]


def test_an_interrupt_takes_a_waiting_call_out_of_the_line(build: Any, gate: Gate, ctrl_c: Callable[[], None]) -> None:
    model = gated(build, gate, workers=1)
    with callers(2) as threads:
        first = threads.submit(model, number(0))
        gate.wait_for()
        threads.submit(lambda: (in_line(model, 1), ctrl_c()))
        with pytest.raises(KeyboardInterrupt):
            model(number(1))
        in_line(model, 0)
        gate.permits.release()
        assert answer(first.result(PATIENCE)) == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_lose_no_worker(interrupted: Any, build: Any, kernels: Any) -> None:
    x = build.tensor(2)
    sums = build.call("aten::add.out", x, x, build.int(1), build.tensor(2))
    model = load(build.program(build.plan([x], [sums])), kernels=[kernels], concurrency=Concurrency(workers=2))
    array = np.ones(2, np.float32)
    model(array)
    hits = 0
    while hits < 500:
        try:
            interrupted()
            while True:
                model(array)
        except KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
            hits += 1
    workers = model["forward"]._workers
    assert workers is not None
    workers._free.clear()  # as if interrupted right behind taking it
    with callers(1) as threads:
        np.testing.assert_array_equal(threads.submit(model, array).result(PATIENCE)[0], [2, 2])
    assert len(workers._all) == 1


def test_a_step_that_calls_its_own_model(build: Any) -> None:
    library, loaded = KernelLibrary("curious"), []

    @library.kernel("test::countdown.out")
    def countdown(context: Any, x: Any, out: Any) -> None:
        out[...] = x if x[0] == 0 else loaded[0](x - 1)[0] + 1

    x = build.tensor(1)
    out = build.call("test::countdown.out", x, build.tensor(1))
    program = build.program(build.plan([x], [out]))
    loaded.append(load(program, kernels=[library], concurrency=Concurrency(workers=3)))
    assert loaded[0](number(2))[0][0] == 2
    with pytest.raises(
        InvalidState, match=r"called by one of its own steps, which have all its 3 workers; set Concurr"
    ):
        loaded[0](number(3))
    assert loaded[0](number(2))[0][0] == 2


def test_free_threads_are_many(build: Any, kernels: Any) -> None:
    """Eight threads without any order: each has its own numbers."""
    x, y = build.tensor(64), build.tensor(64)
    value = x
    for _ in range(4):
        value = build.call("aten::add.out", value, y, build.int(1), build.tensor(64))
    model = load(build.program(build.plan([x, y], [value])), kernels=[kernels])
    start = threading.Barrier(8)

    def work(seed: int) -> bool:
        values = np.random.default_rng(seed).integers(0, 100, (50, 2, 64)).astype(np.float32)
        start.wait(PATIENCE)
        return all(np.array_equal(model(a, b)[0], a + 4 * b) for a, b in values)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with callers(8) as threads:
            assert all(threads.map(work, range(8)))
    finally:
        sys.setswitchinterval(interval)


# ---- state and other things that there are once ----------------------------------------------------------


def keeper(build: Any, name: str | None) -> Any:
    """count += x, where the file says that the buffer is one (by its name), or not."""
    x, count = build.tensor(1), build.tensor(1, name=name) if name else build.tensor(1)
    total = build.call("aten::add.out", count, x, build.int(1), count)
    return build.program(build.plan([x], [total]))


def executing(model: Module, action: Callable[[], Any]) -> Any:
    """The result of `action`, or what it raises, in another thread while a call of `model` is executing."""
    results: list[Any] = []

    def other() -> None:
        try:
            results.append(action())
        except Exception as error:
            results.append(error)

    class Caller:
        def __dlpack_device__(self) -> Any:
            return number(1).__dlpack_device__()

        def __dlpack__(self, **options: Any) -> Any:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join(PATIENCE)
            return number(1).__dlpack__(**options)

    model(Caller())
    return results[0]


@pytest.mark.parametrize("name", ["count", None])
def test_a_second_caller_of_state_is_told(build: Any, kernels: Any, name: str | None) -> None:
    model = load(keeper(build, name), kernels=[kernels])
    told = executing(model, lambda: model(number(5)))
    assert isinstance(told, InvalidState)
    assert "executing in another thread; give each thread a session of its own: run.session()" in str(told)
    assert model(number(1))[0][0] == 2
    assert model["forward"].method.keeps_state


def test_calls_that_are_submitted_to_state_come_one_after_the_other(build: Any, kernels: Any) -> None:
    model = load(keeper(build, "count"), kernels=[kernels])
    calls = [model.submit(number(1)) for _ in range(20)]
    assert [int(call.result(PATIENCE)[0][0]) for call in calls] == list(range(1, 21))
    assert [int(call.result(PATIENCE)[0][0]) for call in [model.session().submit(number(1))]] == [1]
    model.close()


def test_who_borrows_outputs_is_told(build: Any, gate: Gate) -> None:
    model = load(program_of(build), backends={"Gate": gate}, outputs="borrow")
    with callers(1) as threads:
        first = threads.submit(model, number(0))
        gate.wait_for()
        with pytest.raises(InvalidState, match="executing in another thread"):
            model(number(1))
        gate.permits.release()
        first.result(PATIENCE)


@pytest.mark.parametrize("once", ["event_tracer", "memory"])
def test_calls_wait_for_what_there_is_once(build: Any, gate: Gate, once: str) -> None:
    options: dict[str, Any] = {"event_tracer": EventTracer()}
    if once == "memory":
        options = {"memory": {1: np.zeros(1024, np.uint8)}}
    model = load(program_of(build), backends={"Gate": gate}, **options)
    with callers(2) as threads:
        calls = [threads.submit(model, number(0))]
        gate.wait_for()
        calls.append(threads.submit(model, number(1)))
        in_line(model, 1)
        gate.permits.release(2)
        assert [answer(call.result(PATIENCE)) for call in calls] == [0, 1]
    assert gate.handles == 1


# ---- calls that are submitted, and coroutines ------------------------------------------------------------


def test_coroutines_wait_for_their_results(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=2)

    async def all_at_once() -> list[int]:
        tasks = [asyncio.ensure_future(model.acall(number(n))) for n in range(6)]
        await asyncio.to_thread(gate.wait_for, 2)
        gate.permits.release(6)
        return [answer(await task) for task in tasks]

    assert asyncio.run(all_at_once()) == [0, 1, 2, 3, 4, 5]
    assert gate.handles == 2


def test_a_task_that_is_cancelled_stops_its_own_run_alone(build: Any, gate: Gate) -> None:
    model = load(program_of(build, steps=2), backends={"Gate": gate}, concurrency=Concurrency(workers=2))

    async def three() -> list[Any]:
        tasks = [asyncio.ensure_future(model.acall(number(n))) for n in range(2)]
        await asyncio.to_thread(gate.wait_for, 2)
        tasks.append(asyncio.ensure_future(model.acall(number(2))))
        await asyncio.sleep(0)
        tasks[1].cancel()  # it is running; its worker goes to the call that waits
        await asyncio.to_thread(gate.wait_for, 1)
        gate.permits.release(100)
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second, third = asyncio.run(three())
    assert isinstance(second, asyncio.CancelledError)
    assert [int(result[0][0]) // 100 for result in (first, third)] == [0, 2]
    assert len(gate.cancelled) > 0 and len(set(gate.cancelled)) <= 2


def test_a_call_that_is_cancelled_in_line_is_never_run(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=1, max_waiting=1)
    first = model.submit(number(0))
    gate.wait_for()
    second = model.submit(number(1))
    assert second.cancel() and second.cancel()
    third = model.submit(number(2))  # its place in line is free
    gate.permits.release(2)
    done, _ = wait([first, second, third], PATIENCE)
    assert done == {first, second, third}
    with pytest.raises(CancelledError):
        second.result()
    assert gate.order == [0, 2]
    assert not first.cancel()  # it is over


def test_a_cancelled_run_says_so_and_the_next_one_is_not_touched(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=1)
    call = model.submit(number(0))
    gate.wait_for()
    assert isinstance(call, Call) and call.running() and call.cancel()
    with pytest.raises(Cancelled, match="it was cancelled"):
        call.result(PATIENCE)
    gate.permits.release()
    assert answer(model.submit(number(1)).result(PATIENCE)) == 1


def test_a_call_is_cancelled_between_its_turn_and_its_run(
    build: Any, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    run_alone = Call.run_alone

    def cancelled_first(call: Call, worker: Any) -> None:
        told.append(call.cancel())
        run_alone(call, worker)

    monkeypatch.setattr(Call, "run_alone", cancelled_first)
    call = gated(build, gate, workers=1).submit(number(1))
    with pytest.raises(Cancelled):
        call.result(PATIENCE)
    assert told == [True]


def test_a_run_is_cancelled_before_it_began(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=1)

    class Cancels:
        def __dlpack_device__(self) -> Any:
            return number(1).__dlpack_device__()

        def __dlpack__(self, **options: Any) -> Any:
            assert call.cancel()
            return number(1).__dlpack__(**options)

    ready = threading.Event()
    blocker = model.submit(number(0))
    gate.wait_for()
    call = model.submit(Cancels())
    ready.set()
    gate.permits.release()
    blocker.result(PATIENCE)
    with pytest.raises(Cancelled):
        call.result(PATIENCE)
    assert gate.order == [0]
    gate.permits.release()
    assert answer(model(number(2))) == 2


def test_a_call_runs_in_its_callers_context(build: Any) -> None:
    request, seen = ContextVar("request", default=""), []
    library = KernelLibrary("curious")

    @library.kernel("test::look.out")
    def look(context: Any, x: Any, out: Any) -> None:
        seen.append(request.get())

    x = build.tensor(1)
    out = build.call("test::look.out", x, build.tensor(1))
    model = load(build.program(build.plan([x], [out])), kernels=[library])
    request.set("7")
    model.submit(number(0)).result(PATIENCE)
    assert seen == ["7"]


# ---- the end, copies, forks --------------------------------------------------------------------------


def test_close_waits_for_calls_that_run_and_wait_and_refuses_new_ones(build: Any, gate: Gate) -> None:
    with gated(build, gate, workers=2) as model, callers(4) as threads:
        calls = [threads.submit(model, number(n)) for n in range(2)]
        gate.wait_for(2)
        calls += [threads.submit(model, number(2)), model.submit(number(3))]
        in_line(model, 2)
        closing = threads.submit(model.close)
        in_line(model, 4)
        for call in (model, model.submit):
            with pytest.raises(InvalidState, match="method 'forward' was closed; load it again"):
                call(number(4))
        assert not closing.done() and gate.destroyed == 0
        gate.permits.release(4)
        closing.result(PATIENCE)
        assert sorted(answer(call.result(PATIENCE)) for call in calls) == [0, 1, 2, 3]
    assert gate.destroyed == 2
    model.close()
    with pytest.raises(InvalidState, match="was closed"):
        model(number(5))
    with pytest.raises(DelegateInvalidHandle):
        model["forward"].method.execute([number(5)])


def test_close_waits_for_a_run_that_takes_its_time(build: Any, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegraph.runtime.workers._LOOK_AGAIN", 0.01)
    model = gated(build, gate, workers=2)
    with callers(3) as threads:
        calls = [threads.submit(model, number(n)) for n in range(2)]
        gate.wait_for(2)
        closing = threads.submit(model.close)
        in_line(model, 2)
        threading.Event().wait(0.1)  # it looks again and again, and takes no worker from a call
        assert not closing.done() and gate.destroyed == 0
        gate.permits.release(2)
        closing.result(PATIENCE)
        assert [answer(call.result(PATIENCE)) for call in calls] == [0, 1]


def test_close_while_a_worker_is_being_made(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=2)
    making, goes_on = threading.Event(), threading.Event()

    def refuse(*arguments: Any) -> Any:
        making.set()
        assert goes_on.wait(PATIENCE)
        raise MemoryError("there is no room for another one")

    gate.init = refuse  # type: ignore[method-assign]
    with callers(3) as threads:
        calls = [threads.submit(model, number(0))]
        gate.wait_for()
        calls.append(threads.submit(model, number(1)))
        assert making.wait(PATIENCE)
        closing = threads.submit(model.close)
        is_refused(model)
        goes_on.set()
        gate.permits.release(2)
        closing.result(PATIENCE)
        assert [answer(call.result(PATIENCE)) for call in calls] == [0, 1]


def test_methods_of_a_closed_module_are_not_loaded(build: Any, kernels: Any) -> None:
    x = build.tensor(1)
    model = load(build.program(*(build.plan([x], [x], name=name) for name in ("forward", "other"))), kernels=[kernels])
    model.close()
    with pytest.raises(InvalidState, match="the module was closed; load it again"):
        model.other(number(1))


def test_a_session_closes_for_itself(build: Any, gate: Gate) -> None:
    model = gated(build, gate)
    with model.session(concurrency=Concurrency(workers=1)) as session:
        gate.permits.release(2)
        assert answer(session(number(1))) == 1
    assert answer(model(number(2))) == 2


def test_workers_go_with_their_module(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=2)
    calls = [model.submit(number(n)) for n in range(2)]
    gate.wait_for(2)
    gate.permits.release(2)
    wait(calls, PATIENCE)
    before = threading.active_count()
    del model, calls
    for _ in range(PATIENCE * 100):
        gc.collect()
        if gate.destroyed == 2 and threading.active_count() < before:
            return
        threading.Event().wait(0.01)
    pytest.fail(f"{gate.destroyed} of 2 handles were destroyed")


def test_a_copy_has_the_same_concurrency(build: Any, kernels: Any, tmp_path: Any) -> None:
    x = build.tensor(1)
    file = tmp_path / "m.pte"
    file.write_bytes(serialize_program(build.program(build.plan([x], [x]))))
    model = load(file, concurrency=Concurrency(workers=3, timeout=1.5))
    model(number(1))
    again = copy.copy(pickle.loads(pickle.dumps(model)))
    assert again._concurrency == model.session()._concurrency == Concurrency(workers=3, timeout=1.5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_child_of_a_fork_has_all_workers_and_threads_of_its_own(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=2)
    calls = [model.submit(number(n)) for n in range(3)]  # of which one waits
    gate.wait_for(2)
    child = os.fork()
    if not child:
        signal.alarm(PATIENCE)
        status = 1
        try:
            gate.permits = threading.Semaphore(10)
            own = [model.submit(number(n)) for n in range(4)]
            if answer(model(number(7))) == 7 and [answer(call.result(PATIENCE)) for call in own] == [0, 1, 2, 3]:
                model.close()
                status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0
    gate.permits.release(3)
    assert [answer(call.result(PATIENCE)) for call in calls] == [0, 1, 2]
