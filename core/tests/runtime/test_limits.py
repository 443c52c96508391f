"""The limits of a program: instructions, time, memory; and ending it from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegraph.errors import Cancelled, InvalidArgument, LimitExceeded, MemoryAllocationFailed
from delegraph.program.schema import TensorShapeDynamism
from delegraph.runtime import BackendInterface, Limits, Runtime, load

ONE = np.float32([1])


def endless(build: Any) -> Any:
    """`while True: x = x * x`."""
    x, out = build.tensor(1), build.tensor(1)
    build.call("aten::mul.out", x, x, out)
    build.jump_false(build.bool(False), 0)
    return build.plan([x], [out])


def sleeping(kernels: Any, seconds: float) -> list[float]:
    """A kernel `test::sleep.out`; when it was called."""
    calls: list[float] = []

    @kernels.kernel("test::sleep.out")
    def sleep(context: Any, x: Any, out: Any) -> None:
        calls.append(time.monotonic())
        time.sleep(seconds)
        out[...] = x

    return calls


def straight(build: Any, steps: int) -> Any:
    x = value = build.tensor(1)
    for _ in range(steps):
        value = build.call("test::sleep.out", value, build.tensor(1))
    return build.plan([x], [value])


def at_once(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


# ---- instructions and time ---------------------------------------------------------------------------


def test_instructions_of_a_loop(build: Any, load_method: Any) -> None:
    method = load_method(build, endless(build), limits=Limits(instructions=1000))
    with pytest.raises(LimitExceeded, match=r"instruction 1, .*1,000 instructions were run.*Limits\(instructions=…\)"):
        method.execute([ONE])


def test_a_loop_comes_back_while_it_has_run_no_more_than_its_limit(build: Any, load_method: Any) -> None:
    """Three instructions five times: twelve before it comes back for the last time."""
    index, done = build.int(0), build.bool(False)
    build.prim("executorch_prim::add.Scalar", index, build.int(1), index)
    build.prim("executorch_prim::eq.Scalar", index, build.int(5), done)
    build.jump_false(done, 0)
    plan = build.plan([], [index])
    assert load_method(build, plan, limits=Limits(instructions=12)).execute([]) == [5]
    with pytest.raises(LimitExceeded, match="11 instructions were run"):
        load_method(build, plan, limits=Limits(instructions=11)).execute([])


def test_straight_programs_are_not_counted(build: Any, load_method: Any) -> None:
    x = value = build.tensor(1)
    for _ in range(50):
        value = build.call("aten::add.out", value, x, build.int(1), build.tensor(1))
    method = load_method(build, build.plan([x], [value]), limits=Limits(instructions=10))
    assert method.execute([ONE])[0] == 51


def test_the_time_of_a_loop_is_looked_at_without_a_thread(
    build: Any, load_method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10**9, 1000))
    for module in ("executor", "stop"):
        monkeypatch.setattr(f"delegraph.runtime.execution.{module}.monotonic", lambda: next(clock))
    threads = threading.active_count()
    with pytest.raises(LimitExceeded, match="it has run for 3600 seconds, its limit"):
        load_method(build, endless(build), limits=Limits(instructions=1000)).execute([ONE])
    assert threading.active_count() == threads


def test_time_between_two_instructions(build: Any, kernels: Any, load_method: Any) -> None:
    calls = sleeping(kernels, 0.05)
    method = load_method(build, straight(build, 60), limits=Limits(seconds=0.12))
    with pytest.raises(LimitExceeded, match=r"instruction \d+, test::sleep\.out.*it has run for 0\.12 seconds"):
        method.execute([ONE])
    assert 1 <= len(calls) < 60
    with pytest.raises(LimitExceeded):  # each run has all of it
        method.execute([ONE])


def test_time_of_a_loop_is_watched(build: Any, load_method: Any) -> None:
    method = load_method(build, endless(build), limits=Limits(instructions=None, seconds=0.02))
    with pytest.raises(LimitExceeded, match=r"it has run for 0\.02 seconds"):
        method.execute([ONE])


def test_a_run_within_its_time_leaves_the_next_alone(build: Any, kernels: Any, load_method: Any) -> None:
    sleeping(kernels, 0)
    method = load_method(build, straight(build, 3), limits=Limits(seconds=0.2))
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        assert method.execute([ONE])[0] == 1


def test_several_runs_are_watched_at_a_time(build: Any, kernels: Any, load_method: Any) -> None:
    sleeping(kernels, 0.01)
    plan = straight(build, 100)
    program = Runtime(kernels=[kernels]).load_program(build.program(plan))
    ended: list[tuple[float, float]] = []

    def run(seconds: float) -> None:
        method, start = program.load_method("forward", limits=Limits(seconds=seconds)), time.monotonic()
        with pytest.raises(LimitExceeded):
            method.execute([ONE])
        ended.append((seconds, time.monotonic() - start))

    threads = [at_once(lambda seconds=seconds: run(seconds)) for seconds in (0.3, 0.1, 0.2)]
    for thread in threads:
        thread.join()
    assert sorted(seconds for seconds, _ in ended) == [0.1, 0.2, 0.3]
    assert all(took >= seconds for seconds, took in ended)


# ---- cancelling --------------------------------------------------------------------------------------


def cancelled(method: Any) -> None:
    """Execute the method, and cancel it as soon as it runs."""

    def cancel() -> None:
        while not method.cancel():
            time.sleep(0.001)

    thread = at_once(cancel)
    with pytest.raises(Cancelled, match="it was cancelled"):
        method.execute([ONE])
    thread.join()


def test_cancelling_a_loop(build: Any, load_method: Any) -> None:
    method = load_method(build, endless(build), limits=Limits(instructions=None))
    for _ in range(50):
        cancelled(method)


def test_a_cancelled_method_runs_again(build: Any, kernels: Any, load_method: Any) -> None:
    calls = sleeping(kernels, 0.02)
    method = load_method(build, straight(build, 5))
    cancelled(method)
    assert len(calls) < 5
    assert method.execute([ONE])[0] == 1


def test_nothing_runs_that_could_be_cancelled(build: Any, load_method: Any) -> None:
    method = load_method(build, endless(build), limits=Limits(instructions=100))
    assert method.cancel() is False
    with pytest.raises(LimitExceeded):
        method.execute([ONE])
    assert method.cancel() is False


class Engine(BackendInterface):
    """Runs until it is told to stop."""

    def __init__(self) -> None:
        self.told: list[bool] = []

    def init(self, context: Any, processed: Any, compile_specs: Any) -> threading.Event:
        return threading.Event()

    def execute(self, context: Any, handle: threading.Event, args: Any) -> None:
        if handle.wait(30):
            raise RuntimeError("terminated")

    def cancel(self, handle: threading.Event, requested: bool) -> None:
        self.told.append(requested)
        (handle.set if requested else handle.clear)()


def test_engines_are_stopped(build: Any, load_method: Any) -> None:
    x, out = build.tensor(1), build.tensor(1)
    build.delegate("Engine", x, out)
    engine = Engine()
    plan = build.plan([x], [out])
    method = load_method(build, plan, backends={"Engine": engine}, limits=Limits(seconds=0.05))
    with pytest.raises(LimitExceeded, match=r"delegate 0 Engine.*it has run for 0\.05 seconds"):
        method.execute([ONE])
    cancelled(load_method(build, plan, backends={"Engine": engine}))
    assert engine.told == [True, False, True, False]


def test_an_engine_that_breaks_when_it_is_stopped(build: Any, kernels: Any, load_method: Any, capfd: Any) -> None:
    class Broken(Engine):
        def execute(self, context: Any, handle: Any, args: Any) -> None:
            time.sleep(0.1)

        def cancel(self, handle: Any, requested: bool) -> None:
            if requested:
                raise KeyError("broken")

    x, out = build.tensor(1), build.tensor(1)
    build.delegate("Engine", x, out)
    plan = build.plan([x], [out])
    method = load_method(build, plan, backends={"Engine": Broken()}, limits=Limits(seconds=0.02))
    for _ in range(2):  # the watch goes on
        with pytest.raises(LimitExceeded):
            method.execute([ONE])
    assert "a backend could not be stopped: 'broken'" in capfd.readouterr().err


# ---- memory --------------------------------------------------------------------------------------------

GIGABYTE = 2**30


def test_planned_memory(build: Any, load_method: Any) -> None:
    build.tensor(5, GIGABYTE)
    with pytest.raises(LimitExceeded, match=r"method 'forward' asks for 21,474,836,480 bytes of planned memory"):
        load_method(build, build.plan())


def test_planned_memories_are_added_up(build: Any, load_method: Any) -> None:
    plan = replace(build.plan(), non_const_buffer_sizes=(0, 640, 360))
    assert load_method(build, plan, limits=Limits(planned_bytes=1000)).execute([]) == []
    with pytest.raises(LimitExceeded, match="asks for 1,000 bytes of planned memory, and 999 are allowed"):
        load_method(build, plan, limits=Limits(planned_bytes=999))


def test_tensors_without_a_bound_have_what_the_others_leave(build: Any, kernels: Any, load_method: Any) -> None:
    """Forty bytes of eighty."""

    @kernels.kernel("test::ones.out")
    def ones(context: Any, x: Any, out: Any) -> None:
        context.resize(out, x.shape)[...] = 1

    x, bounded, grown = build.tensor(20, dynamic=True), build.tensor(10, planned=False), build.tensor(1, planned=False)
    build.values[grown] = replace(build.values[grown], shape_dynamism=TensorShapeDynamism.DYNAMIC_UNBOUND)
    build.call("test::ones.out", x, grown)
    method = load_method(build, build.plan([x], [grown, bounded]), limits=Limits(unplanned_bytes=80))
    assert len(method.execute([np.ones(10, np.float32)])[0]) == 10
    with pytest.raises(LimitExceeded, match="need 44 bytes, and 40 are allowed them"):
        method.execute([np.ones(11, np.float32)])


def test_tensors_without_planned_memory(build: Any, load_method: Any) -> None:
    for _ in range(3):
        build.tensor(2 * GIGABYTE // 4, planned=False)
    with pytest.raises(
        LimitExceeded, match=r"6,442,450,944 bytes of tensors without planned memory, and 4,294,967,296"
    ):
        load_method(build, build.plan())
    method = load_method(build, build.plan(), limits=Limits(unplanned_bytes=None))
    assert method.execute([]) == []


def test_memory_that_the_system_does_not_give(build: Any, load_method: Any) -> None:
    out = build.tensor(2**31 - 1, 2**29, planned=False)
    generous = Limits(planned_bytes=None, unplanned_bytes=None, output_bytes=None)
    with pytest.raises(MemoryAllocationFailed, match="the system did not give"):
        load_method(build, build.plan(), limits=generous)
    method = load_method(build, build.plan([], [out]), limits=generous)
    with pytest.raises(MemoryAllocationFailed, match="the system did not give"):
        method.execute([])


def test_outputs_over_one_memory(build: Any, load_method: Any) -> None:
    outputs = [build.tensor(100, at=0) for _ in range(20)]
    build.used = 400
    with pytest.raises(LimitExceeded, match=r"8,000 bytes of outputs, and 1,000 are allowed.*output_bytes=8000"):
        load_method(build, build.plan([], outputs), limits=Limits(output_bytes=1000))


class Keeper(Engine):
    """Keeps a buffer of zeros, which takes no memory before it is its own."""

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        return context.mutable_buffer("cache", np.broadcast_to(np.float32(0), (1000, 1000)))

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        handle[0, 0] += 1
        args[-1][0] = handle.sum()


def test_what_delegates_keep(build: Any, load_method: Any) -> None:
    x, out = build.tensor(1), build.tensor(1)
    build.delegate("Engine", x, out)
    plan = build.plan([x], [out])
    with pytest.raises(
        LimitExceeded, match=r"4,000,000 bytes of buffers that its delegates keep, and 1,000 .*state_bytes=4000000"
    ):
        load_method(build, plan, backends={"Engine": Keeper()}, limits=Limits(state_bytes=1000))
    method = load_method(build, plan, backends={"Engine": Keeper()}, limits=Limits(state_bytes=4_000_000))
    assert [method.execute([ONE])[0].item() for _ in range(2)] == [1, 2]


def test_an_output_that_is_listed_often_is_copied_once(build: Any, load_method: Any) -> None:
    x = build.tensor(100)
    method = load_method(build, build.plan([x], [x] * 8), limits=Limits(output_bytes=400))
    outputs = method.execute([np.ones(100, np.float32)])
    assert len({id(output) for output in outputs}) == 1
    assert len(outputs) == 8


def test_lists_of_tensors_are_copied(build: Any, load_method: Any) -> None:
    x = build.tensor(2)
    method = load_method(build, build.plan([x], [build.tensors(x)]))
    (first,) = method.execute([np.float32([1, 2])])
    method.execute([np.float32([3, 4])])
    assert first[0].tolist() == [1, 2]


# ---- setting them --------------------------------------------------------------------------------------


def test_limits_of_everything_that_is_loaded(build: Any, kernels: Any) -> None:
    program = build.program(endless(build))
    limits = Limits(instructions=100)
    with pytest.raises(LimitExceeded):
        load(program, kernels=[kernels], limits=limits)(ONE)
    runtime = Runtime(kernels=[kernels], limits=limits)
    with pytest.raises(LimitExceeded):
        runtime.load_program(program).load_method("forward").execute([ONE])


@pytest.mark.parametrize(
    "wrong", [{"seconds": -1}, {"seconds": float("nan")}, {"instructions": 1.5}, {"seconds": True}]
)
def test_limits_are_numbers(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="a limit is a number from 0 on, or None"):
        Limits(**wrong)
