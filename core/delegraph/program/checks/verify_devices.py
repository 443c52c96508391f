"""One method -> its violations of where tensors may lie: each in memory of its own device, and read only there.

Kernels work in the CPU's memory, a delegate on its own device; `et_copy` is the way between. ExecuTorch finds out when
a kernel of it runs (`kernels/portable/cpu/op__device_copy.cpp`), or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping

from delegraph.program.checks.field_checks import Violations
from delegraph.program.devices import CPU, Device, memory_devices, tagged_device, target_device, tensor_device
from delegraph.program.prim_op_names import D2H_COPY, DEVICE_COPIES
from delegraph.program.schema import DelegateCall, ExecutionPlan, KernelCall, Tensor
from delegraph.program.walk import instructions, operands, tensor_indices

__all__ = ["device_violations"]


def device_violations(plan: ExecutionPlan) -> Violations:
    """The violations of `plan`, all of whose indices are valid. Of a method without devices nothing is looked at."""
    memories = memory_devices(plan.non_const_buffer_device)
    operators = [str(operator) for operator in plan.operators]
    if not memories and DEVICE_COPIES.isdisjoint(operators):
        return
    yield from _placing_violations(plan, memories)
    for (chain, position), instruction in instructions(plan):
        where = f".chains[{chain}].instructions[{position}]"
        if isinstance(instruction, KernelCall) and operators[instruction.op_index] in DEVICE_COPIES:
            name = operators[instruction.op_index]
            yield from (f"{where}: {problem}" for problem in _copy_violations(plan, name, instruction.args, memories))
            continue
        device, who = CPU, "a call that runs on the CPU"
        if isinstance(instruction, DelegateCall):
            specs = plan.delegates[instruction.delegate_index].compile_specs
            try:
                device = target_device(specs)
                who = f"delegate {instruction.delegate_index}, which is for {device},"
            except ValueError as error:
                yield f".delegates[{instruction.delegate_index}].compile_specs: {error}"
        for index in dict.fromkeys(tensor_indices(operands(instruction), plan.values)):
            place = _planned_on(plan, index, memories)
            if place not in (CPU, device):
                yield f"{where}: {who} is given value {index}, which lies on {place}"


def _placing_violations(plan: ExecutionPlan, memories: Mapping[int, Device]) -> Violations:
    """A tensor in a device's memory says so itself: who reads one of the two must not be misled."""
    for index, tensor in enumerate(plan.values):
        if isinstance(tensor, Tensor):
            place, tag = _planned_on(plan, index, memories), tagged_device(tensor)
            if place not in (CPU, tag):
                yield f".values[{index}].extra_tensor_info: the tensor is tagged as on {tag}, its memory is on {place}"


def _copy_violations(
    plan: ExecutionPlan, name: str, args: tuple[int, ...], memories: Mapping[int, Device]
) -> Violations:
    operand_values = [plan.values[index] for index in args]
    if len(operand_values) != 3 or args[1] != args[2] or not all(isinstance(value, Tensor) for value in operand_values):
        yield f"{name} takes a tensor and the tensor to copy it to, got {len(args)} values"
        return
    source, out = operand_values[0], operand_values[1]
    assert isinstance(source, Tensor) and isinstance(out, Tensor)
    if source.scalar_type is not out.scalar_type:
        yield f"{name} copies {source.scalar_type.name} to {out.scalar_type.name}; it does not convert"
    ends = (tensor_device(source, memories), tensor_device(out, memories))
    on_device, on_cpu = ends if name == D2H_COPY else ends[::-1]
    if on_device == CPU or on_cpu != CPU:
        way = "from a device to the CPU" if name == D2H_COPY else "from the CPU to a device"
        yield f"{name} copies {way}, but value {args[0]} lies on {ends[0]} and value {args[1]} on {ends[1]}"


def _planned_on(plan: ExecutionPlan, index: int, memories: Mapping[int, Device]) -> Device:
    tensor = plan.values[index]
    assert isinstance(tensor, Tensor)
    return CPU if tensor.allocation_info is None else memories.get(tensor.allocation_info.memory_id, CPU)
