"""The life of sessions, in any order: set, run, reset, copy, restore, save, load, fork, close, in several threads."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from delegraph.errors import DelegateInvalidHandle, InvalidArgument, InvalidState
from delegraph.plugins.registry import PluginRegistry, use_registry
from delegraph.program.contract import CONTRACT_KEY, write_contracts
from delegraph.program.schema import AllocationDetails, ExecutionPlan, ExtraTensorInfo, NamedData, Program, ScalarType
from delegraph.program.schema import Tensor as TensorRecord
from delegraph.program.shared_state import SHARED_STATE_KEY, SharedBuffers, write_shared_buffers
from delegraph.runtime import Module, Runtime

from .conftest import PlanBuilder, numpy_kernels

INITIAL = np.float32([7, 8])
numbers = st.integers(-50, 50).map(float)


def plan(name: str, writes: bool) -> ExecutionPlan:
    """`name(x)` gives state + x, and keeps it if it `writes`."""
    build = PlanBuilder()
    place, named = AllocationDetails(2, 0), ExtraTensorInfo(fully_qualified_name="state")
    state = build.value(TensorRecord(ScalarType.FLOAT, (2,), (0,), 1, place, extra_tensor_info=named))
    x = build.tensor(2)
    total = build.call("aten::add.out", state, x, build.int(1), build.tensor(2))
    if writes:
        build.prim("aten::copy_", state, total, build.bool(False), state)
    made = build.plan([x], [total], name=name)
    return replace(made, non_const_buffer_sizes=(0, build.used, 64))


def program(shared: bool) -> Program:
    named = {CONTRACT_KEY: NamedData(write_contracts({}))}  # else it could be ExecuTorch's, which shares memory 2
    if shared:
        named[SHARED_STATE_KEY] = NamedData(write_shared_buffers(SharedBuffers(2, frozenset({"put", "get"}))))
    plans = plan("get", writes=False), plan("put", writes=True)
    return Program(plans, (b"",), (b"", INITIAL.tobytes()), named_data=named)


class Session:
    """What a Module should be: a value for each method, or one for both."""

    def __init__(self, module: Module, values: dict[str, float]) -> None:
        self.module = module
        self.values = values  # what was added to the initial state, by the state's name

    def key(self, method: str) -> str:
        return "state" if "state" in self.values else f"{method}/state"

    def run(self, method: str, number: float) -> None:
        (out,) = self.module[method](np.full(2, number, np.float32))
        expected = self.values[self.key(method)] + number
        np.testing.assert_array_equal(out, INITIAL + expected)
        if method == "put":
            self.values[self.key(method)] = expected


class Life(RuleBasedStateMachine):
    sessions = Bundle("sessions")
    copies = Bundle("copies")

    @initialize(target=sessions, shared=st.booleans())
    def load(self, shared: bool) -> Any:
        self.registry = use_registry(PluginRegistry())
        self.registry.__enter__()
        self.pool = ThreadPoolExecutor(2)
        self.folder = tempfile.TemporaryDirectory()
        names = ["state"] if shared else ["get/state", "put/state"]
        self.initial = dict.fromkeys(names, 0.0)
        self.all: list[Session] = []
        loaded = Runtime(kernels=[numpy_kernels()]).load_program(program(shared))
        return self.begun(Module(loaded, "get"), self.initial)

    def begun(self, module: Module, values: dict[str, float]) -> Session:
        self.all.append(Session(module, dict(values)))
        return self.all[-1]

    @rule(session=sessions, method=st.sampled_from(["put", "get"]), number=numbers, elsewhere=st.booleans())
    def run(self, session: Session, method: str, number: float, elsewhere: bool) -> None:
        if elsewhere:
            self.pool.submit(session.run, method, number).result()
        else:
            session.run(method, number)

    @rule(one=sessions, other=sessions, number=numbers)
    def run_two_at_a_time(self, one: Session, other: Session, number: float) -> None:
        if one is other:
            return
        for running in [self.pool.submit(session.run, "put", number) for session in (one, other)]:
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

    @rule(session=sessions, other=sessions)
    def save_and_load(self, session: Session, other: Session) -> None:
        path = Path(self.folder.name) / "state.ptd"
        session.module.state.save(path)
        other.module.state.load(path)
        other.values = dict(session.values)

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
            held = {name: float(value[0] - INITIAL[0]) for name, value in session.module.state.items()}
            assert held == session.values

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
