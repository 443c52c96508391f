"""Mutable buffers: shared by methods, per session, read, set, reset, saved, restored and forked, whoever holds them."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import ExportedProgram, export

import delegraph
from delegraph import ExecutorchBackendConfig, Module, Runtime
from delegraph.aot import MemoryPlanningPass, tag_mutated_buffer
from delegraph.errors import (
    InvalidArgument,
    InvalidExternalData,
    InvalidProgram,
    InvalidState,
    InvalidType,
    LoweringError,
    NotFound,
    NotSupported,
)
from delegraph.interfaces import (
    BackendDetails,
    BackendInitContext,
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    PreprocessResult,
)
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.files.deserialize import deserialize_program
from delegraph.program.files.serialize import serialize_program
from delegraph.program.flat_tensor import ExternalData, FlatTensor, write_flat_tensor
from delegraph.program.schema import NamedData, Program
from delegraph.program.shared_state import SHARED_STATE_KEY
from delegraph.runtime import BackendInterface, HierarchicalAllocator, MemoryManager, SharedState

X = (torch.ones(4),)
ONES = np.ones(4, np.float32)
SHARED = ExecutorchBackendConfig(share_mutable_buffers=True)


class Store(nn.Module):
    """`put` adds to what is kept, `get` reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.full((4,), 7.0))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))


class Put(Store):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sum.add_(x)
        self.count.add_(1)
        return self.sum * 2


class Get(Store):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.sum * x, self.count + 0


METHODS: dict[str, nn.Module] = {"put": Put(), "get": Get()}


def lowered(backends: Sequence[Any] = (), config: ExecutorchBackendConfig = SHARED, **options: Any) -> bytes:
    return bytes(delegraph.lower(METHODS, dict.fromkeys(METHODS, X), backends=backends, config=config, **options))


@pytest.fixture(scope="module", params=["portable", "cpu"])
def shared(request: pytest.FixtureRequest) -> bytes:
    return lowered([] if request.param == "portable" else [request.param])


@pytest.fixture(scope="module")
def on_portable() -> bytes:
    return lowered()


@pytest.fixture(scope="module")
def separate() -> bytes:
    return lowered(config=ExecutorchBackendConfig())


def load(program: bytes, method: str = "put") -> Module:
    return delegraph.load(program, method=method)


def summed(session: Module) -> float:
    return float(session["get"](ONES)[0][0])


# ---- one memory ------------------------------------------------------------------------------------


def test_methods_read_what_others_wrote(shared: bytes) -> None:
    session = load(shared)
    assert summed(session) == 7
    for _ in range(3):
        session.put(100 * ONES)
    total, count = session.get(ONES)
    np.testing.assert_array_equal(total, 307 * ONES)
    assert count == 3


def test_so_do_they_through_executorchs_names(shared: bytes) -> None:
    program = Runtime.get().load_program(shared)
    program.load_method("put").execute([100 * ONES])
    assert program.load_method("get").execute([ONES])[0][0] == 107
    assert Runtime.get().load_program(shared).load_method("get").execute([ONES])[0][0] == 7


def test_executorchs_own_planning_pass_shares_as_well() -> None:
    manager = delegraph.to_edge({name: export(model, X) for name, model in METHODS.items()}).to_executorch(
        ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True))
    )
    session = load(manager.buffer)
    session.put(ONES)
    assert summed(session) == 8


def test_buffers_without_names_are_shared_and_known_by_their_place() -> None:
    session = load(lowered(config=ExecutorchBackendConfig(share_mutable_buffers=True, emit_mutable_buffer_names=False)))
    session.put(ONES)
    assert summed(session) == 8
    assert list(session.state) == ["2+0", "2+16"]


def without_marks(program: bytes) -> bytes:
    """As ExecuTorch writes it, with nothing of what this project adds."""
    record = deserialize_program(program)
    return serialize_program(Program(record.execution_plan, record.constants, record.mutable_data))


def test_a_file_of_executorch_shares_its_memory_2(on_portable: bytes) -> None:
    session = load(without_marks(on_portable))
    session.put(ONES)
    assert summed(session) == 8
    session.state.reset()
    assert summed(session) == 7


def test_methods_that_do_not_share_keep_their_own(separate: bytes) -> None:
    session = load(separate)
    session.put(100 * ONES)
    assert summed(session) == 7
    program = Runtime.get().load_program(without_marks(separate))
    program.load_method("put").execute([ONES])
    assert program.load_method("get").execute([ONES])[0][0] == 7


def test_memory_of_the_callers_own_is_shared_by_the_caller_alone(on_portable: bytes) -> None:
    program = Runtime.get().load_program(on_portable)
    sizes = program.plan("put").non_const_buffer_sizes[1:]
    mine = program.load_method("put", memory_manager=MemoryManager(HierarchicalAllocator.of_sizes(sizes)))
    mine.execute([ONES])
    assert program.load_method("get").execute([ONES])[0][0] == 7
    assert mine.state["sum"][0] == 8


def test_a_method_runs_on_the_shared_state_that_it_is_given(on_portable: bytes) -> None:
    program = Runtime.get().load_program(on_portable)
    mine = SharedState(program)
    program.load_method("put", shared_state=mine).execute([ONES])
    assert program.load_method("get", shared_state=mine).execute([ONES])[0][0] == 8
    assert program.load_method("get").execute([ONES])[0][0] == 7
    with pytest.raises(InvalidArgument, match="shared_state is of another program"):
        Runtime.get().load_program(on_portable).load_method("get", shared_state=mine)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"{", "'delegraph.shared_state' is damaged"),
        (b'{"version": 1, "memory_id": "2", "methods": []}', "'delegraph.shared_state' is damaged"),
        (b'{"version": 1, "memory_id": 2, "methods": ["none"]}', "methods or a memory that are not there"),
        (b'{"version": 1, "memory_id": -1, "methods": ["put"]}', "methods or a memory that are not there"),
    ],
)
def test_a_damaged_record_is_refused(on_portable: bytes, record: bytes, message: str) -> None:
    program = deserialize_program(on_portable)
    named = {**program.named_data, SHARED_STATE_KEY: NamedData(record)}
    damaged = Program(program.execution_plan, program.constants, program.mutable_data, named_data=named)
    with pytest.raises(InvalidProgram, match=message):
        Runtime.get().load_program(serialize_program(damaged))


def test_a_program_goes_when_nobody_refers_to_it(on_portable: bytes) -> None:
    program = Runtime.get().load_program(on_portable)
    program.load_method("put").execute([ONES])
    gone = weakref.ref(program)
    gc.disable()
    try:
        del program
        assert gone() is None
    finally:
        gc.enable()


# ---- by name ---------------------------------------------------------------------------------------


def test_state_is_read_and_set_by_name(shared: bytes) -> None:
    session = load(shared)
    session.put(ONES)
    assert dict(session.state).keys() == {"sum", "count"}
    np.testing.assert_array_equal(session.state["sum"], 8 * ONES)
    session.state["sum"] = torch.full((4,), 2.0)
    assert summed(session) == 2
    session.state["sum"][:] = 3
    assert summed(session) == 3
    assert repr(session.state) == "State(count: int64[1], sum: float32[4])"
    assert session["get"].method.state["sum"] is session["put"].method.state["sum"]


def test_what_does_not_fit_is_refused_and_changes_nothing(on_portable: bytes) -> None:
    session = load(on_portable)
    with pytest.raises(NotFound, match=r"no mutable buffer 'total'; there is count, sum"):
        session.state["total"]
    assert "total" not in session.state
    with pytest.raises(InvalidType, match=r"'sum' is float32\[4\], got float64\[4\]; pass value.astype\('float32'\)"):
        session.state["sum"] = np.ones(4)
    with pytest.raises(InvalidArgument, match=r"'sum' is float32\[4\], got float32\[1\]"):
        session.state["sum"] = np.ones(1, np.float32)
    with pytest.raises(InvalidArgument, match=r"state of another program: count missing, sums unknown"):
        session.state.restore({"sum": ONES, "sums": ONES})
    with pytest.raises(InvalidArgument, match=r"'count' is int64\[1\], got int64\[2\]"):
        session.state.restore({"sum": ONES, "count": np.ones(2, np.int64)})
    assert summed(session) == 7


def test_reset_gives_back_what_the_model_began_with(shared: bytes) -> None:
    session = load(shared)
    session.put(ONES)
    session.state.reset()
    np.testing.assert_array_equal(session.state["sum"], 7 * ONES)
    assert session.state["count"] == 0


def test_copies_are_restored(shared: bytes) -> None:
    session = load(shared)
    before = session.state.copy()
    session.put(ONES)
    session.state.restore(before)
    assert summed(session) == 7
    other = session.session()
    other.put(ONES)
    session.state.restore(other.state)
    assert summed(session) == 8


def test_state_is_saved_and_loaded(shared: bytes, tmp_path: Path) -> None:
    session = load(shared)
    session.put(ONES)
    session.state.save(tmp_path / "talk.ptd")
    new = load(shared)
    new.state.load(tmp_path / "talk.ptd")
    assert summed(new) == 8
    assert new.state["count"] == 1
    new.state.load((tmp_path / "talk.ptd").read_bytes())


def test_a_file_that_is_no_state_of_the_program_is_refused(on_portable: bytes, tmp_path: Path) -> None:
    session = load(on_portable)
    with pytest.raises(InvalidExternalData, match=r"not a \.ptd"):
        session.state.load(b"x" * 100)

    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.total.add_(x) * 1

    delegraph.load(bytes(delegraph.lower(Other(), X))).state.save(tmp_path / "other.ptd")
    with pytest.raises(InvalidArgument, match="state of another program: count and sum missing, total unknown"):
        session.state.load(tmp_path / "other.ptd")


def test_a_blob_in_a_file_of_state_is_refused(on_portable: bytes, tmp_path: Path) -> None:
    write_flat_tensor(FlatTensor({"sum": ExternalData(bytes(16)), "count": ExternalData(bytes(8))}), tmp_path / "b.ptd")
    with pytest.raises(InvalidExternalData, match=r"'sum' is a blob, not a tensor; load what State\.save wrote"):
        load(on_portable).state.load(tmp_path / "b.ptd")


def test_a_model_without_state_says_so() -> None:
    plain = delegraph.load(bytes(delegraph.lower(nn.ReLU(), X)))
    assert dict(plain.state) == {}
    with pytest.raises(NotFound, match="the model changes no buffer, or it was lowered without emit_mutable_buffer"):
        plain.state.reset()


def test_methods_that_do_not_share_have_names_of_their_own() -> None:
    both = {"a": Put(), "b": Put()}
    session = load(bytes(delegraph.lower(both, dict.fromkeys(both, X))), "a")
    session.a(ONES)
    assert {name: value[0] for name, value in session.state.items()} == {
        "a/sum": 8, "a/count": 1, "b/sum": 7, "b/count": 0,
    }  # fmt: skip
    assert session["a"].method.state["sum"][0] == 8
    session.state.reset()
    assert session.state["a/sum"][0] == 7


def test_bfloat16_and_channels_last_are_kept_as_they_are(tmp_path: Path) -> None:
    class Image(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last))
            self.register_buffer("short", torch.full((3,), 1.5, dtype=torch.bfloat16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(x)
            self.short.add_(x[0, 0, 0, 0])
            return self.seen * 1

    session = delegraph.load(bytes(delegraph.lower(Image(), (torch.ones(1, 2, 3, 4),))))
    session(np.ones((1, 2, 3, 4), np.float32))
    session.state.save(tmp_path / "image.ptd")
    expected = session.state.copy()
    np.testing.assert_array_equal(expected["seen"], np.arange(24).reshape(1, 2, 3, 4) + 1)
    session.state.reset()
    np.testing.assert_array_equal(session.state["seen"], np.arange(24).reshape(1, 2, 3, 4))
    session.state.load(tmp_path / "image.ptd")
    for name, value in expected.items():
        np.testing.assert_array_equal(session.state[name], value)
    assert session.state["short"].dtype == "bfloat16"
    assert session.state["short"].astype(float).tolist() == [2.5] * 3


# ---- sessions and forks ----------------------------------------------------------------------------


def test_a_fork_goes_its_own_way(shared: bytes, separate: bytes) -> None:
    for program in (shared, separate):
        check_fork(load(program))


def check_fork(session: Module) -> None:
    session.put(ONES)
    fork = session.fork()
    fork.put(10 * ONES)
    session.put(100 * ONES)
    assert session.put(0 * ONES)[0] == 2 * 108
    assert fork.put(0 * ONES)[0] == 2 * 18
    assert fork.program is session.program
    assert session.session().put(0 * ONES)[0] == 2 * 7


def test_a_fork_has_memory_that_nobody_named() -> None:
    config = ExecutorchBackendConfig(emit_mutable_buffer_names=False)
    session = load(lowered(config=config))
    session.put(ONES)
    assert session.fork().put(ONES)[0] == 2 * 9


def test_threads_have_sessions_over_one_program(shared: bytes) -> None:
    first = load(shared)
    sessions = [first, *(first.session() for _ in range(3))]
    failures: list[BaseException] = []

    def work(session: Module, step: int) -> None:
        try:
            for _ in range(50):
                session.put(step * ONES)
            assert summed(session) == 7 + 50 * step
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(session, i)) for i, session in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_methods_of_one_state_do_not_run_at_a_time(on_portable: bytes) -> None:
    session = load(on_portable)
    get = session["get"]
    refused: list[str] = []

    class Caller:
        """An input that has another thread use the session while it is being set."""

        def __dlpack_device__(self) -> tuple[int, int]:
            return ONES.__dlpack_device__()

        def __dlpack__(self, **options: Any) -> Any:
            for action in (lambda: get(ONES), session.state.reset, session.fork, session.state.copy):
                thread = threading.Thread(target=refusal, args=(action,))
                thread.start()
                thread.join()
            return ONES.__dlpack__(**options)

    def refusal(action: Callable[[], object]) -> None:
        with pytest.raises(InvalidState) as raised:
            action()
        refused.append(str(raised.value))

    session.put(Caller())
    message = (
        "one of the methods get, put, which share their state, is executing in another thread;"
        " give each thread a session of its own: module.session()"
    )
    assert [text.startswith(message) for text in refused] == [True] * 4


# ---- delegates that keep state ---------------------------------------------------------------------


class Everything(Partitioner):
    def __init__(self, backend: str) -> None:
        super().__init__()
        self.backend = backend

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        for node in exported_program.graph.nodes:
            if node.op == "call_function":
                node.meta["delegation_tag"] = "all"
        for node in exported_program.graph.find_nodes(op="placeholder"):
            if node.name in exported_program.graph_signature.inputs_to_buffers:
                node.meta["delegation_tag"] = "all"
        tag_mutated_buffer(exported_program)
        return PartitionResult(exported_program, {"all": DelegationSpec(self.backend, [])})


class Hoarder(BackendDetails):
    """Compiles `Put`: its blob is empty. Its delegates keep their state in memory of their own."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        assert sorted(edge_program.graph_signature.buffers_to_mutate.values()) == ["count", "sum"]
        return PreprocessResult(b"")


class Keeper(Hoarder):
    shares_state = True


class KeeperRuntime(BackendInterface):
    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        initial = np.full(4, 7, np.float32), np.zeros(1, np.int64)
        return [context.mutable_buffer(name, value) for name, value in zip(("sum", "count"), initial, strict=True)]

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        total, count = handle
        total += args[0]
        count += 1
        np.multiply(total, 2, out=args[-1])


def with_keeper(
    partitioner: dict[str, list[Partitioner]], methods: Sequence[str] = ("put", "put2", "get"), **options: Any
) -> bytes:
    plugins = PluginRegistry.discover()
    plugins.register("lowerings", "Keeper", Keeper)
    plugins.register("lowerings", "Hoarder", Hoarder)
    programs = {name: export(METHODS[name.rstrip("2")], X) for name in methods}
    edge = delegraph.to_edge_transform_and_lower(programs, partitioner=partitioner, plugins=plugins)
    return edge.to_executorch(ExecutorchBackendConfig(share_mutable_buffers=True, **options)).buffer


def kept(program: bytes) -> Module:
    return delegraph.load(program, method="put", backends={"Keeper": KeeperRuntime()})


def test_delegates_share_with_each_other_and_with_kernels() -> None:
    program = with_keeper({"put": [Everything("Keeper")]})
    session = kept(program)
    session.put(ONES)
    session.put2(10 * ONES)
    session.put(100 * ONES)
    assert summed(session) == 118
    fork = session.fork()
    fork.put(ONES)
    assert (summed(session), summed(fork)) == (118, 119)
    fork.state.restore(session.state.copy())
    assert summed(fork) == 118
    fork.state.reset()
    assert summed(fork) == 7
    delegates = kept(with_keeper({"put": [Everything("Keeper")], "put2": [Everything("Keeper")]}))
    delegates.put(ONES)
    delegates.put2(ONES)
    assert summed(delegates) == 9


class ForkingRuntime(KeeperRuntime):
    """Its handles, forked ones with a mark of the one that they were made of; those that were destroyed."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.forked: list[Any] = []
        self.destroyed: list[int] = []

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        self.made.append(super().init(context, processed, compile_specs))
        context.runtime_specs.get("speed")
        return self.made[-1]

    def fork(self, context: Any, handle: Any) -> Any:
        self.forked.append(handle)
        return super().init(context, b"", ())

    def destroy(self, handle: Any) -> None:
        self.destroyed.append(id(handle))


def test_a_delegate_of_a_session_is_made_of_one_that_is_there() -> None:
    program, backend = with_keeper({"put": [Everything("Keeper")]}), ForkingRuntime()
    first = delegraph.load(program, method="put", backends={"Keeper": backend})
    first.put(ONES)
    fork, other = first.fork(), first.session()
    fork.put(10 * ONES)
    assert (summed(first), summed(fork), summed(other)) == (8, 18, 7)
    assert len(backend.made) == 1
    assert all(handle is backend.made[0] for handle in backend.forked[:1])
    again = fork.fork()
    again.put(ONES)
    assert (summed(fork), summed(again), len(backend.made)) == (18, 19, 1)
    del fork, other, again
    gc.collect()
    assert len(backend.destroyed) == 3
    first["put"].method.close()
    assert first.session().put(ONES)[0] == 2 * 8
    assert len(backend.made) == 2  # there was none left to fork


def test_a_method_like_another_shares_with_it_if_options_are_the_same() -> None:
    program, backend = with_keeper({"put": [Everything("Keeper")]}), ForkingRuntime()
    loaded = delegraph.load(program, method="put", backends={"Keeper": backend}).program
    fast = {"Keeper": {"speed": 2}}
    first = loaded.load_method("put", backend_options=fast)
    loaded.load_method("put", like=first, backend_options=fast)
    made = len(backend.made)
    assert len(backend.forked) == 1
    loaded.load_method("put", like=first)
    assert (len(backend.forked), len(backend.made)) == (1, made + 1)
    with pytest.raises(InvalidArgument, match="like is another method than 'get' of this program"):
        loaded.load_method("get", like=first)


def test_a_delegate_that_takes_a_buffer_for_another_tensor_is_refused() -> None:
    class Mistaken(KeeperRuntime):
        def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
            return context.mutable_buffer("sum", np.zeros(5, np.float32))

    program = with_keeper({"put": [Everything("Keeper")]})
    with pytest.raises(InvalidProgram, match=r"delegate 0 \(Keeper\): .*'sum' of float32\[5\], which is float32\[4\]"):
        delegraph.load(program, method="put", backends={"Keeper": Mistaken()})


def test_a_context_made_by_hand_gives_each_delegate_its_own() -> None:
    initial = np.ones(2)
    given = BackendInitContext("forward").mutable_buffer("sum", initial)
    given += 1
    np.testing.assert_array_equal(initial, np.ones(2))


def test_a_delegate_alone_with_its_state_is_saved_reset_and_forked(tmp_path: Path) -> None:
    plugins = PluginRegistry.discover()
    plugins.register("lowerings", "Keeper", Keeper)
    program = bytes(delegraph.lower(Put(), X, backends=[Everything("Keeper")], plugins=plugins))
    session = delegraph.load(program, backends={"Keeper": KeeperRuntime()})
    session(ONES)
    session.state.save(tmp_path / "kept.ptd")
    fork = session.fork()
    assert fork(ONES)[0] == 2 * 9
    session.state.reset()
    assert session(ONES)[0] == 2 * 8
    session.state.load(tmp_path / "kept.ptd")
    assert session.state["sum"][0] == 8


class Away:
    """A buffer whose value is on a device after each run."""

    def __init__(self, memory: Any) -> None:
        self.memory, self.value = memory, None

    def copy_to_host(self) -> None:
        if self.value is not None:
            self.memory[...], self.value = self.value, None


class AwayRuntime(KeeperRuntime):
    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        initial = np.full(4, 7, np.float32), np.zeros(1, np.int64)
        return [context.device_buffer(name, value, Away) for name, value in zip(("sum", "count"), initial, strict=True)]

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        for buffer, more in zip(handle, (args[0], 1), strict=True):
            buffer.value = (buffer.memory if buffer.value is None else buffer.value) + more
            assert buffer.memory[0] != buffer.value[0], "a run leaves the host's memory alone"
        np.multiply(handle[0].value, 2, out=args[-1])


def test_a_state_on_a_device_is_read_set_saved_and_forked(tmp_path: Path) -> None:
    plugins = PluginRegistry.discover()
    plugins.register("lowerings", "Keeper", Keeper)
    program = bytes(delegraph.lower(Put(), X, backends=[Everything("Keeper")], plugins=plugins))
    session = delegraph.load(program, backends={"Keeper": AwayRuntime()})
    assert session.state["sum"][0] == 7
    session(ONES)
    session.state.save(tmp_path / "kept.ptd")
    assert (session.state["sum"][0], session["forward"].method.get_attribute("count")[0]) == (8, 1)
    fork = session.fork()
    assert (fork(ONES)[0], fork.state.copy()["sum"][0], session.state["sum"][0]) == (2 * 9, 9, 8)
    session.state["sum"][...] = 20
    assert session(ONES)[0] == 2 * 21
    session.state["sum"] = np.zeros(4, np.float32)
    assert session(ONES)[0] == 2 * 1
    session.state.reset()
    assert session(ONES)[0] == 2 * 8
    session(ONES)
    session.state.load(tmp_path / "kept.ptd")
    assert (session.state["sum"][0], session(ONES)[0]) == (8, 2 * 9)
    fork.state.restore(session.state)
    assert fork.state["sum"][0] == 9


def test_delegates_share_a_state_on_a_device() -> None:
    program = with_keeper({"put": [Everything("Keeper")], "put2": [Everything("Keeper")]}, ("put", "put2"))
    session = delegraph.load(program, method="put", backends={"Keeper": AwayRuntime()})
    session.put(ONES)
    session.put2(ONES)
    assert (session.state["sum"][0], session.state["count"][0]) == (9, 2)
    fork = session.fork()
    fork.put2(ONES)
    assert (fork.state["sum"][0], session.state["sum"][0]) == (10, 9)
    made_by_hand = AwayRuntime().init(BackendInitContext("forward"), b"", ())
    assert made_by_hand[0].memory[0] == 7


def test_a_state_on_a_device_is_not_shared_with_what_reads_the_hosts() -> None:
    class Half(AwayRuntime):
        """The second delegate has its state in the host's memory."""

        def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
            return super().init(context, processed, compile_specs) if context.method_name == "put" else reads(context)

    def reads(context: Any) -> Any:
        return KeeperRuntime().init(context, b"", ())

    told = "Keeper keeps the mutable buffer 'sum' on its device between runs, and a method that shares it reads it else"
    with pytest.raises(NotSupported, match=told):
        delegraph.load(with_keeper({"put": [Everything("Keeper")]}), method="put", backends={"Keeper": AwayRuntime()})
    delegates = with_keeper({"put": [Everything("Keeper")], "put2": [Everything("Keeper")]}, ("put", "put2"))
    session = delegraph.load(delegates, method="put", backends={"Keeper": Half()})
    with pytest.raises(NotSupported, match=f"method 'put2': {told}"):
        session.put2(ONES)


def test_a_delegate_that_keeps_shared_state_to_itself_is_refused() -> None:
    with pytest.raises(LoweringError, match="method 'put': a delegate of 'Hoarder' keeps buffer 'count' for itself"):
        with_keeper({"put": [Everything("Hoarder")]})
    with pytest.raises(LoweringError, match="share buffer 'count' by its name, which emit_mutable_buffer_names=False"):
        with_keeper({"put": [Everything("Keeper")]}, emit_mutable_buffer_names=False)


def test_a_delegate_that_was_made_before_others_were_known_is_refused() -> None:
    plugins = PluginRegistry.discover()
    plugins.register("lowerings", "Keeper", Keeper)

    class Constant(Keeper):
        @staticmethod
        def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
            return PreprocessResult(b"")

    plugins.register("lowerings", "Constant", Constant)
    alone = delegraph.to_edge_transform_and_lower(
        {"get": export(Get(), X)}, partitioner=[Everything("Constant")], plugins=plugins
    )
    put = delegraph.to_edge_transform_and_lower({"put": export(Put(), X)}, plugins=plugins)
    both = delegraph.to_edge(
        {"get": alone.exported_program("get"), "put": put.exported_program("put")}, plugins=plugins
    )
    with pytest.raises(LoweringError, match=r"method 'get': a delegate of 'Constant' has buffer '.*' as a constant"):
        both.to_executorch(SHARED)
