"""Program with delegates for a device -> the same, with copies to that device and back around them.

A delegate is for a device where a compile spec of it, "target_device", says so (b"cuda:0"):

    %x                                           %x
    %call = call_delegate(delegate_0, %x)  ->    %h2d = et_copy._h2d_copy.default(%x)       on cuda:0
    %result = getitem(%call, 0)                  %call = call_delegate(delegate_0, %h2d)    on cuda:0
    return %result                               %result = getitem(%call, 0)                on cuda:0
                                                 %d2h = et_copy._d2h_copy.default(%result)
                                                 return %d2h

A result that another delegate on the same device takes stays there. Memory planning keeps the memories of devices apart
(`emission/memory.py`), and the runtime gets theirs from the delegates' backend
(`delegraph.interfaces.BackendInterface.device_allocator`). (ExecuTorch's `exir/passes/propagate_device_pass.py`.)
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from operator import is_not

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from delegraph.aot.delegation.lowered_module import get_lowered_module, is_delegate_call
from delegraph.aot.edge.device_copy_ops import D2H_COPY, H2D_COPY
from delegraph.aot.graph.bodies import graph_modules
from delegraph.aot.graph.devices import DEVICE, device_of
from delegraph.aot.graph.signature import ResolvedSignature
from delegraph.aot.graph.source_location import user_location
from delegraph.errors import LoweringError
from delegraph.interfaces.graph_pass import ExportedProgramPassBase, ExportedProgramPassResult
from delegraph.program.devices import CPU, Device, target_device

__all__ = ["PropagateDevicePass"]

_ORIGIN = ("stack_trace", "nn_module_stack")
"""The entries of a call's `meta` that say where in the user's model it comes from."""


class PropagateDevicePass(ExportedProgramPassBase):
    """Says of each node on which device its results lie and, with `enable_non_cpu_memory_planning`, puts in copies.

    `skip_h2d_for_method_inputs` puts none between an input of the method and the one delegate that takes it: the caller
    gives it on the device. `skip_d2h_for_method_outputs` puts none behind a result that the method does nothing with
    but return: the caller gets it there. Both leave copies out and need `enable_non_cpu_memory_planning`. Without that,
    everything lies in the CPU's memory, and what delegates take and give is only tagged with their device.
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

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Edit the program's graph and the bodies in it. Raises `LoweringError` for a device that there is not, and for
        an input without copy that others read too.
        """
        modules = [module for _, module in graph_modules(exported_program.graph_module) if _calls_for_devices(module)]
        if not modules:
            return ExportedProgramPassResult(exported_program, False)
        signature = ResolvedSignature.of(exported_program)
        # a value that is written back lies where its state lies, in the CPU's memory
        changed = {write_back.target for write_back in signature.write_backs}
        written = {write_back.source for write_back in signature.write_backs}
        inputs = {node for node in signature.inputs if node not in changed}
        outputs = {node for node in signature.outputs if isinstance(node, Node) and node not in written}
        for module in modules:
            self.propagate(module, inputs, outputs)
        return ExportedProgramPassResult(exported_program, True)

    def propagate(self, module: GraphModule, inputs: Collection[Node], outputs: Collection[Node]) -> bool:
        """Edit one graph; whether there was anything to do.

        `inputs` and `outputs` are nodes that the caller may give and get on the device.
        """
        devices = _calls_for_devices(module)
        for call, device in devices.items():
            call.meta[DEVICE] = device
            self._bring(call, device, inputs)
            self._fetch(call, device, outputs)
        if devices:
            _leave_out_round_trips(module)
            module.recompile()
        return bool(devices)

    def _bring(self, call: Node, device: Device, inputs: Collection[Node]) -> None:
        """Let `call` read its arguments on the device."""
        for argument in [node for node in call.all_input_nodes if isinstance(node.meta.get("val"), torch.Tensor)]:
            if not self.enable_non_cpu_memory_planning:
                argument.meta[DEVICE] = device
            elif self.skip_h2d_for_method_inputs and argument in inputs:
                _check_one_reader(argument, device)
                argument.meta[DEVICE] = device
            else:
                with call.graph.inserting_before(call):
                    call.replace_input_with(argument, _copy(H2D_COPY, argument, call, device))

    def _fetch(self, call: Node, device: Device, outputs: Collection[Node]) -> None:
        """Let the readers of the results of `call` read copies of them on the CPU."""
        for result in [user for user in call.users if isinstance(user.meta.get("val"), torch.Tensor)]:
            result.meta[DEVICE] = device
            returned = result in outputs and all(user.op == "output" for user in result.users)
            if self.enable_non_cpu_memory_planning and not (self.skip_d2h_for_method_outputs and returned):
                with call.graph.inserting_after(result):
                    copied = _copy(D2H_COPY, result, call, CPU)
                # all readers but the copy itself
                result.replace_all_uses_with(copied, delete_user_cb=partial(is_not, copied))


def _calls_for_devices(module: GraphModule) -> dict[Node, Device]:
    """The calls of delegates that are for a device, but for those which the pass has met before."""
    calls = [node for node in module.graph.nodes if is_delegate_call(node) and device_of(node) == CPU]
    return {call: device for call in calls if (device := _target(module, call)) != CPU}


def _target(module: GraphModule, call: Node) -> Device:
    lowered = get_lowered_module(module, call)
    try:
        return target_device(lowered.compile_specs)
    except ValueError as error:
        raise LoweringError(
            f"backend {lowered.backend_id!r}, compile spec 'target_device': {error}",
            node=call.name,
            location=user_location(call),
        ) from error


def _check_one_reader(argument: Node, device: Device) -> None:
    if len(argument.users) != 1:
        readers = ", ".join(user.name for user in argument.users)
        raise LoweringError(
            f"skip_h2d_for_method_inputs: the input {argument.name!r} has {len(argument.users)} users ({readers}), so"
            f" that it cannot lie on {device} for one of them; leave the option off for this method, or give the model"
            " one input for each",
            node=argument.name,
            location=user_location(next(iter(argument.users))),
        )


def _copy(op: OpOverload, source: Node, call: Node, device: Device) -> Node:
    """A copy, at the graph's point of insertion, of `source`, which `call` takes or gives."""
    copied = source.graph.call_function(op, (source,))
    copied.meta = {"val": op(source.meta["val"])} | {key: call.meta[key] for key in _ORIGIN if key in call.meta}
    if device != CPU:
        copied.meta[DEVICE] = device
    return copied


def _leave_out_round_trips(module: GraphModule) -> None:
    """Replace each copy back to the device that its value came from by that value: h2d(d2h(v)) -> v."""
    for back in module.graph.find_nodes(op="call_function", target=H2D_COPY):
        fetched = back.args[0]
        there = fetched.args[0] if fetched.target == D2H_COPY else None
        if isinstance(there, Node) and device_of(there) == device_of(back):
            back.replace_all_uses_with(there)
            module.graph.erase_node(back)
            if not fetched.users:  # readers on the CPU still need it
                module.graph.erase_node(fetched)
