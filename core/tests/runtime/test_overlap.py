"""Delegates that are submitted: beside each other and beside kernels, waited for in their place, always ended."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from threading import Barrier, Event, Thread
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest

from delegraph.errors import Cancelled, Internal, InvalidState, LimitExceeded
from delegraph.interfaces import CallQueue
from delegraph.program.overlap import WINDOW, Footprint, overlapped
from delegraph.program.schema import DelegateCall
from delegraph.program.steps import Step, StepKind
from delegraph.runtime import BackendInterface, EventTracer, Limits

TOGETHER = 30.0
"""Seconds after which two that should be at work together are taken not to be."""


class Engines(BackendInterface):
    """A device on which so many delegates run at a time. Each adds the number in its blob."""

    def __init__(self, engines: int = 2) -> None:
        self.queue = CallQueue("engines", engines)
        self.log: list[str] = []
        self.work: Callable[[Any], None] = lambda number: None
        self.stopped: dict[str, bool] = {}
        self.kept = 0

    def init(self, context: Any, processed: Any, compile_specs: Any) -> str:
        return bytes(processed).decode()

    def submits(self, handle: str) -> bool:
        return True

    def num_outputs(self, handle: str) -> int:
        return 1

    def execute(self, context: Any, handle: str, args: Any) -> None:
        self.log.append(f"execute {handle}")
        self._add(handle, args, context.resize(args[-1], args[0].shape))

    def submit(self, context: Any, handle: str, args: Any) -> Any:
        self.log.append(f"submit {handle}")
        return self.queue.submit(partial(self._add, handle, args, context.resize(args[-1], args[0].shape)))

    def _add(self, handle: str, args: Any, out: Any) -> None:
        self.work(handle)
        np.copyto(out, args[0] + float(handle))

    def cancel(self, handle: str, requested: bool) -> None:
        self.stopped[handle] = requested

    def destroy(self, handle: str) -> None:
        self.log.append(f"destroy {handle}")


@pytest.fixture(autouse=True)
def arithmetic(kernels: Any) -> None:
    """Kernels beside those of the other tests."""

    @kernels.kernel("aten::neg.out")
    def neg(context: Any, x: Any, out: Any) -> None:
        np.negative(x, context.resize(out, x.shape))

    @kernels.kernel("aten::plus.out")
    def plus(context: Any, x: Any, y: Any, out: Any) -> None:
        np.add(x, y, context.resize(out, x.shape))


def branches(build: Any, *numbers: int, dynamic: bool = False, shared: bool = False) -> Any:
    """sum(-(x + number)): a delegate and a kernel behind it in each branch, all sums at the end. `shared`: what the
    delegates give lies in the same memory."""
    x = build.tensor(2, dynamic=dynamic)
    ends, at = [], None
    for number in numbers:
        middle = build.tensor(2, dynamic=dynamic, at=at)
        at = build.values[middle].allocation_info.memory_offset if shared else None
        build.delegate("Engines", x, middle, blob=str(number).encode())
        ends.append(build.call("aten::neg.out", middle, build.tensor(2, dynamic=dynamic)))
    total = ends[0]
    for end in ends[1:]:
        total = build.call("aten::plus.out", total, end, build.tensor(2, dynamic=dynamic))
    return build.plan([x], [total])


def run(method: Any, *x: float) -> list[float]:
    result: list[float] = method.execute([np.float32(x)])[0].tolist()
    return result


def told(method: Any) -> list[str]:
    """The schedule, in words: `submit 0`, `wait 0`, `run 1`."""
    return [f"{step.kind.value} {step.instruction}" for step in method.schedule]


# ---- the order -------------------------------------------------------------------------------------


def test_independent_delegates_are_at_work_together(build: Any, load_method: Any) -> None:
    device, together = Engines(), Barrier(2, timeout=TOGETHER)
    device.work = lambda number: together.wait() and None
    method = load_method(build, branches(build, 1, 10), backends={"Engines": device})
    assert run(method, 1, 2) == [-13, -15]
    assert run(method, 3, 4) == [-17, -19]
    assert told(method) == ["submit 0", "submit 2", "wait 0", "run 1", "wait 2", "run 3", "run 4"]


def test_a_kernel_runs_while_a_delegate_does(build: Any, load_method: Any, kernels: Any) -> None:
    device, computed = Engines(), Event()
    device.work = lambda number: computed.wait(TOGETHER) and None
    kernels.kernel("aten::mark.out")(lambda context, x, out: np.copyto(out, x) or computed.set())
    x, a, b = build.tensor(2), build.tensor(2), build.tensor(2)
    build.delegate("Engines", x, a, blob=b"1")
    build.call("aten::mark.out", x, b)
    method = load_method(build, build.plan([x], [a, b]), backends={"Engines": device})
    assert [out.tolist() for out in method.execute([np.float32([1, 2])])] == [[2, 3], [1, 2]]


def test_a_chain_is_executed_as_ever(build: Any, load_method: Any) -> None:
    device = Engines()
    x, a, b = build.tensor(2), build.tensor(2), build.tensor(2)
    build.delegate("Engines", x, a, blob=b"1")
    build.delegate("Engines", a, b, blob=b"2")
    method = load_method(build, build.plan([x], [b]), backends={"Engines": device})
    assert run(method, 1, 2) == [4, 5]
    assert device.log == ["execute 1", "execute 2"]
    assert told(method) == ["run 0", "run 1"]


def test_shared_memory_keeps_its_order(build: Any, load_method: Any) -> None:
    """A file that was planned for one delegate after the other is run so."""
    device = Engines()
    method = load_method(build, branches(build, 1, 10, shared=True), backends={"Engines": device})
    assert run(method, 1, 2) == [-13, -15]
    assert device.log == ["execute 1", "execute 10"]


def test_delegates_that_share_a_state_keep_their_order(build: Any, load_method: Any) -> None:
    class Counts(Engines):
        def init(self, context: Any, processed: Any, compile_specs: Any) -> str:
            self.state = context.mutable_buffer("count", np.zeros(1, np.float32))
            return super().init(context, processed, compile_specs)

    device = Counts()
    method = load_method(build, branches(build, 1, 10), backends={"Engines": device})
    assert run(method, 1, 2) == [-13, -15]
    assert [line for line in device.log if line.startswith("execute")] == ["execute 1", "execute 10"]


def test_one_delegate_called_twice_runs_once_at_a_time(build: Any, load_method: Any) -> None:
    device = Engines()
    x, a, b = build.tensor(2), build.tensor(2), build.tensor(2)
    build.delegate("Engines", x, a, blob=b"1")
    build.instructions.append(DelegateCall(0, (x, b)))
    method = load_method(build, build.plan([x], [a, b]), backends={"Engines": device})
    method.execute([np.float32([1, 2])])
    assert device.log == ["execute 1", "execute 1"]


@pytest.mark.parametrize(
    ("op", "reordered"), [("aten::tanh.out", True), ("aten::randn_like.out", False), ("acme::count.out", False)]
)
def test_kernels_that_are_no_functions_keep_their_order(
    build: Any, load_method: Any, kernels: Any, op: str, reordered: bool
) -> None:
    """The second kernel, which waits for nothing, is run first only where nobody can tell."""
    kernels.kernel(op)(lambda context, x, out: np.copyto(out, x))
    x, a, b, c = (build.tensor(2) for _ in range(4))
    build.delegate("Engines", x, a, blob=b"1")
    build.call(op, a, b)
    build.call(op, x, c)
    method = load_method(build, build.plan([x], [b, c]), backends={"Engines": Engines()})
    assert (told(method)[1] == "run 2") == reordered


def test_tools_that_know_of_executions_alone_see_each(build: Any, load_method: Any, nothing_installed: Any) -> None:
    from delegraph.plugins.tools import hookimpl

    class Tool:
        seen = 0

        @hookimpl(wrapper=True)
        def execute(self) -> Any:
            Tool.seen += 1
            return (yield)

    nothing_installed.register("plugins", "tool", Tool())
    device = Engines()
    method = load_method(build, branches(build, 1, 10), backends={"Engines": device})
    assert run(method, 1, 2) == [-13, -15]
    assert Tool.seen == 2


def test_checked_programs_run_one_call_at_a_time(build: Any, load_method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGRAPH_CHECK", "1")
    device = Engines()
    method = load_method(build, branches(build, 1, 10), backends={"Engines": device})
    assert run(method, 1, 2) == [-13, -15]
    assert not any(line.startswith("submit") for line in device.log)


def test_shapes_that_change(build: Any, load_method: Any) -> None:
    """A dynamic method, then bound to shapes, and back."""
    device, together = Engines(), Barrier(2, timeout=TOGETHER)
    device.work = lambda number: together.wait() and None
    method = load_method(build, branches(build, 1, 10, dynamic=True), backends={"Engines": device})
    for _ in range(4):
        assert run(method, 1, 2) == [-13, -15]
    assert run(method, 1) == [-13]
    assert run(method, 3, 4) == [-17, -19]


def test_in_a_loop_each_round_ends(build: Any, load_method: Any) -> None:
    """x + 1 + 10 three times, by two delegates a round that only the round's sum needs."""
    device, together = Engines(), Barrier(2, timeout=TOGETHER)
    device.work = lambda number: together.wait() and None
    x, a, b, total = (build.tensor(2) for _ in range(4))
    count, one, three, done = build.int(0), build.int(1), build.int(3), build.bool(False)
    build.delegate("Engines", x, a, blob=b"1")
    build.delegate("Engines", x, b, blob=b"10")
    build.call("aten::plus.out", a, b, total)
    build.call("aten::neg.out", total, x)
    build.prim("executorch_prim::add.Scalar", count, one, count)
    build.prim("executorch_prim::ge.Scalar", count, three, done)
    build.jump_false(done, 0)
    method = load_method(build, build.plan([x], [total]), backends={"Engines": device})
    expected = np.float32([1, 2])
    for _ in range(3):
        total_now = 2 * expected + 11
        expected = -total_now
    assert run(method, 1, 2) == total_now.tolist()
    assert told(method)[:4] == ["submit 0", "submit 1", "run 4", "run 5"]


# ---- what goes wrong in flight ---------------------------------------------------------------------


def test_an_error_in_flight_names_its_delegate(build: Any, load_method: Any) -> None:
    device = Engines()
    method = load_method(build, branches(build, 1, 10), backends={"Engines": device})
    device.work = lambda number: {}["no such weight"] if number == "10" else None
    with pytest.raises(Internal, match=r"instruction 2, delegate 1 Engines\(.*no such weight"):
        run(method, 1, 2)
    device.work = lambda number: None
    assert run(method, 1, 2) == [-13, -15]


def test_an_error_ends_the_others_first(build: Any, load_method: Any) -> None:
    """When the caller hears of it, no delegate writes any more: the other one was told to stop, and was waited for."""
    device, ended = Engines(), []

    def work(number: str) -> None:
        if number == "1":
            raise ValueError("no")
        while not device.stopped.get(number):
            sleep(0.001)
        ended.append(number)

    device.work = work
    method = load_method(build, branches(build, 1, 10), backends={"Engines": device})
    with pytest.raises(Internal, match="delegate 0"):
        run(method, 1, 2)
    assert ended == ["10"]
    assert device.stopped["10"] is False  # it may run again


def test_cancelled_in_flight(build: Any, load_method: Any) -> None:
    device, begun = Engines(), Event()

    def work(number: str) -> None:
        begun.set()
        until = monotonic() + TOGETHER
        while not device.stopped.get(number) and monotonic() < until:
            sleep(0.001)
        raise Cancelled("stopped")

    device.work = work
    method = load_method(build, branches(build, 1, 10), backends={"Engines": device})
    errors: list[BaseException] = []

    def execute() -> None:
        try:
            run(method, 1, 2)
        except Cancelled as error:
            errors.append(error)

    thread = Thread(target=execute)
    thread.start()
    assert begun.wait(TOGETHER)
    assert method.cancel()
    thread.join(TOGETHER)
    assert len(errors) == 1
    device.work = lambda number: None
    assert run(method, 1, 2) == [-13, -15]


def test_closed_in_flight(build: Any, load_method: Any) -> None:
    """Another thread may not close a method that runs; destroyed is a delegate only behind its run."""
    device, begun, go_on = Engines(), Event(), Event()
    device.work = lambda number: begun.set() or (go_on.wait(TOGETHER) and None)
    method = load_method(build, branches(build, 1, 10), backends={"Engines": device})
    thread = Thread(target=run, args=(method, 1, 2))
    thread.start()
    assert begun.wait(TOGETHER)
    with pytest.raises(InvalidState, match="executing in another thread"):
        method.close()
    go_on.set()
    thread.join(TOGETHER)
    method.close()
    assert device.log[-2:] == ["destroy 10", "destroy 1"]


class Never:
    """The event of a device that has hung."""

    def __init__(self) -> None:
        self.over = False

    def wait(self, seconds: float | None = None) -> bool:
        if not self.over:
            sleep(0 if seconds is None else min(seconds, 0.01))
        return self.over


class Hangs(Engines):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[Never] = []

    def submit(self, context: Any, handle: str, args: Any) -> Any:
        self.events.append(Never())
        return self.events[-1]


def test_an_event_that_never_comes(build: Any, load_method: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """The limit ends the run. The method refuses the next, and keeps what the device may still write."""
    monkeypatch.setattr("delegraph.runtime.execution.in_flight.GRACE", 0.05)
    device = Hangs()
    method = load_method(build, branches(build, 1, 10), backends={"Engines": device}, limits=Limits(seconds=0.1))
    with pytest.raises(LimitExceeded, match=r"instruction 0, delegate 0 Engines.*0\.1 seconds"):
        run(method, 1, 2)
    with pytest.raises(InvalidState, match=r"delegate 0 Engines of an earlier run.* is still at work"):
        run(method, 1, 2)
    for event in device.events:
        event.over = True
    with pytest.raises(LimitExceeded):  # it runs again, and hangs again
        run(method, 1, 2)
    method.close()
    del method
    gc.collect()
    assert not any(line.startswith("destroy") for line in device.log)


def test_an_event_that_is_none(build: Any, load_method: Any) -> None:
    class Forgets(Engines):
        def submit(self, context: Any, handle: str, args: Any) -> Any:
            return True

    method = load_method(build, branches(build, 1, 10), backends={"Engines": Forgets()})
    with pytest.raises(Internal, match="its submit returned True; it has to return an event"):
        run(method, 1, 2)


def test_a_shape_that_comes_too_late(build: Any, load_method: Any) -> None:
    """The run after it was submitted tells the shape, while others are bound to the shape of the run before."""

    class Late(Engines):
        def submit(self, context: Any, handle: str, args: Any) -> Any:
            return self.queue.submit(partial(self.execute, context, handle, args))

        def execute(self, context: Any, handle: str, args: Any) -> None:
            self._add(handle, [args[0][: self.kept]], context.resize(args[1], (self.kept,)))

    device = Late()
    device.kept = 2
    method = load_method(build, branches(build, 1, 10, dynamic=True), backends={"Engines": device})
    for _ in range(3):
        assert run(method, 1, 2) == [-13, -15]
    device.kept = 1
    for _ in range(3):
        assert run(method, 1, 2) == [-13]


# ---- the trace -------------------------------------------------------------------------------------


def test_spans_in_the_trace_overlap(build: Any, load_method: Any) -> None:
    device, together = Engines(), Barrier(2, timeout=TOGETHER)
    device.work = lambda number: together.wait() and None
    tracer = EventTracer()
    method = load_method(build, branches(build, 1, 10), backends={"Engines": device}, event_tracer=tracer)
    run(method, 1, 2)
    events = tracer.blocks[-1].profile_events
    first, second = (next(e for e in events if e.name == f"delegate {n} Engines") for n in (0, 1))
    assert first.start < second.start < first.end <= second.end
    waits = [event for event in events if event.delegate_debug_id == "wait"]
    assert [event.instruction for event in waits] == [0, 2]


# ---- the order, by itself --------------------------------------------------------------------------


def touching(reads: str, writes: str) -> Footprint:
    return Footprint(tuple((name, 0, 1) for name in reads), tuple((name, 0, 1) for name in writes))


def test_a_long_chain_is_ordered_in_linear_time() -> None:
    chain = [Footprint(((i, 0, 1),), ((i + 1, 0, 1),)) for i in range(20 * WINDOW)]
    assert overlapped(chain, range(len(chain))) == [Step(StepKind.RUN, i) for i in range(len(chain))]


def test_random_orders_keep_what_depends() -> None:
    """Any order gives each instruction what it had in the file's: whoever wrote last what it reads, and no delegate at
    work while somebody else writes what it touches."""
    random = np.random.default_rng(0)
    for _ in range(200):
        names = [*"abcdef"]
        file = [
            touching("".join(random.choice(names, 2)), str(random.choice(names))) for _ in range(random.integers(1, 25))
        ]
        submitted = {i for i in range(len(file)) if random.random() < 0.5}
        at_work: set[int] = set()
        done: list[int] = []
        for step in overlapped(file, submitted):
            if step.kind is StepKind.WAIT:
                at_work.remove(step.instruction)
                continue
            assert not any(file[step.instruction].conflicts(file[other]) for other in at_work)
            done.append(step.instruction)
            if step.kind is StepKind.SUBMIT:
                assert step.instruction in submitted
                at_work.add(step.instruction)
        assert not at_work
        assert sorted(done) == list(range(len(file)))
        position = {instruction: i for i, instruction in enumerate(done)}
        for i, first in enumerate(file):
            for j in range(i + 1, len(file)):
                assert not first.conflicts(file[j]) or position[i] < position[j]
