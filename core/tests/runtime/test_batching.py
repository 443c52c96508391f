"""Calls that wait become one run where their first dim is dynamic; each gets its own rows, and its own faults."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, wait
from typing import Any

import numpy as np
import pytest
from core.tests.runtime.test_concurrency import PATIENCE, Gate, callers, in_line

from delegraph.errors import Busy, Cancelled, InvalidArgument, InvalidState
from delegraph.interfaces import UnusableValue
from delegraph.program import serialize_program
from delegraph.program.contract import CONTRACT_KEY, DimRange, MethodContract, write_contracts
from delegraph.program.schema import NamedData
from delegraph.runtime import Concurrency, Module, load

BATCH = DimRange("batch", 0, 16)


class Doubles(Gate):
    """out = 2 x, row by row; a row of which an element is below 0 is refused."""

    def execute(self, context: Any, handle: int, args: Any) -> None:
        x, out = args
        self.order.append(len(x))
        self.inside.release()
        assert self.permits.acquire(timeout=PATIENCE)
        if (x < 0).any():
            raise UnusableValue("a row is below 0")
        np.multiply(x, 2, out=context.resize(out, x.shape))


@pytest.fixture
def gate() -> Any:
    gate = Doubles()
    yield gate
    gate.permits.release(100)


def program_of(build: Any, contract: MethodContract | None, **options: Any) -> bytes:
    x, out = (build.tensor(16, 2, dynamic=True) for _ in range(2))
    build.delegate("Doubles", x, out)
    named = {} if contract is None else {CONTRACT_KEY: NamedData(write_contracts({"forward": contract}))}
    return serialize_program(build.program(build.plan([x], [out], **options), named_data=named))


def batched(build: Any, gate: Gate, **options: Any) -> Module:
    contract = MethodContract(("x",), ((BATCH, DimRange("width", 0, 2)),), ((BATCH, DimRange("width", 0, 2)),))
    concurrency = Concurrency(**{"workers": 1, "max_batch": 8, **options})
    return load(program_of(build, contract), backends={"Doubles": gate}, concurrency=concurrency)


def rows(*numbers: float) -> Any:
    return np.float32([[number, number] for number in numbers])


def check(result: Any, *numbers: float) -> None:
    np.testing.assert_array_equal(result[0], 2 * rows(*numbers))


def test_calls_that_wait_are_one_run(build: Any, gate: Gate) -> None:
    model = batched(build, gate)
    with callers(4) as threads:
        calls = [threads.submit(model, rows(1))]
        gate.wait_for()
        calls += [threads.submit(model, rows(2)), threads.submit(model, rows(3, 4))]
        calls += [model.submit(rows(5, 6, 7))]
        in_line(model, 1)
        waits(model, 3)
        gate.permits.release(2)
        for call, numbers in zip(calls, ((1,), (2,), (3, 4), (5, 6, 7)), strict=True):
            check(call.result(PATIENCE), *numbers)
    assert gate.order == [1, 6]


def waits(model: Module, count: int) -> None:
    """Wait until `count` calls wait in batches."""
    batches: Any = model["forward"]._submitted
    for _ in range(PATIENCE * 1000):
        if batches.waiting == count:
            return
        threading.Event().wait(0.001)
    pytest.fail(f"{batches.waiting} calls wait, not {count}")


def test_coroutines_are_batched_and_their_results_are_their_own(build: Any, gate: Gate) -> None:
    model = batched(build, gate)

    async def all_at_once() -> list[Any]:
        first = asyncio.ensure_future(model.acall(rows(0)))
        await asyncio.to_thread(gate.wait_for)
        others = [asyncio.ensure_future(model.acall(rows(n))) for n in range(1, 11)]
        await asyncio.sleep(0)
        gate.permits.release(3)
        return await asyncio.gather(first, *others)

    results = asyncio.run(all_at_once())
    assert gate.order == [1, 8, 2]
    for n, result in enumerate(results):
        check(result, n)
        result[0][:] = -1  # changes nobody else's
    assert all(result[0].base is None for result in results)


def test_a_batch_waits_for_calls_although_a_worker_is_free(build: Any, gate: Gate) -> None:
    model = batched(build, gate, max_batch=3, max_delay=PATIENCE)
    gate.permits.release(2)
    calls = [model.submit(rows(n)) for n in range(3)]  # the third fills it
    for n, call in enumerate(calls):
        check(call.result(PATIENCE), n)
    assert gate.order == [3]


def test_a_batch_that_waits_for_calls_holds_nobody_up(build: Any, gate: Gate) -> None:
    model = batched(build, gate, max_batch=3, max_delay=PATIENCE)
    gate.permits.release(2)
    calls = [model.submit(rows(1)), model.submit(rows(2, 3, 4))]  # as many rows as a batch has: alone
    check(calls[0].result(PATIENCE), 1)
    check(calls[1].result(PATIENCE), 2, 3, 4)
    assert gate.order == [1, 3]


def test_a_batch_does_not_wait_for_ever(build: Any, gate: Gate) -> None:
    model = batched(build, gate, max_delay=0.01)
    gate.permits.release(1)
    check(model(rows(1)), 1)


def test_calls_that_are_not_alike_are_other_batches(build: Any, gate: Gate) -> None:
    model = batched(build, gate)
    first = model.submit(rows(1))
    gate.wait_for()
    narrow = [model.submit(rows(n)[:, :1]) for n in (1, 2)]
    wide = [model.submit(rows(n)) for n in (3, 4)]
    gate.permits.release(3)
    wait([first, *narrow, *wide], PATIENCE)
    assert gate.order == [1, 2, 2]
    assert [call.result()[0].tolist() for call in narrow] == [[[2.0]], [[4.0]]]


def test_a_fault_is_its_own_calls_alone(build: Any, gate: Gate) -> None:
    model = batched(build, gate)
    first = model.submit(rows(1))
    gate.wait_for()
    calls = [model.submit(rows(2)), model.submit(rows(-1)), model.submit(rows(3))]
    gate.permits.release(5)
    wait([first, *calls], PATIENCE)
    assert gate.order == [1, 3, 1, 1, 1]
    check(calls[0].result(), 2)
    check(calls[2].result(), 3)
    with pytest.raises(InvalidArgument, match="a row is below 0"):
        calls[1].result()


def test_what_does_not_fit_a_batch_runs_alone(build: Any, gate: Gate) -> None:
    model = batched(build, gate)
    gate.permits.release(100)
    check(model(rows(*range(12))), *range(12))
    with pytest.raises(InvalidArgument, match="got shape"):
        model(np.float32(1))
    with pytest.raises(InvalidArgument, match="got shape"):
        model(np.ones((17, 2), np.float32))
    out = np.zeros((1, 2), np.float32)
    assert model(rows(4), out=[out])[0] is out
    check([out], 4)


def test_torch_tensors_in_a_batch(build: Any, gate: Gate) -> None:
    torch = pytest.importorskip("torch")
    model = batched(build, gate)
    first = model.submit(rows(1))
    gate.wait_for()
    mixed = [model.submit(torch.from_numpy(rows(2))), model.submit(rows(3))]
    gate.permits.release(2)
    (tensor,), array = (call.result(PATIENCE) for call in mixed)
    assert isinstance(tensor, torch.Tensor) and tensor.tolist() == [[4, 4]]
    check(array, 3)
    first.result(PATIENCE)
    assert gate.order == [1, 2]


def test_bounds_of_waiting_are_those_of_calls(build: Any, gate: Gate) -> None:
    model = batched(build, gate, max_waiting=8, timeout=0.05)
    first = model.submit(rows(0))
    gate.wait_for()
    calls = [model.submit(rows(n)) for n in range(1, 8)]
    with pytest.raises(Busy, match=r"all 1 workers were busy for 0\.05 seconds"):
        model(rows(8))
    with pytest.raises(Busy, match="8 calls wait for its 1 workers, and no more may"):
        model(rows(9))
    gate.permits.release(1)
    check(first.result(PATIENCE), 0)
    for call in calls:  # none of which has been run in its time
        with pytest.raises(Busy, match="were busy for"):
            call.result(PATIENCE)
    assert gate.order == [1]


def test_a_call_leaves_its_batch(build: Any, gate: Gate) -> None:
    model = batched(build, gate)
    first = model.submit(rows(0))
    gate.wait_for()
    gone, stays = model.submit(rows(1)), model.submit(rows(2))
    assert gone.cancel()
    gate.permits.release(1)
    gate.wait_for()
    assert stays.cancel()  # it is alone now, and is running
    with pytest.raises(Cancelled):
        stays.result(PATIENCE)
    with pytest.raises(CancelledError):
        gone.result()
    check(first.result(PATIENCE), 0)
    assert gate.order == [1, 1]


def test_close_runs_what_waits(build: Any, gate: Gate) -> None:
    model = batched(build, gate)
    calls = [model.submit(rows(0))]
    gate.wait_for()
    calls += [model.submit(rows(1)), model.submit(rows(2))]
    gate.permits.release(2)
    model.close()
    assert gate.order == [1, 2] and all(call.done() for call in calls)
    for call in (model, model.submit):
        with pytest.raises(InvalidState, match="was closed"):
            call(rows(3))


def test_an_interrupt_takes_its_call_out(build: Any, gate: Gate, ctrl_c: Callable[[], None]) -> None:
    model = batched(build, gate)
    first = model.submit(rows(0))
    gate.wait_for()
    with callers(1) as threads:
        threads.submit(lambda: (waits(model, 1), ctrl_c()))
        with pytest.raises(KeyboardInterrupt):
            model(rows(1))
    gate.permits.release(1)
    first.result(PATIENCE)
    model.close()
    assert gate.order == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_child_of_a_fork_has_no_batch_of_its_parents(build: Any, gate: Gate) -> None:
    model = batched(build, gate)
    calls = [model.submit(rows(0))]
    gate.wait_for()
    calls.append(model.submit(rows(1)))
    child = os.fork()
    if not child:
        signal.alarm(PATIENCE)
        status = 1
        try:
            gate.permits = threading.Semaphore(10)
            check(model(rows(5)), 5)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0
    gate.permits.release(2)
    check(calls[1].result(PATIENCE), 1)


@pytest.mark.parametrize(
    ("contract", "told"),
    [
        (None, "its inputs and outputs have no dynamic first dim in common; lower it with dynamic_shapes"),
        (MethodContract(("x",), ((16, 2),), ((16, 2),)), "have no dynamic first dim in common"),
        (MethodContract(("x",), ((BATCH, 2),), ((DimRange(None, 0, 16), 2),)), "no dynamic first dim in common"),
        (MethodContract(("x",), ((BATCH, 2),), ((),)), "no dynamic first dim in common"),
        (
            MethodContract(("x",), ((DimRange("b", 0, 4), 2),), ((DimRange("b", 0, 4), 2),)),
            "its first dim is b in 0..4",
        ),
    ],
)
def test_what_cannot_be_batched(build: Any, gate: Gate, contract: MethodContract | None, told: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"Concurrency\(max_batch=8\): method 'forward': .*{told}"):
        load(
            program_of(build, contract),
            backends={"Doubles": gate},
            concurrency=Concurrency(max_batch=8),
        )


def test_state_cannot_be_batched(build: Any, kernels: Any) -> None:
    x, count = build.tensor(16, dynamic=True), build.tensor(16, name="count")
    plan = build.plan([x], [build.call("aten::add.out", count, x, build.int(1), count)])
    with pytest.raises(InvalidArgument, match="it keeps state, so that calls of it cannot be one run"):
        load(build.program(plan), kernels=[kernels], concurrency=Concurrency(max_batch=2))


def test_a_batch_of_calls_that_may_not_wait() -> None:
    with pytest.raises(InvalidArgument, match=r"max_batch=8, max_waiting=2\): a batch is made of calls that wait"):
        Concurrency(max_batch=8, max_waiting=2)
