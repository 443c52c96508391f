"""Models with two branches: their delegates are at work together, on each backend that submits, at equal results."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import delegraph
from delegraph.aot import ExecutorchBackendConfig
from delegraph.errors import LimitExceeded
from delegraph.plugins import PluginRegistry, use_registry
from delegraph.program.overlap import DRAWN
from delegraph.runtime import EventTracer, Limits, Method, Runtime, StepKind

pytestmark = pytest.mark.models

X = torch.linspace(-1, 1, 4 * 8 * 8).reshape(1, 4, 8, 8)


class Towers(nn.Module):
    """A convolutional tower and a linear one over one input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.right = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.left(x), self.right(x)


def load(lowered: Any, **options: Any) -> Method:
    return Runtime().load_program(bytes(lowered)).load_method("forward", **options)


def steps(method: Method) -> list[str]:
    """`submit CpuBackend`, `wait CpuBackend`, and nothing of kernels."""
    named = [(step.kind.value, step.name.partition("(")) for step in method.schedule]
    return [f"{kind} {name[0].split()[-1]}" for kind, name in named if name[0].startswith("delegate")]


def test_operators_that_draw_are_known() -> None:
    """All of torch's, but for recurrent layers and attention, which draw for dropout alone, which inference does
    not have, and for what belongs to one kind of device."""
    without = ("lstm", "gru", "rnn", "attention", "cudnn", "_fill_mem_eff", "_sdp_", "nested_tensor")
    known = torch._C._dispatch_get_all_op_names()
    names = {name.partition("::")[2].partition(".")[0] for name in known if name.startswith("aten::")}
    packets = {name: getattr(torch.ops.aten, name) for name in names if hasattr(torch.ops.aten, name)}
    tagged = {
        name
        for name, packet in packets.items()
        if any(torch.Tag.nondeterministic_seeded in getattr(packet, overload).tags for overload in packet.overloads())
    }
    assert {"randn", "bernoulli"} <= tagged
    assert {name for name in tagged if not any(part in name for part in without)} <= DRAWN


def test_towers_on_the_cpu() -> None:
    lowered = delegraph.lower(Towers().eval(), (X,), backends=["cpu{submit=true}"])
    method = load(lowered)
    assert steps(method) == ["submit CpuBackend", "submit CpuBackend", "wait CpuBackend", "wait CpuBackend"]
    for result, expected in zip(method.execute([X.numpy()]), Towers().eval()(X), strict=True):
        np.testing.assert_allclose(result, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    whole = load(delegraph.lower(Towers().eval(), (X,), backends=["cpu"]))
    assert steps(whole) == ["run CpuBackend"]


def test_towers_on_two_devices_at_a_time() -> None:
    """An int8 tower on the NPU and a float one on the DSP: together they take as long as the slower of them."""
    recipe = {"left": "int8", "default": "float"}
    quantized = delegraph.quantize(Towers().eval(), [(X,)], recipe=recipe, backends=["npu"])
    results, took = {}, {}
    for overlap in (True, False):
        config = ExecutorchBackendConfig(overlap_delegates=overlap)
        lowered = delegraph.lower(quantized, (X,), backends=["npu{take_all=true}", "dsp{dtype=float16}"], config=config)
        tracer = EventTracer()
        method = load(lowered, event_tracer=tracer)
        results[overlap] = method.execute([X.numpy()])
        took[overlap] = device_time(method, tracer)
    for together, in_turn in zip(results[True], results[False], strict=True):
        np.testing.assert_array_equal(together, in_turn)
    npu, dsp = times(tracer).values()
    assert took[True] == max(npu, dsp) < took[False]


def times(tracer: EventTracer) -> dict[int, int]:
    """By instruction, for how many nanoseconds of its own time a simulated device works for it."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for event in tracer.blocks[-1].profile_events:
        if event.delegate_debug_id not in (None, "wait"):
            spans.setdefault(event.instruction, []).append((event.start, event.end))
    return {index: max(end for _, end in parts) - min(start for start, _ in parts) for index, parts in spans.items()}


def device_time(method: Method, tracer: EventTracer) -> int:
    """The nanoseconds that a run takes where the host takes none, and each device its own time."""
    taken, now, ends = times(tracer), 0, dict[int, int]()
    for step in method.schedule:
        if step.kind is StepKind.RUN:
            now += taken.get(step.instruction, 0)
        elif step.kind is StepKind.SUBMIT:
            ends[step.instruction] = now + taken[step.instruction]
        else:
            now = max(now, ends[step.instruction])
    return now


# ---- a stranger's device with two engines -----------------------------------------------------------


class Two(nn.Module):
    """Two functions of the device, one kernel behind each, and a sum."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x).neg() + torch.sigmoid(x * 2).neg()


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The distribution `tests/plugins/acme_twin`, as if installed; its modules."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "plugins/acme_twin"))
    import acme_twin.aot
    import acme_twin.runtime

    registry = PluginRegistry.discover()
    registry.register("partitioners", "twin", acme_twin.aot.twin_partitioner)
    registry.register("lowerings", "AcmeTwin", acme_twin.aot.TwinLowering)
    registry.register("backends", "AcmeTwin", acme_twin.runtime.TwinBackend)
    with use_registry(registry):
        yield acme_twin
    for name in [name for name in sys.modules if name.split(".")[0] == "acme_twin"]:
        del sys.modules[name]


def two(seconds: float, **options: Any) -> Method:
    x = torch.linspace(-1, 1, 5)
    lowered = delegraph.lower(Two(), (x,), backends=[f"twin{{seconds={seconds}}}"])
    return load(lowered, **options)


def test_order_on_two_engines(twin: Any) -> None:
    tracer = EventTracer()
    method = two(0.05, event_tracer=tracer)
    assert steps(method) == ["submit AcmeTwin", "submit AcmeTwin", "wait AcmeTwin", "wait AcmeTwin"]
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    np.testing.assert_allclose(method.execute([x])[0], Two()(torch.from_numpy(x)).numpy(), rtol=1e-5)
    first, second = (e for e in tracer.blocks[-1].profile_events if e.name.endswith("AcmeTwin"))
    assert max(first.start, second.start) < min(first.end, second.end)


def test_planned_one_after_the_other_it_runs_so(twin: Any) -> None:
    """In as much memory; the result is the same."""
    x = torch.linspace(-1, 1, 5)
    plans = {}
    for overlap in (True, False):
        config = ExecutorchBackendConfig(overlap_delegates=overlap)
        lowered = delegraph.lower(Two(), (x,), backends=["twin"], config=config)
        plans[overlap] = lowered.program.memory["forward"]
        np.testing.assert_allclose(load(lowered).execute([x.numpy()])[0], Two()(x).numpy(), rtol=1e-5)
    assert plans[False].overlap_bytes == 0
    assert plans[True].lower_bound - plans[False].lower_bound == plans[True].overlap_bytes


def test_a_limit_ends_what_is_in_flight(twin: Any) -> None:
    method = two(60, limits=Limits(seconds=0.2))
    with pytest.raises(LimitExceeded, match=r"delegate \d AcmeTwin.*it has run for 0\.2 seconds"):
        method.execute([np.zeros(5, np.float32)])


def test_an_error_in_flight_is_its_own_delegates(twin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    method = two(0)

    def overheats(self: Any, handle: Any, x: Any, out: Any) -> None:
        raise RuntimeError("the device is too hot")

    with monkeypatch.context() as patch:
        patch.setattr(twin.runtime.TwinBackend, "_compute", overheats)
        with pytest.raises(delegraph.errors.Internal, match=r"delegate 0 AcmeTwin.*too hot"):
            method.execute([np.zeros(5, np.float32)])
    assert method.execute([np.zeros(5, np.float32)])[0].tolist() == [-0.5] * 5


def test_the_schedule_on_the_command_line(twin: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from delegraph.cli import main

    x = torch.linspace(-1, 1, 5)
    path = str(tmp_path / "two.pte")
    delegraph.lower(Two(), (x,), backends=["twin"]).save(path)
    assert main(["inspect", path, "--schedule", "--json"]) == 0
    [steps] = json.loads(capsys.readouterr().out)["methods"].values()
    assert [step["does"] for step in steps if "AcmeTwin" in step["name"]] == ["submit", "submit", "wait", "wait"]
    assert main(["inspect", path, "--schedule"]) == 0
    assert "wait" in capsys.readouterr().out
