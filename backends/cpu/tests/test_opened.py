"""Loads of the same memory with the same options share a session, and nothing else does."""

from __future__ import annotations

import gc
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from backends.cpu.tests.harness import Context, edge
from numpy.typing import NDArray

import delegraph
from delegraph.interfaces import BackendCache, BackendInitContext, CompilationCache
from delegraph_cpu.aot.preprocess import CpuLowering
from delegraph_cpu.runtime.backend import CpuBackend
from delegraph_cpu.runtime.calls import OrtHandle

X = torch.randn(2, 8)


@pytest.fixture(scope="module")
def blob() -> bytes:
    return bytes(CpuLowering.preprocess(edge(torch.nn.Linear(8, 8), (X,)), []).processed_bytes)


def opened(data: Any, **options: Any) -> OrtHandle:
    handle: OrtHandle = CpuBackend().init(BackendInitContext("forward", {}, options), data, [])
    return handle


def run(handle: OrtHandle) -> NDArray[np.float32]:
    out = np.empty((2, 8), np.float32)
    CpuBackend().execute(Context(), handle, [X.numpy(), out])
    return out


def test_loads_of_the_same_bytes_share_a_session(blob: bytes) -> None:
    first, second = opened(blob), opened(memoryview(blob))
    assert first.opened is second.opened
    assert first.options is not second.options  # by which each is cancelled
    expected = run(first)
    del first
    gc.collect()
    np.testing.assert_array_equal(run(second), expected)


def test_other_choices_have_a_session_of_their_own(blob: bytes, tmp_path: Path) -> None:
    first = opened(blob)
    assert opened(blob, optimization_level="basic").opened is not first.opened
    context = BackendInitContext("forward", cache=BackendCache("CpuBackend", CompilationCache(tmp_path)))
    assert CpuBackend().init(context, blob, []).opened is not first.opened
    assert opened(bytes(bytearray(blob))).opened is not first.opened
    changed = CpuBackend()
    changed.set_option({"optimization_level": "basic"})
    assert changed.init(BackendInitContext("forward"), blob, []).opened is not first.opened


def test_memory_that_may_be_written_to_is_not_shared(blob: bytes) -> None:
    """The next program may be put into the same array."""
    data = bytearray(blob)
    for view in (data, memoryview(data), memoryview(data).toreadonly(), np.frombuffer(data, np.uint8).data):
        assert opened(view).opened is not opened(view).opened


def test_a_profile_is_a_delegates_own(blob: bytes) -> None:
    tracer = delegraph.EventTracer()
    contexts = [BackendInitContext("forward", {}, {"profiling": True}, tracer) for _ in range(2)]
    first, second = (CpuBackend().init(context, blob, []) for context in contexts)
    assert first.opened is not second.opened


def test_nothing_is_kept_when_all_have_gone(blob: bytes) -> None:
    with mmap.mmap(-1, len(blob)) as memory:
        memory[:] = blob
        handle = opened(memoryview(memory).toreadonly())
        run(handle)
        del handle
        gc.collect()  # else the mapping cannot be closed: somebody points to it


class Counter(torch.nn.Module):
    """More than 16 MiB, so that its file is mapped; and a state."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2100, 2100))
        self.register_buffer("sum", torch.zeros(1, 2100))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sum.add_(x @ self.weight)
        return self.sum.clone()


def test_loads_of_one_file_have_states_of_their_own(tmp_path: Path) -> None:
    model, x = Counter().eval(), torch.ones(1, 2100)
    delegraph.lower(model, (x,), backends=["cpu"]).save(tmp_path / "m.pte")
    first, second = (delegraph.load(tmp_path / "m.pte") for _ in range(2))
    handles = [run.forward.method._loaded.delegates.all[0].handle for run in (first, second)]
    assert handles[0].opened is handles[1].opened
    expected = (x @ model.weight).detach().numpy()
    first(x.numpy())
    np.testing.assert_allclose(first(x.numpy()), 2 * expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(second(x.numpy()), expected, rtol=1e-4, atol=1e-3)
