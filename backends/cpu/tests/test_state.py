"""Buffers that a delegate changes live in it: in place, under their names, shared with whoever has them too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import delegraph
from delegraph import ExecutorchBackendConfig, to_edge_transform_and_lower
from delegraph.errors import DelegateInvalidCompatibility, InvalidArgument
from delegraph.interfaces import BackendInitContext
from delegraph_cpu.aot.partitioner import cpu_partitioner
from delegraph_cpu.blob import Blob, StateInfo, pack, unpack
from delegraph_cpu.runtime.backend import CpuBackend
from delegraph_cpu.runtime.calls import OrtHandle

SHARED = ExecutorchBackendConfig(share_mutable_buffers=True)
LENGTH = torch.export.Dim("length", min=2, max=16)


class Cache(nn.Module):
    """Rows are put where `position` says; what is returned depends on all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 2, 16, 8))

    def forward(self, rows: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(2, position, rows)
        return torch.softmax(rows @ self.keys.transpose(2, 3), -1) @ self.keys


def rows(count: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(count).normal(size=(1, 2, count, 8)).astype(np.float32))


def methods() -> dict[str, torch.export.ExportedProgram]:
    return {
        "prefill": torch.export.export(Cache(), (rows(5), torch.arange(5)), dynamic_shapes=({2: LENGTH}, {0: LENGTH})),
        "decode": torch.export.export(Cache(), (rows(1), torch.arange(1))),
    }


@pytest.fixture(scope="module", params=["delegates", "a delegate and kernels", "kernels and a delegate"])
def session(request: pytest.FixtureRequest) -> Any:
    on = {"delegates": ("prefill", "decode"), "a delegate and kernels": ("prefill",)}.get(request.param, ("decode",))
    edge = to_edge_transform_and_lower(
        methods(), partitioner={m: [cpu_partitioner()] if m in on else [] for m in ("prefill", "decode")}
    )
    return delegraph.load(edge.to_executorch(SHARED).buffer, method="decode")


STEPS = (("one", rows(1), torch.arange(1)), ("two", rows(2), torch.arange(2)))
"""Methods: name, rows, their places."""


def handles(session: Any) -> dict[str, OrtHandle]:
    """The delegates of the methods, by method."""
    return {name: one.handle for name in session.methods for one in session[name].method._loaded.delegates.all}


def test_methods_work_on_one_cache_wherever_they_run(session: Any) -> None:
    session.state.reset()
    eager = Cache()
    for name, at, count in (("prefill", 0, 5), ("decode", 5, 1), ("decode", 6, 1), ("prefill", 3, 4), ("decode", 7, 1)):
        new, position = rows(count), torch.arange(at, at + count)
        wanted = eager(new, position).numpy()
        np.testing.assert_allclose(session[name](new.numpy(), position.numpy()), wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(session.state["keys"], eager.keys.numpy())


def test_the_step_runs_in_the_session_of_the_prompt(session: Any) -> None:
    assert len({id(handle.opened) for handle in handles(session).values()}) == 1, "their weights are packed once"


def test_the_cache_is_changed_where_it_lies(session: Any) -> None:
    for handle in handles(session).values():
        [state] = handle.states
        assert state.scratch is None
        assert np.shares_memory(state.memory, session.state["keys"])
        assert state.value.data_ptr() == session.state["keys"].ctypes.data == state.new_value.data_ptr()


def test_forks_and_sessions_have_caches_of_their_own(session: Any) -> None:
    session.state.reset()
    session["decode"](rows(1).numpy(), np.array([2]))
    fork, other = session.fork(), session.session()
    fork["decode"](rows(1).numpy(), np.array([3]))
    np.testing.assert_array_equal(fork.state["keys"][:, :, 2:4], np.repeat(rows(1).numpy(), 2, axis=2))
    assert not session.state["keys"][:, :, 3].any()
    assert not other.state["keys"].any()


def test_sessions_share_what_was_compiled(session: Any) -> None:
    for name, handle in handles(session).items():
        for other in (session.fork(), session.session()):
            other[name]
            twin = handles(other)[name]
            assert twin.session is handle.session
            assert twin.options is not handle.options  # by which one of them is cancelled


def test_a_place_beyond_the_cache_is_an_error_and_changes_nothing(session: Any) -> None:
    session.state.reset()
    for position in (16, 10**12):
        with pytest.raises(InvalidArgument):
            session["decode"](rows(1).numpy(), np.array([position]))
        assert not session.state["keys"].any()


# ---- other states -------------------------------------------------------------------------------------------------


class Counters(nn.Module):
    """One that is read twice, one that begins with another value, one that is only written."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(4, 8))
        self.register_buffer("sum", torch.full((8,), 7.0))
        self.register_buffer("last", torch.zeros(8))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        before = self.table * 1
        self.table.index_copy_(0, at, x[None])
        self.sum.add_(x)
        self.last.copy_(x * 2)
        return before.sum(0) + self.table.sum(0) + self.sum


@pytest.fixture(scope="module")
def counters() -> Any:
    args = (torch.arange(8.0), torch.tensor([1]))
    return delegraph.load(bytes(delegraph.lower(Counters(), args, backends=["cpu"])))


def test_what_cannot_be_changed_in_place_is_copied(counters: Any) -> None:
    eager = Counters()
    for at in (1, 2, 1):
        x, place = torch.arange(8.0) + at, torch.tensor([at])
        np.testing.assert_allclose(counters(x.numpy(), place.numpy()), eager(x, place).numpy())
    for name, buffer in eager.named_buffers():
        np.testing.assert_array_equal(counters.state[name], buffer.numpy())
    [handle] = handles(counters).values()
    assert {state.name: state.scratch is None for state in handle.states} == {"b_table": False, "b_sum": False}


def test_methods_share_the_room_for_a_new_value() -> None:
    """A cache of halves, whose new value is made from float32; another load has room of its own."""
    programs = {name: torch.export.export(Cache().bfloat16(), (x.bfloat16(), p)) for name, x, p in STEPS}
    program = to_edge_transform_and_lower(programs, partitioner=[cpu_partitioner()]).to_executorch(SHARED).buffer
    loads = [delegraph.load(program, method="two") for _ in range(2)]
    rooms = [{id(handle.states[0].scratch) for handle in handles(load).values()} for load in loads]
    assert [len(room) for room in rooms] == [1, 1]
    assert rooms[0] != rooms[1]
    assert all(handle.states[0].scratch is not None for load in loads for handle in handles(load).values())


def test_reset_gives_back_the_first_value(counters: Any) -> None:
    counters(np.ones(8, np.float32), np.array([0]))
    counters.state.reset()
    assert (counters.state["sum"] == 7).all()
    assert not counters.state["table"].any()


def test_zeros_take_no_room_in_the_file() -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.zeros(1024, 64))

        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            self.table.index_copy_(0, at, x)
            return self.table.sum(0)

    file = bytes(delegraph.lower(Large(), (torch.ones(1, 64), torch.tensor([3])), backends=["cpu"]))
    assert len(file) < 1024 * 64
    model = delegraph.load(file)
    assert (model(np.ones((1, 64), np.float32), np.array([9])) == 1).all()


# ---- blobs --------------------------------------------------------------------------------------------------------


STATE = StateInfo("cache", "cache_in", "new:0", "float32", (4,), in_place=True)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ((replace(STATE, shape=(2**40, 2**40)),), "no array has the shape"),
        ((replace(STATE, shape=(0, 2**62, 2**62)),), "no array has the shape"),
        ((replace(STATE, shape=(1,) * 100),), "no array has the shape"),
        ((replace(STATE, dtype="bfloat99"),), "has no dtype: 'bfloat99'"),
        ((STATE, STATE), "listed twice"),
        ((STATE, replace(STATE, output="o")), "a state is listed twice"),
        ((replace(STATE, output=STATE.name),), "is an input"),
        ((replace(STATE, initial=0),), "lies at 0, beyond the 0 bytes"),
        ((replace(STATE, in_place=1),), "header cannot be read"),  # type: ignore[arg-type]
    ],
)
def test_states_that_lie_are_told(states: tuple[StateInfo, ...], message: str) -> None:
    packed = pack(Blob("1", (), (), (), b"", states=states), [])
    with pytest.raises(DelegateInvalidCompatibility, match=message):
        unpack(packed)


def test_a_buffer_that_is_not_contiguous_elsewhere_is_refused() -> None:
    elsewhere = BackendInitContext("forward", mutable_buffer=lambda name, initial: np.zeros((8, 16)).T)
    with pytest.raises(DelegateInvalidCompatibility, match="keeps the buffer 'keys', which another method has in a"):
        CpuBackend().init(elsewhere, methods_blob(), [])


def methods_blob() -> bytes:
    edge = to_edge_transform_and_lower({"decode": methods()["decode"]}, partitioner=[cpu_partitioner()])
    return bytes(edge.to_executorch().executorch_program.delegate_data[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_state_of_halves(dtype: torch.dtype) -> None:
    """What is computed in float32 within the delegate is kept as the half that it is."""

    class Halves(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(4, 8, dtype=dtype))
            self.register_buffer("count", torch.full((3,), 0.5, dtype=dtype))

        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            self.rows[at] = x
            self.count.add_(1)
            return self.rows * 2 + self.count.sum()

    eager, new, position = Halves(), rows(1)[0, 0].to(dtype), torch.tensor([2])
    lowered = delegraph.lower(Halves(), (new, position), backends=["cpu"])
    assert not lowered.report.methods["forward"].leftovers
    module = delegraph.load(bytes(lowered))
    for _ in range(3):
        eager(new, position)
        wanted = (eager.rows.float() * 2 + eager.count.float().sum()).to(dtype)  # rounded once, where it leaves
        torch.testing.assert_close(torch.as_tensor(module(new, position)), wanted)
        for name, held in module.state.items():
            np.testing.assert_array_equal(held.astype(np.float32), eager.get_buffer(name).float().numpy())
