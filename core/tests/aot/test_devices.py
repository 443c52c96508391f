"""Delegates for devices, from model to result: copies around them, memory planned by device, skipped copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from core.tests.aot.device_backend import DeviceArithmeticRuntime, calls, load, lower_onto, plan_of
from torch import nn
from torch.export import Dim

from delegraph.aot import (
    Lowered,
    MemoryPlanningPass,
    MethodMemory,
    MethodPlan,
    PropagateDeviceConfig,
    PropagateDevicePass,
    program_text,
)
from delegraph.errors import InvalidArgument, LoweringError, PluginError
from delegraph.interfaces import Device, DeviceTensor, MemoryPlanner
from delegraph.program import to_text
from delegraph.program.schema import Program, Tensor
from delegraph.runtime import EventTracer

CUDA0, CUDA1 = Device.parse("cuda:0"), Device.parse("cuda:1")
A, B, C = (torch.randn(2, 3) for _ in range(3))


class Formula(nn.Module):
    """A function of three tensors as a model."""

    def __init__(self, formula: Callable[..., Any]) -> None:
        super().__init__()
        self.formula = formula

    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
        return self.formula(a, b, c)


class Counter(nn.Module):
    """Adds its input to a buffer, and gives what the buffer has then."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(2, 3))

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        self.total.add_(a)
        return self.total.relu()


SUM = Formula(lambda a, b, c: (a + b) * c)


@pytest.fixture
def backend() -> DeviceArithmeticRuntime:
    return DeviceArithmeticRuntime("cuda:0", "cuda:1")


def on_devices(program: Lowered) -> list[Tensor]:
    """The tensors of a program that are tagged as on a device."""
    return [value for value in plan_of(program).values if isinstance(value, Tensor) and value.extra_tensor_info]


def on(array: torch.Tensor, backend: DeviceArithmeticRuntime, device: Device = CUDA0) -> DeviceTensor:
    return DeviceTensor.from_numpy(array.numpy(), device, backend.memories[device])


# ---- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "devices", "expected"),
    [
        (SUM.formula, "cuda:0", "h2d h2d cuda:0 h2d cuda:0 d2h"),
        (SUM.formula, "cuda:0 cuda:1", "h2d h2d cuda:0 d2h h2d h2d cuda:1 d2h"),
        (SUM.formula, "CUDA:1", "h2d h2d CUDA:1 h2d CUDA:1 d2h"),
        (lambda a, b, c: (a + b).relu() * c, "cuda", "h2d h2d cuda d2h relu h2d h2d cuda d2h"),
        (lambda a, b, c: [(d := a + b) * c, d.relu()], "cuda:0", "h2d h2d cuda:0 d2h h2d cuda:0 d2h relu"),
        (
            lambda a, b, c: [(d := a + b) * c, d * a],
            "cuda:0 cuda:0 cuda:1",
            "h2d h2d cuda:0 d2h h2d cuda:0 d2h h2d h2d cuda:1 d2h",
        ),
        (lambda a, b, c: a * a, "cuda:0", "h2d cuda:0 d2h"),
    ],
    ids=["one device", "two devices", "capitals", "the CPU between", "a reader on the CPU", "readers on both", "twice"],
)
def test_copies_stand_where_a_value_changes_devices(
    formula: Callable[..., Any], devices: str, expected: str, backend: DeviceArithmeticRuntime
) -> None:
    program = lower_onto(devices.split(), Formula(formula), (A, B, C))
    assert calls(plan_of(program)) == expected.split()
    result = formula(A, B, C)
    torch.testing.assert_close(
        load(program, backend).execute([A, B, C]), result if isinstance(result, list) else [result]
    )


def test_a_delegate_that_is_for_the_cpu_is_left_alone() -> None:
    program = lower_onto(["cpu"], SUM, (A, B, C))
    assert calls(plan_of(program)) == ["cpu", "cpu"]
    assert plan_of(program).non_const_buffer_device is None
    assert on_devices(program) == []


def test_each_device_has_memory_of_its_own(backend: DeviceArithmeticRuntime) -> None:
    program = lower_onto(["cuda:0", "cuda:1"], SUM, (A, B, C))
    meta = load(program, backend).metadata
    devices = [meta.memory_planned_buffer_device(i) for i in range(meta.num_memory_planned_buffers())]
    assert list(map(str, devices)) == ["cpu:0", "cuda:0", "cuda:1"]
    assert all(meta.memory_planned_buffer_size(i) > 0 for i in range(3))
    with pytest.raises(InvalidArgument, match="no planned buffer 3"):
        meta.memory_planned_buffer_device(3)
    text = to_text(Program((plan_of(program),)))
    assert "on cuda:0" in text
    assert "memory 3: 96 bytes on cuda:1" in text


def test_tensors_on_a_device_take_turns_in_its_memory(backend: DeviceArithmeticRuntime) -> None:
    model = Formula(lambda a, b, c: ((((a + b) * c) + a) * b) + c)
    program = lower_onto(["cuda:0"], model, (A, B, C))
    assert plan_of(program).non_const_buffer_sizes[2] == 3 * 32  # two operands and a result, aligned to 16 bytes
    torch.testing.assert_close(load(program, backend).execute([A, B, C]), [model(A, B, C)])


def test_sizes_known_at_run_time(backend: DeviceArithmeticRuntime) -> None:
    rows = Dim("rows", max=8)
    program = lower_onto(["cuda:0"], SUM, (A, B, C), dynamic_shapes=({0: rows}, {0: rows}, {0: rows}))
    method = load(program, backend)
    for count in (5, 5, 5, 8, 8, 8, 5, 2):  # what has the same shapes twice is bound to them
        inputs = [torch.randn(count, 3) for _ in range(3)]
        torch.testing.assert_close(method.execute(inputs), [SUM(*inputs)])


def test_a_layout_that_is_not_contiguous(backend: DeviceArithmeticRuntime) -> None:
    images = [torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last) for _ in range(3)]
    program = lower_onto(["cuda:0", "cuda:1"], SUM, tuple(images))
    assert {tensor.dim_order for tensor in on_devices(program)} == {(0, 2, 3, 1)}
    torch.testing.assert_close(load(program, backend).execute(images), [SUM(*images)])


def test_delegates_in_the_branches_of_a_condition(backend: DeviceArithmeticRuntime) -> None:
    model = Formula(lambda a, b, c: torch.cond(a, lambda x, y: (x + y) * y, lambda x, y: x * y, (b, c)))
    method = load(lower_onto(["cuda:0"], model, (torch.tensor(True), B, C)), backend)
    for condition in (torch.tensor(True), torch.tensor(False)):
        torch.testing.assert_close(method.execute([condition, B, C]), [model(condition, B, C)])


@pytest.mark.parametrize(
    "config",
    [{}, {"share_mutable_buffers": True}, {"propagate_device_config": PropagateDeviceConfig(True, True)}],
    ids=["own buffers", "shared buffers", "copies left out"],
)
def test_a_state_lies_on_the_cpu(config: dict[str, Any], backend: DeviceArithmeticRuntime) -> None:
    model = Counter()
    method = load(lower_onto(["cuda:0"], model, (A,), **config), backend)
    for _ in range(2):
        given = on(A, backend) if "propagate_device_config" in config else A
        np.testing.assert_allclose(method.execute([given])[0], model(A))
    np.testing.assert_allclose(method.get_attribute("total"), model.total)


def test_traced_values_are_copies_in_the_memory_of_the_cpu(backend: DeviceArithmeticRuntime) -> None:
    tracer = EventTracer(debug_level=2)
    load(lower_onto(["cuda:0"], SUM, (A, B, C)), backend, event_tracer=tracer).execute([A, B, C])
    values = [event.value for block in tracer.blocks for event in block.debug_events]
    assert all(isinstance(value, np.ndarray) for value in values)
    assert any(np.allclose(value, A + B) for value in values)


# ---- skipped copies --------------------------------------------------------------------------------


def test_inputs_come_on_their_device(backend: DeviceArithmeticRuntime) -> None:
    config = PropagateDeviceConfig(skip_h2d_for_method_inputs=True)
    program = lower_onto(["cuda:0"], SUM, (A, B, C), propagate_device_config=config)
    assert calls(plan_of(program)) == ["cuda:0", "cuda:0", "d2h"]
    method = load(program, backend)
    assert [str(method.metadata.input_tensor_meta(i).device()) for i in range(3)] == ["cuda:0"] * 3
    for given in ([on(A, backend), on(B, backend), on(C, backend)], [A, on(B, backend), C.numpy()]):
        np.testing.assert_allclose(method.execute(given)[0], SUM(A, B, C), rtol=1e-6)


def test_an_input_without_planned_memory_is_the_callers_own(backend: DeviceArithmeticRuntime) -> None:
    config = {"propagate_device_config": PropagateDeviceConfig(True), "alloc_graph_input": False}
    method = load(lower_onto(["cuda:0"], SUM, (A, B, C), **config), backend)
    inputs = [on(one, backend) for one in (A, B, C)]
    copied = backend.memories[CUDA0].to_device
    np.testing.assert_allclose(method.execute(inputs)[0], SUM(A, B, C), rtol=1e-6)
    assert backend.memories[CUDA0].to_device == copied


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda backend: on(A, backend, CUDA1), r"method 'forward', a: the tensor is on cuda:1; pass tensor.numpy\(\)"),
        (lambda backend: on(A[:, :2].contiguous(), backend), r"expected float32\[2, 3\], got shape \[2, 2\]"),
    ],
    ids=["another device", "another shape"],
)
def test_an_input_that_does_not_fit(
    given: Callable[[Any], Any], message: str, backend: DeviceArithmeticRuntime
) -> None:
    config = PropagateDeviceConfig(skip_h2d_for_method_inputs=True)
    method = load(lower_onto(["cuda:0"], SUM, (A, B, C), propagate_device_config=config), backend)
    with pytest.raises(InvalidArgument, match=message):
        method.execute([given(backend), B, C])


def test_a_tensor_on_a_device_is_refused_where_an_input_is_on_the_cpu(backend: DeviceArithmeticRuntime) -> None:
    method = load(lower_onto(["cuda:0"], SUM, (A, B, C)), backend)
    with pytest.raises(InvalidArgument, match=r"the tensor is on cuda:0; pass tensor.numpy\(\)"):
        method.execute([on(A, backend), B, C])


def test_a_layout_that_the_program_does_not_expect(backend: DeviceArithmeticRuntime) -> None:
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    config = {"propagate_device_config": PropagateDeviceConfig(True), "alloc_graph_input": False}
    method = load(lower_onto(["cuda:0"], Formula(lambda a, b, c: a + b), (image, image * 2, A), **config), backend)
    contiguous = on(image.contiguous(), backend)
    with pytest.raises(InvalidArgument, match=r"lies on cuda:0 in the order of strides \(240, .*give it in that order"):
        method.execute([contiguous, contiguous, A])


def test_outputs_stay_on_their_device(backend: DeviceArithmeticRuntime) -> None:
    config = PropagateDeviceConfig(skip_d2h_for_method_outputs=True)
    program = lower_onto(["cuda:0"], SUM, (A, B, C), propagate_device_config=config)
    assert calls(plan_of(program)) == ["h2d", "h2d", "cuda:0", "h2d", "cuda:0"]
    method = load(program, backend)
    (first,) = method.execute([A, B, C])
    (view,) = method.execute([C, B, A], clone_outputs=False)
    assert (str(first.device), first.shape, first.ndim, first.dtype) == ("cuda:0", (2, 3), 2, np.float32)
    np.testing.assert_allclose(first.numpy(), SUM(A, B, C), rtol=1e-6)
    np.testing.assert_allclose(view.numpy(), SUM(C, B, A), rtol=1e-6)
    method.execute([B, C, A])
    np.testing.assert_allclose(view.numpy(), SUM(B, C, A), rtol=1e-6)


def test_one_method_goes_on_where_another_stopped(backend: DeviceArithmeticRuntime) -> None:
    config = PropagateDeviceConfig({"second": True}, {"first": True})
    models = {"first": SUM, "second": Formula(lambda a, b, c: a + b)}
    program = lower_onto(["cuda:0"], models, (A, B, C), propagate_device_config=config)
    middle = load(program, backend, "first").execute([A, B, C])[0]
    second = load(program, backend, "second")
    np.testing.assert_allclose(second.execute([middle, B, C])[0], SUM(A, B, C) + B, rtol=1e-6)
    by_method = {"second": PropagateDeviceConfig(True), "first": PropagateDeviceConfig(False, True)}
    again = lower_onto(["cuda:0"], models, (A, B, C), propagate_device_config=by_method)
    assert bytes(again) == bytes(program)


def test_an_input_that_is_changed_and_a_result_that_is_kept_are_copied(backend: DeviceArithmeticRuntime) -> None:
    def formula(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        a.add_(b)
        return a * c

    config = {"propagate_device_config": PropagateDeviceConfig(True, True)}
    program = lower_onto(["cuda:0"], Formula(formula), (A, B, C), **config)
    assert calls(plan_of(program)) == ["h2d", "cuda:0", "d2h", "cuda:0", "copy_"]
    (result,) = load(program, backend).execute([A, on(B, backend), on(C, backend)])
    np.testing.assert_allclose(result.numpy(), SUM(A, B, C), rtol=1e-6)


# ---- without memory on devices ---------------------------------------------------------------------


def test_without_planning_for_devices_tensors_are_tagged_and_lie_on_the_cpu() -> None:
    program = lower_onto(["cuda:0"], SUM, (A, B, C), enable_non_cpu_memory_planning=False)
    plan = plan_of(program)
    assert calls(plan) == ["cuda:0", "cuda:0"]
    assert plan.non_const_buffer_device is None
    assert len(on_devices(program)) == 5
    torch.testing.assert_close(load(program, OnHost()).execute([A, B, C]), [SUM(A, B, C)])


class OnHost(DeviceArithmeticRuntime):
    """The same on plain arrays."""

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        *inputs, out = args
        np.copyto(out, handle[0](*inputs))


# ---- the pass --------------------------------------------------------------------------------------


def test_the_pass_run_by_the_user_is_not_run_twice(backend: DeviceArithmeticRuntime) -> None:
    passes = [PropagateDevicePass(skip_d2h_for_method_outputs=True, enable_non_cpu_memory_planning=True)]
    program = lower_onto(["cuda:0"], SUM, (A, B, C), passes=passes)
    assert calls(plan_of(program)) == ["h2d", "h2d", "cuda:0", "h2d", "cuda:0"]
    assert "# on cuda:0" in program_text(program.program.exported_program())


def test_options_that_leave_out_what_is_not_there() -> None:
    with pytest.raises(ValueError, match="with enable_non_cpu_memory_planning=True alone"):
        PropagateDevicePass(skip_h2d_for_method_inputs=True)


@pytest.mark.parametrize(
    ("model", "devices", "config", "message"),
    [
        (SUM, "npu:0", {}, r"compile spec 'target_device': Unknown device type 'npu'\. Valid types: CPU, CUDA"),
        (SUM, "cuda:x", {}, "'cuda:x': the device's number is a whole number from 0 to 127"),
        (SUM, "cuda:128", {}, "'cuda:128': the device's number is a whole number from 0 to 127"),
        (
            Formula(lambda a, b, c: (a + b).relu() * a),
            "cuda:0",
            {"propagate_device_config": PropagateDeviceConfig(True)},
            r"skip_h2d_for_method_inputs: the input 'a' has 2 users .*cannot lie on cuda:0 for one of them",
        ),
        (SUM, "cuda:0", {"propagate_device_config": True}, "is bool; it takes a delegraph.aot.PropagateDeviceConfig"),
        (SUM, "cuda:0", {"propagate_device_config": {"nowhere": PropagateDeviceConfig()}}, "nowhere"),
        (SUM, "cuda:0", {"propagate_device_config": PropagateDeviceConfig({"nowhere": True})}, "nowhere"),
        (
            SUM,
            "cuda:0",
            {"propagate_device_config": PropagateDeviceConfig(True), "enable_non_cpu_memory_planning": False},
            "enable_non_cpu_memory_planning=False puts none in; leave one of the two off",
        ),
        (
            SUM,
            "cuda:0",
            {"propagate_device_config": PropagateDeviceConfig(False, True), "alloc_graph_output": False},
            "leave alloc_graph_output=True",
        ),
    ],
    ids=["type", "number", "large", "readers", "config", "method", "inner method", "no planning", "no output memory"],
)
def test_what_is_refused_when_lowering(model: nn.Module, devices: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(LoweringError, match=message):
        lower_onto([devices], model, (A, B, C), **config)


def test_a_memory_of_the_cpus_cannot_be_asked_for_on_a_device() -> None:
    def ask(module: torch.fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.op == "call_function" and "call_delegate" in str(node.target):
                node.meta["memory_id"] = 3

    with pytest.raises(LoweringError, match=r"memory_id.*is 3, a memory of the CPU's, but the tensor lies on cuda:0"):
        lower_onto(["cuda:0"], SUM, (A, B, C), passes=[ask])


def test_a_planning_pass_that_mixes_memories_is_refused() -> None:
    class Mixing(MemoryPlanningPass):
        def plan(self, method: MethodMemory, planner: MemoryPlanner) -> MethodPlan:
            plan = super().plan(method, planner)
            return MethodPlan(plan.lifetimes, plan.plan)

    with pytest.raises(PluginError, match=r"which lies on cuda:0, into memory 2, which is on cpu:0; keep the memories"):
        lower_onto(["cuda:0"], SUM, (A, B, C), memory_planning_pass=Mixing())


def test_custom_memories_of_the_cpu_stand_before_those_of_devices(backend: DeviceArithmeticRuntime) -> None:
    def ask(module: torch.fx.GraphModule) -> None:
        for node in module.graph.find_nodes(op="placeholder"):
            node.meta["memory_id"] = 4

    program = lower_onto(["cuda:0"], SUM, (A, B, C), passes=[ask])
    (device,) = plan_of(program).non_const_buffer_device or ()
    assert device.buffer_idx == 5
    torch.testing.assert_close(load(program, backend).execute([A, B, C]), [SUM(A, B, C)])
