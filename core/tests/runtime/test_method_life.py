"""The life of sessions, in any order: set, run, borrow, write into the caller's arrays, break off, reset, copy,
restore, save, load, fork, close, in several threads.

The outputs are right or there is an error of ours; inputs stay as they are; after an error all goes on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from delegraph.errors import Cancelled, DelegateInvalidHandle, InvalidArgument, InvalidState, MemoryAllocationFailed
from delegraph.plugins.registry import PluginRegistry, use_registry
from delegraph.program.contract import CONTRACT_KEY, write_contracts
from delegraph.program.schema import AllocationDetails, ExecutionPlan, ExtraTensorInfo, NamedData, Program, ScalarType
from delegraph.program.schema import Tensor as TensorRecord
from delegraph.program.shared_state import SHARED_STATE_KEY, SharedBuffers, write_shared_buffers
from delegraph.runtime import Borrowing, KernelLibrary, Module, Runtime

from .conftest import PlanBuilder, numpy_kernels

INITIAL = np.float32([7, 8])
numbers = st.integers(-50, 50).map(float)
methods = st.sampled_from(["put", "get"])
BREAKS: dict[type[BaseException], BaseException | None] = {
    KeyboardInterrupt: KeyboardInterrupt(),
    MemoryAllocationFailed: MemoryError(),
    Cancelled: None,
}
"""The exceptions that end a run in the middle, and those that a step raises for them."""


def plan(name: str, writes: bool) -> ExecutionPlan:
    """`name(x)` gives state + x, and keeps it if it `writes`."""
    build = PlanBuilder()
    place, named = AllocationDetails(2, 0), ExtraTensorInfo(fully_qualified_name="state")
    state = build.value(TensorRecord(ScalarType.FLOAT, (2,), (0,), 1, place, extra_tensor_info=named))
    x = build.tensor(2)
    total = build.call("aten::add.out", state, x, build.int(1), build.tensor(2))
    total = build.call("test::step.out", total, build.tensor(2))
    if writes:
        build.prim("aten::copy_", state, total, build.bool(False), state)
    base = build.plan([x], [total], name=name)
    return replace(base, non_const_buffer_sizes=(0, build.used, 64))


def program(shared: bool) -> Program:
    named = {CONTRACT_KEY: NamedData(write_contracts({}))}  # else it could be ExecuTorch's, which shares memory 2
    if shared:
        named[SHARED_STATE_KEY] = NamedData(write_shared_buffers(SharedBuffers(2, frozenset({"put", "get"}))))
    plans = plan("get", writes=False), plan("put", writes=True)
    return Program(plans, (b"",), (b"", INITIAL.tobytes()), named_data=named)


class Session:
    """A model of a Module: a value for each method, or one for both."""

    def __init__(self, module: Module, values: dict[str, float]) -> None:
        self.module = module
        self.borrows = module["get"].method.borrowed_inputs == (0,)
        self.values = values  # what was added to the initial state, by the state's name

    def key(self, method: str) -> str:
        return "state" if "state" in self.values else f"{method}/state"

    def run(self, method: str, number: float, target: Any = None) -> None:
        x = np.full(2, number, np.float32)
        (out,) = self.module[method](x, out=None if target is None else [target])
        assert target is None or out is target
        self.ran(method, number, out)
        assert x.tolist() == [number] * 2

    def set_and_run(self, method: str, number: float, target: Any = None) -> None:
        """The same in steps; where the input is borrowed the run finds what the caller has written meanwhile."""
        loaded, x = self.module[method].method, np.full(2, number, np.float32)
        loaded.set_inputs([x])
        loaded.set_outputs(None if target is None else [target])
        x += 1
        loaded.run()
        self.ran(method, number + self.borrows, loaded.get_outputs()[0])
        loaded.set_outputs(None)
        assert x.tolist() == [number + 1] * 2

    def ran(self, method: str, number: float, out: Any) -> None:
        expected = self.values[self.key(method)] + number
        np.testing.assert_array_equal(out, INITIAL + expected)
        if method == "put":
            self.values[self.key(method)] = expected


class Life(RuleBasedStateMachine):
    sessions = Bundle("sessions")
    copies = Bundle("copies")

    @initialize(target=sessions, shared=st.booleans(), inputs=st.sampled_from(["auto", "borrow", "copy"]))
    def load(self, shared: bool, inputs: Any) -> Any:
        self.registry = use_registry(PluginRegistry())
        self.registry.__enter__()
        self.pool = ThreadPoolExecutor(2)
        self.folder = tempfile.TemporaryDirectory()
        names = ["state"] if shared else ["get/state", "put/state"]
        self.initial = dict.fromkeys(names, 0.0)
        self.all: list[Session] = []
        self.instead: list[Callable[[], object]] = []
        loaded = Runtime(kernels=[self.kernels()]).load_program(program(shared))
        return self.begun(Module(loaded, "get", borrowing=Borrowing(inputs)), self.initial)

    def kernels(self) -> KernelLibrary:
        """With one that does what `instead` says, once."""
        library = numpy_kernels()

        @library.kernel("test::step.out")
        def step(context: Any, x: Any, out: Any) -> None:
            if self.instead:
                self.instead.pop()()
            out[...] = x

        return library

    def begun(self, module: Module, values: dict[str, float]) -> Session:
        self.all.append(Session(module, dict(values)))
        return self.all[-1]

    @rule(
        session=sessions,
        method=methods,
        number=numbers,
        elsewhere=st.booleans(),
        into=st.booleans(),
        stepwise=st.booleans(),
    )
    def run(self, session: Session, method: str, number: float, elsewhere: bool, into: bool, stepwise: bool) -> None:
        target = np.zeros(2, np.float32) if into else None
        run = session.set_and_run if stepwise else session.run
        if elsewhere:
            self.pool.submit(run, method, number, target).result()
        else:
            run(method, number, target)

    @rule(session=sessions, method=methods, number=numbers, how=st.sampled_from(list(BREAKS)))
    def break_off(self, session: Session, method: str, number: float, how: type[BaseException]) -> None:
        """A run that ends in the middle changes nothing that lasts."""

        def end() -> None:
            if how is Cancelled:
                assert self.pool.submit(session.module[method].method.cancel).result()
            elif (error := BREAKS[how]) is not None:
                raise error

        self.instead.append(end)
        x = np.full(2, number, np.float32)
        with pytest.raises(how):
            session.module[method](x)
        assert x.tolist() == [number] * 2
        with pytest.raises(InvalidState):
            session.module[method].method.get_outputs()

    @rule(session=sessions, method=methods)
    def write_into_what_does_not_fit(self, session: Session, method: str) -> None:
        x = np.zeros(2, np.float32)
        for out in (x, np.zeros(3, np.float32), session.module.state[session.key(method)]):
            with pytest.raises(InvalidArgument):
                session.module[method](x, out=[out])

    @rule(first=sessions, second=sessions, number=numbers)
    def run_two_at_a_time(self, first: Session, second: Session, number: float) -> None:
        if first is second:
            return
        for running in [self.pool.submit(session.run, "put", number) for session in (first, second)]:
            running.result()

    @rule(session=sessions, number=numbers)
    def set(self, session: Session, number: float) -> None:
        for name in session.values:
            session.module.state[name] = INITIAL + np.float32(number)
            session.values[name] = number

    @rule(session=sessions)
    def set_to_what_does_not_fit(self, session: Session) -> None:
        name = next(iter(session.values))
        with pytest.raises(InvalidArgument):
            session.module.state[name] = np.zeros(3, np.float32)
        with pytest.raises(InvalidArgument):
            session.module["put"](np.zeros(3, np.float32))
        with pytest.raises(InvalidState):
            session.module["put"].method.run()  # those inputs were not set

    @rule(session=sessions)
    def reset(self, session: Session) -> None:
        session.module.state.reset()
        session.values = dict(self.initial)

    @rule(target=copies, session=sessions)
    def copy(self, session: Session) -> Any:
        return session.module.state.copy(), dict(session.values)

    @rule(session=sessions, copied=copies)
    def restore(self, session: Session, copied: Any) -> None:
        session.module.state.restore(copied[0])
        session.values = dict(copied[1])

    @rule(session=sessions, receiver=sessions)
    def save_and_load(self, session: Session, receiver: Session) -> None:
        path = Path(self.folder.name) / "state.ptd"
        session.module.state.save(path)
        receiver.module.state.load(path)
        receiver.values = dict(session.values)

    @rule(target=sessions, session=sessions, fresh=st.booleans())
    def fork(self, session: Session, fresh: bool) -> Any:
        if len(self.all) > 6:
            return multiple()
        if fresh:
            return self.begun(session.module.session(), self.initial)
        return self.begun(session.module.fork(), session.values)

    @rule(session=sessions)
    def close(self, session: Session) -> None:
        """A closed method is over; its state, and other sessions, are not."""
        twin = session.module.fork()
        twin["put"].method.close()
        with pytest.raises(DelegateInvalidHandle):
            twin["put"](INITIAL)

    @invariant()
    def every_state_is_what_it_should_be(self) -> None:
        for session in getattr(self, "all", ()):
            contents = {name: float(value[0] - INITIAL[0]) for name, value in session.module.state.items()}
            assert contents == session.values

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            self.pool.shutdown()
            self.folder.cleanup()
            self.registry.__exit__(None, None, None)


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=25,
    stateful_step_count=20,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
