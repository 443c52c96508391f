"""Threads that spin while cores are free, and sleep while other processes use them."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from backends.cpu.tests.harness import Context, Lowered, edge
from torch import nn
from torch.export import Dim

from delegraph.interfaces import BackendInitContext
from delegraph.runtime import EventTracer
from delegraph_cpu.runtime import adaptive, open_session
from delegraph_cpu.runtime.adaptive import AdaptiveSession
from delegraph_cpu.runtime.other_processes import LONG, PERIOD, SOON, CoresOfOthers, Load, load_now
from delegraph_cpu.runtime.profiling import ProfiledSession

X = torch.randn(4, 8)


class Machine:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.time = self.busy = self.own = 100.0
        self.running = 1
        self.looks = 0
        self.others = CoresOfOthers(lambda: self.time, self.look, lambda: self.own)

    def look(self) -> Load:
        self.looks += 1
        return Load(self.busy, self.running)

    def passes(self, seconds: float, *, others: float, own: float) -> float:
        self.time += seconds
        self.busy += seconds * (others + own)
        self.own += seconds * own
        return self.others()


def test_cores_of_others_are_those_that_this_process_does_not_use() -> None:
    machine = Machine()
    assert machine.others() == 0
    assert machine.passes(2 * PERIOD, others=0.75, own=1.5) == pytest.approx(0.75)
    assert machine.passes(2 * PERIOD, others=0, own=2) == pytest.approx(0)


def test_who_computed_while_nothing_was_called_may_be_gone() -> None:
    """A pipeline of processes takes turns: the cores that the others used are free when it is this one's."""
    machine = Machine()
    assert machine.passes(10 * LONG, others=1, own=0) == 0
    machine.running = 2  # this process and another one
    assert machine.passes(10 * LONG, others=0, own=0) == 1
    assert machine.passes(PERIOD, others=0.25, own=1) == pytest.approx(0.25)


def test_who_ran_at_the_first_call_is_soon_looked_at_again() -> None:
    """The caller itself, mostly: it would cost all calls of a fifth of a second their second core."""
    machine = Machine()
    machine.running = 2
    assert machine.passes(10 * LONG, others=0, own=0) == 1
    assert machine.passes(SOON / 2, others=0, own=2) == 1
    assert machine.passes(SOON, others=0, own=2) == pytest.approx(0)
    looks = machine.looks
    machine.passes(PERIOD / 2, others=0, own=2)
    assert machine.looks == looks


def test_a_look_is_taken_once_in_a_while() -> None:
    machine = Machine()
    for _ in range(100):
        machine.passes(PERIOD / 50, others=1, own=1)
    assert 2 <= machine.looks <= 4
    assert machine.others() == pytest.approx(1)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux tells what all processes use")
def test_what_the_system_tells_grows_by_what_this_process_uses() -> None:
    """Others have at most what this process leaves of the cores; how busy they are is not known."""

    def now() -> np.ndarray[Any, Any]:
        return np.array([load_now().busy_seconds, time.process_time(), time.monotonic()])

    before, end = now(), time.process_time() + 1.5 * PERIOD
    while time.process_time() < end:
        pass
    busy, own, passed = now() - before
    ticks = 0.02 * len(os.sched_getaffinity(0))
    assert own - ticks <= busy <= passed * len(os.sched_getaffinity(0)) + ticks
    assert CoresOfOthers()() >= 0


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many of two cores others use: the one number in it."""
    used = [0.0]
    monkeypatch.setattr(adaptive, "_cores", lambda: 2)
    monkeypatch.setattr(open_session, "cores_of_others", lambda: lambda: used[0])
    return used


def work() -> Any:
    """A layer of which is not known how much there is to compute."""
    return edge(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), (X,), ({0: Dim("n", min=2, max=32)},))


def test_calls_go_where_threads_wait_as_the_machine_allows(cores: list[float]) -> None:
    lowered = Lowered(work(), {"num_threads": 2})
    sessions = lowered.handle.session
    assert isinstance(sessions, AdaptiveSession)
    spinning = sessions.session()
    cores[0] = 0.9
    sleeping = sessions.session()
    assert sleeping is not spinning
    assert _setting(spinning, "spin_duration_us") == "500"
    assert _setting(sleeping, "allow_spinning") == "0"
    cores[0] = 0.1
    assert sessions.session() is spinning
    cores[0] = 0.9
    assert sessions.session() is sleeping


def test_a_profile_is_of_a_session_like_that_which_would_run(cores: list[float]) -> None:
    lowered = Lowered(work(), {"num_threads": 2})
    for used, option, there in ((0.0, "spin_duration_us", "500"), (0.9, "allow_spinning", "0")):
        cores[0] = used
        context = BackendInitContext("forward", {}, {"num_threads": 2, "profiling": True}, EventTracer())
        handle = lowered.backend.init(context, lowered.processed, [])
        assert isinstance(handle.session, ProfiledSession)
        assert _setting(handle.session.session, option) == there


def test_a_bound_call_says_the_same_in_both(cores: list[float]) -> None:
    lowered = Lowered(work(), {"num_threads": 2})
    source, out = X.numpy().copy(), np.zeros((4, 8), np.float32)
    call = lowered.backend.bind(Context(), lowered.handle, [source, out])
    assert call is not None
    for step, used in enumerate((0.0, 0.9, 0.9, 0.0)):
        cores[0], source[...] = used, (step - 1) * X.numpy()
        wanted = lowered(source)[0][:4]
        out[...] = 7
        call()
        np.testing.assert_array_equal(out, wanted)


def test_what_cannot_be_bound_in_place_is_not(cores: list[float]) -> None:
    lowered = Lowered(work(), {"num_threads": 2})
    out = np.zeros((8, 4), np.float32).T
    assert lowered.backend.bind(Context(), lowered.handle, [X.numpy(), out]) is None


@pytest.mark.parametrize("options", [{"num_threads": 1}, {"num_threads": 2, "spin_duration_us": 100}])
def test_nothing_adapts_without_threads_that_wait_or_where_a_duration_is_given(
    cores: list[float], options: dict[str, int]
) -> None:
    assert not isinstance(Lowered(work(), options).handle.session, AdaptiveSession)


def test_threads_go_on_spinning_where_the_process_has_come_to_share_a_pool(
    cores: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime then makes no session with threads of its own any more; the call is to be answered all the same."""
    lowered = Lowered(work(), {"num_threads": 2})
    sessions = lowered.handle.session
    assert isinstance(sessions, AdaptiveSession)
    spinning = sessions.session()
    monkeypatch.setattr("delegraph_cpu.sessions._pool_size", 2)
    cores[0] = 0.9
    assert sessions.session() is spinning
    assert lowered(X)[0].shape == (4, 8)


def test_of_threads_that_ask_at_once_one_looks_and_none_waits() -> None:
    """If both did, both would add what has passed to the time of the last look, and the next be an hour away."""
    machine, begun, go_on = Machine(), threading.Event(), threading.Event()
    go_on.set()

    def slow_look() -> Load:
        begun.set()
        assert go_on.wait(60)
        return machine.look()

    others = CoresOfOthers(lambda: machine.time, slow_look, lambda: machine.own)
    begun.clear()
    go_on.clear()
    machine.time += 3600
    thread = threading.Thread(target=others)
    thread.start()
    assert begun.wait(60)
    looks = machine.looks
    assert others() == 0
    assert machine.looks == looks
    go_on.set()
    thread.join()
    machine.time += PERIOD
    machine.busy += PERIOD
    assert others() == pytest.approx(1)


def test_large_weights_are_not_packed_twice(cores: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_session, "TWICE_BYTES", 8 * 8 * 4 - 1)
    lowered = Lowered(edge(nn.Linear(32, 32), (torch.randn(4, 32),), ({0: Dim("n", min=2, max=32)},)))
    assert not isinstance(lowered.handle.session, AdaptiveSession)
    assert _setting(lowered.handle.session.session(), "spin_duration_us") == "20"


def test_little_work_has_one_thread_wherever_it_runs(cores: list[float]) -> None:
    lowered = Lowered(edge(nn.Linear(8, 8), (X,)), {"num_threads": 2})
    assert not isinstance(lowered.handle.session, AdaptiveSession)


def test_of_little_work_with_many_weights_awake_threads_do_their_share(cores: list[float]) -> None:
    lowered = Lowered(edge(nn.Linear(512, 512), (torch.randn(1, 512),)), {"num_threads": 2})
    sessions = lowered.handle.session
    assert isinstance(sessions, AdaptiveSession)
    assert sessions.session().get_session_options().intra_op_num_threads == 2
    cores[0] = 0.9
    assert sessions.session().get_session_options().intra_op_num_threads == 1


def _setting(session: Any, name: str) -> str:
    return str(session.get_session_options().get_session_config_entry(f"session.intra_op.{name}"))
