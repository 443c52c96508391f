"""Program -> text: one line per value and per instruction, for golden tests and for reading.

    method forward
      inputs %0
      outputs %3
      memory 1: 48 bytes
      %0 = tensor float [2, 3] at 1+0
      %1 = tensor float [2, 3] constant 1
      %2 = int 1
      %3 = tensor float [2, 3] at 1+24
      chain 0
        0: aten::add.out(%0, %1, %2, %3, %3)

The text depends on the program alone. `read_text.py` reads it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from delegraph.errors import printable
from delegraph.program.checks.verify_values import is_external
from delegraph.program.devices import CPU, memory_devices, tagged_device
from delegraph.program.schema import (
    BackendDelegate,
    Bool,
    BoolList,
    Chain,
    DelegateCall,
    Double,
    DoubleList,
    ExecutionPlan,
    FreeCall,
    Int,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Null,
    OptionalTensorList,
    Program,
    String,
    Tensor,
    TensorList,
    TensorShapeDynamism,
)


def to_text(program: Program) -> str:
    """The whole program, data by their sizes only. `program` must have passed `verify_program`."""
    return "\n".join(_program(program)) + "\n"


def _program(program: Program) -> Iterator[str]:
    yield f"program version {program.version}"
    for label, buffers in (("constant", program.constants[1:]), ("mutable data", program.mutable_data[1:])):
        yield from (f"{label} {index}: {_size(data)}" for index, data in enumerate(buffers, start=1))
    yield from (f"blob {index}: {_size(data)}" for index, data in enumerate(program.delegate_data))
    for key, entry in program.named_data.items():
        yield f"named data {key!r}: {_size(entry.data)}"
    for plan in program.execution_plan:
        yield ""
        yield from _plan(plan)


def _plan(plan: ExecutionPlan) -> Iterator[str]:
    yield f"method {printable(plan.name)}"
    yield from _indented(_plan_head(plan))
    for index, value in enumerate(plan.values):
        yield f"  %{index} = {_VALUES[type(value)](value)}"
    for index, chain in enumerate(plan.chains):
        yield f"  chain {index}"
        yield from _indented(_indented(_chain(chain, plan)))


def _plan_head(plan: ExecutionPlan) -> Iterator[str]:
    yield f"inputs {_values(plan.inputs)}".rstrip()
    yield f"outputs {_values(plan.outputs)}".rstrip()
    meta = plan.container_meta_type
    specs = (("in_spec", meta.encoded_inp_str), ("out_spec", meta.encoded_out_str))
    yield from (f"{label} {printable(spec)}" for label, spec in specs if spec)
    devices = memory_devices(plan.non_const_buffer_device)
    for memory_id, size in enumerate(plan.non_const_buffer_sizes[1:], start=1):
        where = f" on {devices[memory_id]}" if memory_id in devices else ""
        yield f"memory {memory_id}: {size} bytes{where}"
    yield from (f"delegate {index}: {_delegate(delegate)}" for index, delegate in enumerate(plan.delegates))


def _delegate(delegate: BackendDelegate) -> str:
    specs = "".join(f", {printable(spec.key)}={spec.value!r}" for spec in delegate.compile_specs)
    return f"{printable(delegate.id)}, blob {delegate.processed}{specs}"


# ---- values ----------------------------------------------------------------------------------------


DYNAMISM: Final = {
    TensorShapeDynamism.STATIC: "",
    TensorShapeDynamism.DYNAMIC_BOUND: "up to ",
    TensorShapeDynamism.DYNAMIC_UNBOUND: "unbounded ",
}


def _tensor(tensor: Tensor) -> str:
    shape = ", ".join(map(str, tensor.sizes))
    kind = f"tensor {tensor.scalar_type.name.lower()} {DYNAMISM[tensor.shape_dynamism]}[{shape}]"
    return " ".join([kind, *_tensor_remarks(tensor), _tensor_place(tensor)])


def _tensor_remarks(tensor: Tensor) -> Iterator[str]:
    """The properties in which a tensor differs from most."""
    if tensor.dim_order != tuple(range(len(tensor.sizes))):
        yield f"order ({', '.join(map(str, tensor.dim_order))})"
    if tensor.requires_grad:
        yield "requires_grad"


def _tensor_place(tensor: Tensor) -> str:
    """The place of its bytes, their initial content, and their name; each only if there is one."""
    place, info, index = tensor.allocation_info, tensor.extra_tensor_info, tensor.data_buffer_idx
    words = [f"at {place.memory_id}+{place.memory_offset}"] if place is not None else []
    if is_external(tensor):
        words.append("external")
    elif index:
        words.append(f"constant {index}" if place is None else f"mutable data {index}")
    if info is not None and info.fully_qualified_name is not None:
        words.append(repr(info.fully_qualified_name))
    device = tagged_device(tensor)
    return (" ".join(words) or "given at run time") + (f" on {device}" if device != CPU else "")


def _optional(item: int) -> str:
    return "none" if item == -1 else f"%{item}"


_VALUES: Final[dict[type[object], Callable[[Any], str]]] = {
    Null: lambda value: "none",
    Int: lambda value: f"int {value.value}",
    Bool: lambda value: f"bool {_bool(value.value)}",
    Double: lambda value: f"double {value.value!r}",
    Tensor: _tensor,
    String: lambda value: f"string {value.value!r}",
    IntList: lambda value: f"int list [{_values(value.items)}]",
    DoubleList: lambda value: f"double list [{', '.join(map(repr, value.items))}]",
    BoolList: lambda value: f"bool list [{', '.join(map(_bool, value.items))}]",
    TensorList: lambda value: f"tensor list [{_values(value.items)}]",
    OptionalTensorList: lambda value: f"optional tensor list [{', '.join(map(_optional, value.items))}]",
}


# ---- instructions ----------------------------------------------------------------------------------


def _chain(chain: Chain, plan: ExecutionPlan) -> Iterator[str]:
    if chain.inputs or chain.outputs:
        yield f"from {_values(chain.inputs)} to {_values(chain.outputs)}"
    for index, instruction in enumerate(chain.instructions):
        yield f"{index}: {_INSTRUCTIONS[type(instruction)](instruction, plan)}{_location(chain, index)}"


def _location(chain: Chain, index: int) -> str:
    """The innermost frame of the user's code that the instruction comes from, if it was kept."""
    frames = chain.stacktrace[index] if chain.stacktrace is not None else ()
    return f"  # {printable(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


_INSTRUCTIONS: Final[dict[type[object], Callable[[Any, ExecutionPlan], str]]] = {
    KernelCall: lambda call, plan: f"{printable(str(plan.operators[call.op_index]))}({_values(call.args)})",
    DelegateCall: lambda call, plan: (
        f"delegate {call.delegate_index} {printable(plan.delegates[call.delegate_index].id)}({_values(call.args)})"
    ),
    MoveCall: lambda call, plan: f"move %{call.move_from} to %{call.move_to}",
    JumpFalseCall: lambda call, plan: f"jump to {call.destination_instruction} unless %{call.cond_value_index}",
    FreeCall: lambda call, plan: f"free %{call.value_index}",
}


# ---- words -----------------------------------------------------------------------------------------


def _values(indices: Iterable[int]) -> str:
    return ", ".join(f"%{index}" for index in indices)


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | bytearray | memoryview) -> str:
    return f"{memoryview(data).nbytes} bytes"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
