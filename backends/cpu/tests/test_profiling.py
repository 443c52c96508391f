"""onnxruntime's profile in the events of a tracer, by the debug handles of the calls that were lowered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from backends.cpu.tests.harness import Context, edge
from torch import nn

import delegraph
from delegraph.devtools import load_model, node_times
from delegraph.errors import Internal
from delegraph.interfaces import BackendInitContext
from delegraph.runtime import EventTracer
from delegraph_cpu.aot.preprocess import CpuLowering
from delegraph_cpu.runtime.backend import CpuBackend
from delegraph_cpu.runtime.profiling import _runs, blob_name

X = torch.randn(1, 3, 16, 16)
OPTIONS = {"cpu": {"profiling": True}}


class Net(nn.Module):
    """Its convolution, batch norm and ReLU become one operator, and its counter is a state."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Linear(16, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        features = self.norm(self.conv(x)).relu().mean((2, 3))
        return torch.softmax(self.linear(features) + self.calls, -1)


@pytest.fixture(scope="module")
def lowered() -> Any:
    return delegraph.lower(Net().eval(), (X,), backends=["cpu"])


def of_delegates(tracer: EventTracer, name: str = "Method::execute") -> list[list[Any]]:
    """For each run the events of a delegate's inside."""
    blocks = [block for block in tracer.take_blocks() if block.name == name]
    return [[event for event in block.profile_events if event.delegate_debug_id is not None] for block in blocks]


def calls_behind(lowered: Any, handles: Sequence[int]) -> set[str]:
    """The operators with one of these debug handles that were lowered into the delegate."""
    (delegate,) = (m for m in lowered.edge.exported_program().graph_module.children() if hasattr(m, "original_module"))
    nodes = delegate.original_module.graph.nodes
    return {n.target.name() for n in nodes if n.meta.get("debug_handle") in handles}


def test_each_run_has_its_nodes_with_what_they_were_made_of(lowered: Any) -> None:
    tracer = EventTracer()
    module = delegraph.load(bytes(lowered), event_tracer=tracer, backend_options=OPTIONS)
    for _ in range(3):
        module(X.numpy())
    runs = of_delegates(tracer)
    assert len(runs) == 3
    assert [e.delegate_debug_id for e in runs[0]] == [e.delegate_debug_id for e in runs[2]]
    assert {(e.chain, e.instruction) for run in runs for e in run} == {(0, 0)}
    (call,) = lowered.program.delegate_map["forward"].values()
    made_of = {e.name: call["delegate_map"].get(e.delegate_debug_id, ()) for e in runs[0]}
    assert calls_behind(lowered, made_of["Conv"]) == {"aten::conv2d", "aten::batch_norm", "aten::relu"}
    assert calls_behind(lowered, made_of["Gemm"]) == {"aten::linear"}
    assert calls_behind(lowered, made_of["Softmax"]) == {"aten::_softmax"}


def test_events_lie_within_their_runs_and_after_reading_go_on(lowered: Any) -> None:
    tracer = EventTracer()
    module = delegraph.load(bytes(lowered), event_tracer=tracer, backend_options=OPTIONS)
    counted = []
    for runs in (1, 2):
        for _ in range(runs):
            counted.append(module(X.numpy()))
        blocks = [block for block in tracer.take_blocks() if block.name == "Method::execute"]
        assert len(blocks) == runs
        for block in blocks:
            (whole,) = (event for event in block.profile_events if event.name == "Method::execute")
            inside = [event for event in block.profile_events if event.delegate_debug_id is not None]
            assert len(inside) > 3
            assert all(whole.start <= event.start <= event.end for event in inside)
            assert sum(event.duration for event in inside) < whole.duration
    plain = delegraph.load(bytes(lowered))
    for result in counted:
        np.testing.assert_allclose(result, plain(X.numpy()), rtol=1e-5)  # the state is the same, session by session


def test_without_a_tracer_nothing_is_profiled(lowered: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    delegraph.load(bytes(lowered), backend_options=OPTIONS)(X.numpy())
    tracer = EventTracer()
    delegraph.load(bytes(lowered), event_tracer=tracer)(X.numpy())
    assert of_delegates(tracer) == [[]]
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_has_no_events_and_takes_none() -> None:
    tracer, backend = EventTracer(), CpuBackend()
    x, out = np.ones((2, 8), np.float32), np.empty((2, 4), np.float32)
    blob = CpuLowering.preprocess(edge(nn.Linear(8, 4), (torch.from_numpy(x),)), []).processed_bytes
    handle = backend.init(BackendInitContext("forward", {}, {"profiling": True}, tracer), blob, [])
    assert backend.bind(Context(), handle, [x, out]) is None
    assert backend.fork(BackendInitContext("forward"), handle) is None
    tracer.create_event_block("Method::execute")
    with pytest.raises(Internal, match="onnxruntime failed"):
        backend.execute(Context(), handle, [x.astype(np.float64), out])
    tracer.create_event_block("Method::execute")
    backend.execute(Context(), handle, [x, out])
    assert [[event.name for event in run] for run in of_delegates(tracer)] == [[], ["Gemm"]]


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("Relu_2_0", "Relu_2_0"),
        ("fused Gemm_5_0", "Gemm_5_0"),
        ("Clip_3_0_nchwc", "Clip_3_0"),
        ("fused Conv_1_0_nchwc", "Conv_1_0"),
        ("ReorderOutput", "ReorderOutput"),
        ("fused gemm_output_token_4_nchwc_token_9", "gemm_output_token_4"),
        ("gemm_output_token_9", "gemm_output"),
    ],
)
def test_names_of_what_was_made_of_a_node(name: str, there: str) -> None:
    names = {"Relu_2_0", "Gemm_5_0", "Clip_3_0", "Conv_1_0", "gemm_output", "gemm_output_token_4"}
    assert blob_name(name, names) == there


def test_the_device_s_own_clock_comes_before_the_host_s() -> None:
    """As WebGPU's provider tells them, behind all runs."""

    def event(cat: str, name: str, ts: int, dur: int) -> dict[str, Any]:
        return {"cat": cat, "name": name, "ts": ts, "dur": dur, "args": {"op_name": "Gemm"}}

    host = [event("Node", "Gemm_0_kernel_time", 12, 1), event("Session", "model_run", 10, 90)]
    host += [event("Node", "Gemm_0_kernel_time", 112, 1), event("Session", "model_run", 110, 70)]
    device = [event("Api", f"{name}&MatMul", 0, dur) for dur in (40, 30) for name in ("Gemm_0&Gemm", "Relu_1&Relu")]
    runs = _runs([*host, *device])
    assert [(began, [(e["name"], e["ts"], e["dur"]) for e in nodes]) for began, nodes in runs] == [
        (10, [("Gemm_0", 10, 40), ("Relu_1", 50, 40)]),
        (110, [("Gemm_0", 110, 30), ("Relu_1", 140, 30)]),
    ]
    assert [[e["name"] for e in nodes] for _, nodes in _runs([*host, *device[:3]])] == [["Gemm_0_kernel_time"]] * 2


class Products(nn.Module):
    """Linear layers that share their input: onnxruntime, which optimizes the graph that is stored, numbers what it
    makes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(128, 128) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.q(x) * self.k(x) + self.v(x)


def test_each_product_has_its_own_time() -> None:
    lowered, tracer = delegraph.lower(Products().eval(), (torch.randn(1, 64, 128),), backends=["cpu"]), EventTracer()
    delegraph.load(bytes(lowered), event_tracer=tracer, backend_options=OPTIONS)(np.zeros((1, 64, 128), np.float32))
    times = node_times([tracer.blocks[-1].profile_events], load_model(bytes(lowered)), "forward")
    assert {row.module for row in times if row.operator.endswith("Gemm")} == {"q", "k", "v"}
