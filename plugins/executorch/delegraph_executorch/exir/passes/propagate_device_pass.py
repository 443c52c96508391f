"""GraphModule with delegates for a device -> the same, with copies around them, and each `TensorSpec` with its device.

`delegraph.aot.PropagateDevicePass`, which every lowering runs, on graphs whose nodes have specs.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from delegraph import aot
from delegraph.aot import PropagateDeviceConfig, device_of
from delegraph.program import TARGET_DEVICE_COMPILE_SPEC_KEY, Device, target_device
from delegraph_executorch.exir.schema import DeviceType
from delegraph_executorch.exir.tensor import TensorSpec

__all__ = ["TARGET_DEVICE_COMPILE_SPEC_KEY", "PropagateDeviceConfig", "PropagateDevicePass"]


class PropagateDevicePass(PassBase):
    """All placeholders count as inputs of the method here: a graph alone does not say which are weights."""

    def __init__(
        self,
        skip_h2d_for_method_inputs: bool = False,
        skip_d2h_for_method_outputs: bool = False,
        enable_non_cpu_memory_planning: bool = False,
    ) -> None:
        self._pass = aot.PropagateDevicePass(
            skip_h2d_for_method_inputs, skip_d2h_for_method_outputs, enable_non_cpu_memory_planning
        )

    def call(self, graph_module: GraphModule) -> PassResult:
        """Edit the graph in place. Raises as the pass of `delegraph.aot`."""
        graph = graph_module.graph
        inputs = graph.find_nodes(op="placeholder")
        modified = self._pass.propagate(graph_module, inputs, graph.output_node().all_input_nodes)
        for node in graph.nodes:
            _place(node)
        return PassResult(graph_module, modified)


def _place(node: Node) -> None:
    """Let the specs of `node` say where it lies; a copy's is that of what it copies, with a place of its own."""
    held, device = node.meta.get("spec"), device_of(node)
    if held is None and str(node.target).startswith("et_copy.") and "spec" in node.all_input_nodes[0].meta:
        held = node.meta["spec"] = copy(node.all_input_nodes[0].meta["spec"])
        held.init_mem_planning_fields()
    for spec in held if isinstance(held, (tuple, list)) else (held,):
        if isinstance(spec, TensorSpec):
            spec.device, spec.device_index = device.type, device.index


def _parse_device_spec_value(value: bytes) -> tuple[DeviceType, int]:
    """`b"cuda:0"` -> CUDA, 0."""
    device = Device.parse(value.decode("utf-8"))
    return device.type, device.index


def _get_target_device_from_compile_specs(lowered_module: Any) -> tuple[DeviceType, int] | None:
    """The device that the compile specs of a lowered module name."""
    if all(spec.key != TARGET_DEVICE_COMPILE_SPEC_KEY for spec in lowered_module.compile_specs):
        return None
    device = target_device(lowered_module.compile_specs)
    return device.type, device.index
