"""The runtime half: outputs in planned memory, options, threads, versions, damage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from backends.cpu.tests.harness import Context, Function, Lowered, edge
from torch import nn
from torch.export import Dim

import delegraph
from delegraph.errors import DelegateInvalidCompatibility, Internal, InvalidArgument, MemoryAllocationFailed
from delegraph.interfaces import BackendInitContext, BlobStamp, Verdict
from delegraph_cpu.aot.convert import convert
from delegraph_cpu.blob import BLOB_VERSION, READABLE_VERSIONS, Blob, pack, unpack
from delegraph_cpu.graphs.wire import encoded
from delegraph_cpu.runtime.backend import CpuBackend

X = torch.randn(4, 8)


@pytest.fixture(scope="module")
def linear() -> Lowered:
    return Lowered(edge(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), (X,)))


# ---- planned memory -----------------------------------------------------------------------------------------------


def test_outputs_are_written_into_planned_memory(linear: Lowered) -> None:
    arena = np.full(1024, 0xAB, np.uint8)
    out = arena[64 : 64 + 128].view(np.float32).reshape(4, 8)
    linear.backend.execute(Context(), linear.handle, [X.numpy(), out])
    np.testing.assert_array_equal(out, linear(X)[0])
    assert (arena[:64] == 0xAB).all()
    assert (arena[64 + 128 :] == 0xAB).all()


def test_a_bound_call_reads_and_writes_the_same_memory_each_time(linear: Lowered) -> None:
    source, out = X.numpy().copy(), np.zeros((4, 8), np.float32)
    call = linear.backend.bind(Context(), linear.handle, [source, out])
    assert call is not None
    for factor in (1, -2, 3):
        source[...] = factor * X.numpy()
        call()
        np.testing.assert_array_equal(out, linear(source)[0])


@pytest.mark.parametrize("where", ["input", "output", "both"])
def test_memory_that_is_not_contiguous_is_copied(linear: Lowered, where: str) -> None:
    source, out = X.numpy(), np.zeros((4, 8), np.float32)
    if where != "output":
        source = np.asfortranarray(source)
    if where != "input":
        out = np.zeros((8, 4), np.float32).T
    assert linear.backend.bind(Context(), linear.handle, [source, out]) is None
    linear.backend.execute(Context(), linear.handle, [source, out])
    np.testing.assert_array_equal(out, linear(X)[0])


def test_dynamic_output_is_resized_and_written_in_place() -> None:
    dim = Dim("n", min=2, max=32)
    lowered = Lowered(edge(nn.Linear(8, 4), (X,), ({0: dim},)))
    planned = np.full(32 * 4, 7, np.float32)
    out = planned.reshape(32, 4)
    lowered.backend.execute(Context(), lowered.handle, [X.numpy(), out])
    np.testing.assert_array_equal(planned[:16].reshape(4, 4), lowered(X)[0])
    assert (planned[16:] == 7).all()


def test_a_dynamic_graph_is_bound_to_shapes_that_stay() -> None:
    lowered = Lowered(edge(nn.Linear(8, 4), (X,), ({0: Dim("n", min=2, max=32)},)))
    out = np.empty((len(X), 4), np.float32)
    bound = lowered.backend.bind(Context(), lowered.handle, [X.numpy(), out])
    assert bound is not None
    bound()
    np.testing.assert_array_equal(out, lowered(X)[0])


def test_nothing_is_bound_where_a_shape_is_found_by_running() -> None:
    lowered = Lowered(edge(Function(lambda t: torch.cat([t, t]) + 1), (X,), (({0: Dim("n", min=2, max=16)},),)))
    out = np.empty((2 * len(X), X.shape[1]), np.float32)
    assert lowered.backend.bind(Context(), lowered.handle, [X.numpy(), out]) is None


def test_a_size_that_no_input_has_is_found_by_running() -> None:
    dim = Dim("n", min=2, max=16)
    lowered = Lowered(edge(Function(lambda t: torch.cat([t, t]) + 1), (X,), (({0: dim},),)))
    np.testing.assert_array_equal(lowered(X)[0], np.concatenate([X, X]) + 1)


def test_scalars_and_bools_without_dims() -> None:
    lowered = Lowered(edge(Function(lambda t: (t.sum(), (t > 0).any(), t.argmax())), (X,)))
    total, positive, position = lowered(X)
    assert total.shape == positive.shape == position.shape == ()
    assert (positive, position) == ((X > 0).any().item(), X.argmax().item())
    np.testing.assert_allclose(total, X.sum(), rtol=1e-5)


def test_wrong_arguments_are_told(linear: Lowered) -> None:
    out = np.zeros((4, 8), np.float32)
    with pytest.raises(Internal, match="takes 1 inputs and 1 outputs, and was called with 3 arguments"):
        linear.backend.execute(Context(), linear.handle, [X.numpy(), out, out])
    with pytest.raises(Internal, match="onnxruntime failed in a delegate"):
        linear.backend.execute(Context(), linear.handle, [X.double().numpy(), out])


# ---- loading ------------------------------------------------------------------------------------------------------


def test_damaged_blobs_never_load(linear: Lowered) -> None:
    backend = CpuBackend()
    start = len(linear.processed) - len(unpack(linear.processed).data)
    for size in (0, 15, 16, start // 2, start, len(linear.processed) - 256):
        with pytest.raises(DelegateInvalidCompatibility):
            backend.init(BackendInitContext("forward"), linear.processed[:size], [])


def test_a_graph_that_onnxruntime_cannot_read_names_both_versions() -> None:
    node = {"input": ["nothing"], "output": ["y"], "op_type": "Neg"}
    model = {"ir_version": 10, "graph": {"node": [node], "name": "g"}, "opset_import": [{"version": 20}]}
    blob = pack(Blob("99.0", (), (), (), b"".join(encoded(model))), [])
    with pytest.raises(
        DelegateInvalidCompatibility, match=r"(?s)refuses the graph \(optimised with '99\.0', says its header\)"
    ):
        CpuBackend().init(BackendInitContext("forward"), blob, [])


def test_weights_are_read_where_they_lie(linear: Lowered) -> None:
    image = np.frombuffer(linear.processed, np.uint8)
    handle = CpuBackend().init(BackendInitContext("forward"), image.data, [])
    assert len(handle.memory) > 0
    assert all(np.shares_memory(array, image) for array in handle.memory)


def test_check_judges_the_version() -> None:
    backend = CpuBackend()
    stamp = BlobStamp("CpuBackend", "delegraph-cpu", "9.9", BLOB_VERSION)
    newer = BlobStamp("CpuBackend", "delegraph-cpu", "9.9", BLOB_VERSION + 1)
    older = BlobStamp("CpuBackend", "delegraph-cpu", "0.0", READABLE_VERSIONS[0] - 1)
    assert backend.check(None).verdict is Verdict.OK
    assert backend.check(stamp).verdict is Verdict.OK
    assert backend.check(newer).verdict is Verdict.REFUSE
    assert "install a newer release of the backend" in backend.check(newer).reason
    assert backend.check(older).verdict is Verdict.RECOMPILE
    assert "delegraph-cpu 0.0" in backend.check(older).reason


def test_availability_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CpuBackend().is_available()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    missing = CpuBackend().is_available()
    assert not missing
    assert (missing.reason, missing.fix) == ("onnxruntime is not installed", "pip install onnxruntime")


# ---- options ------------------------------------------------------------------------------------------------------


def test_options_are_checked(linear: Lowered) -> None:
    backend = CpuBackend()
    for specs, message in (
        ({"threads": 2}, "has no option threads; it has .*num_threads, optimization_level, .*, thread_pool"),
        ({"profiling": 1}, "option profiling must be true or false"),
        ({"num_threads": -1}, "option num_threads must be 0 to 1024"),
        ({"num_threads": "2"}, "option num_threads must be"),
        ({"thread_pool": "none"}, "option thread_pool must be session or shared"),
        ({"spin_duration_us": True}, "option spin_duration_us must be -1 to 1000000"),
        ({"optimization_level": "fast"}, "option optimization_level must be disabled, basic, extended, all"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            backend.init(BackendInitContext("forward", {}, specs), linear.processed, [])


def test_options_of_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGRAPH_CPU_THREADS", "3")
    backend = CpuBackend()
    backend.set_option({"spin_duration_us": 0})
    assert backend.get_option(["num_threads", "spin_duration_us"]) == {"num_threads": 3, "spin_duration_us": 0}
    with pytest.raises(InvalidArgument, match="has no option speed"):
        backend.set_option({"speed": 1})
    with pytest.raises(InvalidArgument, match="has no option speed"):
        backend.get_option(["speed"])
    monkeypatch.setenv("DELEGRAPH_CPU_THREADS", "many")
    with pytest.raises(InvalidArgument, match="DELEGRAPH_CPU_THREADS='many' is not a number of threads"):
        CpuBackend().get_option(["num_threads"])


@pytest.mark.parametrize("level", ["disabled", "basic", "extended", "all"])
def test_optimization_levels_agree(linear: Lowered, level: str) -> None:
    backend = CpuBackend()
    handle = backend.init(BackendInitContext("forward", {}, {"optimization_level": level}), linear.processed, [])
    out = np.zeros((4, 8), np.float32)
    backend.execute(Context(), handle, [X.numpy(), out])
    np.testing.assert_allclose(out, linear(X)[0], atol=1e-6)


# ---- threads ------------------------------------------------------------------------------------------------------

IN_A_NEW_PROCESS = """
import json, sys
import numpy as np, psutil
sys.modules["torch"] = None
from delegraph.errors import InvalidArgument
from delegraph.interfaces import BackendInitContext
from delegraph_cpu.runtime.backend import CpuBackend
assert "onnxruntime" not in sys.modules
backend, blob = CpuBackend(), open(sys.argv[1], "rb").read()
specs = json.loads(sys.argv[2])
import onnxruntime
def threads(): return psutil.Process().num_threads()
before, counts, faults, keep = threads(), [], [], []
for spec in specs:
    try:
        keep.append(backend.init(BackendInitContext("forward", {}, spec), blob, []))
    except InvalidArgument as error:
        faults.append(str(error))
    counts.append(threads() - before)
x, out = np.ones((4, 8), np.float32), np.zeros((4, 8), np.float32)
for handle in keep:
    backend.execute(None, handle, [x, out])
print(json.dumps([counts, faults, psutil.Process().num_threads() - before]))
"""


def in_a_new_process(blob: bytes, folder: Path, specs: list[dict[str, Any]], **environment: str) -> Any:
    (folder / "blob").write_bytes(blob)
    command = [sys.executable, "-W", "error", "-c", IN_A_NEW_PROCESS, str(folder / "blob"), json.dumps(specs)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def large() -> bytes:
    """The blob of a layer of which is not known how much there is to compute."""
    return Lowered(edge(nn.Linear(8, 8), (X,), ({0: Dim("n", min=2, max=32)},))).processed


def test_delegates_share_one_pool(large: bytes, tmp_path: Path) -> None:
    """Without torch; the count is the same after ten delegates as after one."""
    shared = {"thread_pool": "shared"}
    counts, faults, after = in_a_new_process(large, tmp_path, [shared | {"num_threads": 4}] + [shared] * 9)
    assert faults == []
    assert set(counts) == {counts[0]}
    assert after == counts[0] <= 4


def test_the_environment_sets_the_number_of_threads(large: bytes, tmp_path: Path) -> None:
    counts, _, _ = in_a_new_process(large, tmp_path, [{}], DELEGRAPH_CPU_THREADS="1")
    more, _, _ = in_a_new_process(large, tmp_path, [{}], DELEGRAPH_CPU_THREADS="6")
    assert more[0] - counts[0] >= 4


def test_sessions_with_threads_of_their_own(large: bytes, tmp_path: Path) -> None:
    counts, faults, _ = in_a_new_process(
        large, tmp_path, [{"num_threads": 3, "spin_duration_us": 0}, {"num_threads": 4}]
    )
    assert faults == []
    assert counts[1] - counts[0] == 3


def test_little_work_gets_no_threads(linear: Lowered, tmp_path: Path) -> None:
    """Waking one up takes longer than 256 products; a blob of an earlier version does not say how many there are."""
    blob = unpack(linear.processed)
    assert blob.multiply_adds == 4 * 8 * (8 + 2 * 16)
    counts, _, _ = in_a_new_process(linear.processed, tmp_path, [{"num_threads": 4}] * 3)
    assert len(set(counts)) == 1


def test_pools_that_contradict_each_other_are_refused(linear: Lowered, tmp_path: Path) -> None:
    shared = {"thread_pool": "shared"}
    specs = [shared | {"num_threads": 2}, shared | {"num_threads": 3}, {"num_threads": 1}, shared]
    _, faults, _ = in_a_new_process(linear.processed, tmp_path, specs)
    assert "num_threads=3, but the thread pool that this process's delegates share was made with 2 threads" in faults[0]
    assert "thread_pool='session', but an earlier delegate of this process made the shared pool" in faults[1]
    assert len(faults) == 2


AN_APPLICATION = """
import sys
import numpy as np, onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort
from delegraph.interfaces import BackendInitContext
from delegraph_cpu.runtime.backend import CpuBackend
graph, blob, with_global_pool = open(sys.argv[1], "rb").read(), open(sys.argv[2], "rb").read(), sys.argv[3] == "True"
if with_global_pool:
    ort.set_global_thread_pool_sizes(2, 1)
x, y = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8), np.zeros((4, 8), np.float32)
def run_its_own():
    options = onnxruntime.SessionOptions()
    options.use_per_session_threads = not with_global_pool
    options.intra_op_num_threads = 0 if with_global_pool else 2
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {session.get_inputs()[0].name: x})
    np.testing.assert_array_equal(result, np.maximum(x, 0))
def run_a_delegate():
    handle = CpuBackend().init(BackendInitContext("forward"), blob, [])
    CpuBackend().execute(None, handle, [x, y])
    assert y.any()
    y[...] = 0
for run in (run_its_own, run_a_delegate, run_its_own, run_a_delegate):
    run()
"""


@pytest.mark.parametrize("with_global_pool", [False, True])
def test_an_applications_own_sessions_keep_their_settings(large: bytes, tmp_path: Path, with_global_pool: bool) -> None:
    """Threads of their own, before and after a delegate's; and a pool of the process that the application made."""
    graph, blob = tmp_path / "own.onnx", tmp_path / "blob"
    graph.write_bytes(ir.to_proto(convert(edge(Function(torch.relu), (X,))).model).SerializeToString())
    blob.write_bytes(large)
    command = [sys.executable, "-W", "error", "-c", AN_APPLICATION, str(graph), str(blob), str(with_global_pool)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_handles_run_in_several_threads_at_a_time(linear: Lowered) -> None:
    backend = linear.backend
    handles = [backend.init(BackendInitContext("forward"), linear.processed, []) for _ in range(4)]
    wrong: list[int] = []

    def work(index: int) -> None:
        for step in range(50):
            source, out = (X.numpy() + index + step).astype(np.float32), np.zeros((4, 8), np.float32)
            backend.execute(Context(), handles[index], [source, out])
            again = np.zeros((4, 8), np.float32)
            backend.execute(Context(), handles[index], [source, again])
            if not np.array_equal(out, again) or out.max() <= 0:
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_options_by_the_name_that_lowering_uses() -> None:
    """`cpu` is the partitioner, `CpuBackend` the id in the file; the options arrive either way, or are refused."""
    program = bytes(delegraph.lower(torch.nn.Linear(4, 3), (torch.randn(2, 4),), backends=["cpu"]))
    for name in ("cpu", "CpuBackend"):
        with pytest.raises(InvalidArgument, match="CpuBackend's option num_threads must be 0 to 1024"):
            delegraph.load(program, backend_options={name: {"num_threads": -1}})
        with pytest.raises(
            InvalidArgument, match="CpuBackend has no option threads; it has cache, intermediate_outputs, num_threads"
        ):
            delegraph.load(program, backend_options={name: {"threads": 1}})
        with pytest.raises(InvalidArgument, match="no backend 'cup'; its backends are CpuBackend; did you mean 'cpu'"):
            delegraph.load(program, backend_options={"cup": {}})
        delegraph.load(program, backend_options={name: {"optimization_level": "basic"}})


def test_what_onnxruntime_looks_up_in_each_run_is_there(linear: Lowered) -> None:
    """Else its wrapper catches an exception in each run, for tens of microseconds."""
    assert linear.handle.options.get_run_config_entry("gpu_graph_id") == "-1"


def test_an_engine_without_memory_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = delegraph.lower(torch.nn.Linear(4, 2), (torch.ones(1, 4),), backends=["cpu"])

    def refuse(*_: object) -> None:
        raise RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : std::bad_alloc")

    monkeypatch.setattr("delegraph_cpu.sessions.create_session", refuse)
    with pytest.raises(MemoryAllocationFailed, match="the system did not give the memory for it"):
        delegraph.load(bytes(lowered))["forward"].method  # noqa: B018
