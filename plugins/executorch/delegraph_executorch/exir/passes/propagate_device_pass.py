"""GraphModule with delegates for a device -> the same, with copies to that device and back around them.

A delegate is for a device where its compile specs have a "target_device" (b"cuda:0"). The copies are `et_copy` calls,
which need ExecuTorch's runtime with an allocator for the device: Delegraph's has the CPU's memory alone.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from copy import copy
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from delegraph.aot import is_delegate_call
from delegraph_executorch.exir.passes import _device_copy_ops_registry  # noqa: F401 - registers `et_copy`
from delegraph_executorch.exir.passes.propagate_device_config import PropagateDeviceConfig
from delegraph_executorch.exir.schema import DeviceType
from delegraph_executorch.exir.tensor import TensorSpec

__all__ = ["TARGET_DEVICE_COMPILE_SPEC_KEY", "PropagateDeviceConfig", "PropagateDevicePass"]

TARGET_DEVICE_COMPILE_SPEC_KEY: Final = "target_device"
"""The compile spec by which a partitioner says which device a delegate is for."""

Device = tuple[DeviceType, int]


class PropagateDevicePass(PassBase):
    """Sets `device` of the specs of what delegates take and give, and with `enable_non_cpu_memory_planning` copies.

    `skip_h2d_for_method_inputs` has no copy before a delegate where it reads an input of the method;
    `skip_d2h_for_method_outputs` none behind one whose result the method returns.
    """

    def __init__(
        self,
        skip_h2d_for_method_inputs: bool = False,
        skip_d2h_for_method_outputs: bool = False,
        enable_non_cpu_memory_planning: bool = False,
    ) -> None:
        if (skip_h2d_for_method_inputs or skip_d2h_for_method_outputs) and not enable_non_cpu_memory_planning:
            raise ValueError(
                "skip_h2d_for_method_inputs and skip_d2h_for_method_outputs leave copies out, which there are with"
                " enable_non_cpu_memory_planning=True alone"
            )
        self.skip_h2d_for_method_inputs = skip_h2d_for_method_inputs
        self.skip_d2h_for_method_outputs = skip_d2h_for_method_outputs
        self.enable_non_cpu_memory_planning = enable_non_cpu_memory_planning

    def call(self, graph_module: GraphModule) -> PassResult:
        """Edit the graph in place."""
        devices = {call: _device_of(graph_module, call) for call in graph_module.graph.nodes if is_delegate_call(call)}
        on_device = {call: device for call, device in devices.items() if device is not None}
        for call, device in on_device.items():
            self._bring(graph_module, call, device)
            _place(_specs(call), device)
        for call, device in on_device.items():
            for result in [user for user in call.users if user.target is operator.getitem]:
                self._fetch(graph_module, result, device)
        if on_device:
            _leave_out_round_trips(graph_module)
        graph_module.recompile()
        return PassResult(graph_module, bool(on_device))

    def _bring(self, module: GraphModule, call: Node, device: Device) -> None:
        """Let `call` read its arguments on the device."""
        for argument in [node for node in call.all_input_nodes if _specs(node) and node.op != "get_attr"]:
            if not self.enable_non_cpu_memory_planning:
                _place(_specs(argument), device)
            elif self.skip_h2d_for_method_inputs and argument.op == "placeholder":
                _place(_specs(_used_once(argument)), device)
            else:
                with module.graph.inserting_before(call):
                    copied = module.graph.call_function(torch.ops.et_copy._h2d_copy.default, (argument,))
                copied.meta = _meta_on(argument, device)
                call.replace_input_with(argument, copied)

    def _fetch(self, module: GraphModule, result: Node, device: Device) -> None:
        """Let what reads `result` read it on the CPU."""
        _place(_specs(result), device)
        returned = all(user.op == "output" for user in result.users)
        if not self.enable_non_cpu_memory_planning or (self.skip_d2h_for_method_outputs and returned):
            return
        with module.graph.inserting_after(result):
            copied = module.graph.call_function(torch.ops.et_copy._d2h_copy.default, (result,))
        copied.meta = _meta_on(result, (DeviceType.CPU, 0))
        result.replace_all_uses_with(copied, delete_user_cb=lambda user: user is not copied)


def _parse_device_spec_value(value: bytes) -> Device:
    """`b"cuda:0"` -> CUDA, 0."""
    name, _, index = value.decode("utf-8").strip().lower().partition(":")
    for device in DeviceType:
        if device.name.lower() == name:
            return device, int(index or 0)
    raise ValueError(f"Unknown device type '{name}'. Valid types: {', '.join(device.name for device in DeviceType)}")


def _get_target_device_from_compile_specs(lowered_module: Any) -> Device | None:
    """The device that the compile specs of a lowered module name."""
    for spec in lowered_module.compile_specs:
        if spec.key == TARGET_DEVICE_COMPILE_SPEC_KEY:
            return _parse_device_spec_value(spec.value)
    return None


def _device_of(module: GraphModule, call: Node) -> Device | None:
    reference = call.args[0]
    assert isinstance(reference, Node)
    return _get_target_device_from_compile_specs(getattr(module, str(reference.target)))


def _specs(node: Node) -> list[TensorSpec]:
    held = node.meta.get("spec")
    return [spec for spec in (held if isinstance(held, (tuple, list)) else (held,)) if isinstance(spec, TensorSpec)]


def _place(specs: Iterable[TensorSpec], device: Device) -> None:
    for spec in specs:
        spec.device, spec.device_index = device


def _meta_on(node: Node, device: Device) -> dict[str, Any]:
    """The metadata of a copy of `node` on a device."""
    spec = copy(node.meta["spec"])
    spec.init_mem_planning_fields()
    _place([spec], device)
    return {"val": node.meta.get("val"), "spec": spec}


def _used_once(placeholder: Node) -> Node:
    if len(placeholder.users) != 1:
        raise RuntimeError(
            f"skip_h2d_for_method_inputs=True: the input '{placeholder.name}' has {len(placeholder.users)} users, so"
            " that it cannot lie on the device of one of them"
        )
    return placeholder


def _leave_out_round_trips(module: GraphModule) -> None:
    """A copy back to the device where a value came from is that value."""
    for back in module.graph.find_nodes(op="call_function", target=torch.ops.et_copy._h2d_copy.default):
        fetched = back.args[0]
        if not isinstance(fetched, Node) or fetched.target != torch.ops.et_copy._d2h_copy.default:
            continue
        (there,), (here,) = _specs(fetched.args[0]), _specs(back)  # type: ignore[arg-type]
        if (there.device, there.device_index) == (here.device, here.device_index):
            back.replace_all_uses_with(fetched.args[0])
            module.graph.erase_node(back)
    module.graph.eliminate_dead_code()
