"""Records of an execution plan -> tables of `schema/program.fbs`, as the flatbuffer builder takes them.

The union code of a value or an instruction is its position in `VALUES` or `INSTRUCTIONS`, plus one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from delegraph.program._generated import program_tables as tables
from delegraph.program.flatbuffer_builder import Table, Tables, Vector, numbers
from delegraph.program.schema import (
    AllocationDetails,
    BackendDelegate,
    Bool,
    BoolList,
    Chain,
    CompileSpec,
    ContainerMetadata,
    DelegateCall,
    Double,
    DoubleList,
    ExecutionPlan,
    ExtraTensorInfo,
    Frame,
    FreeCall,
    Instruction,
    Int,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    NonConstBufferDevice,
    Null,
    Operator,
    OptionalTensorList,
    String,
    Tensor,
    TensorList,
    Value,
)
from delegraph.program.table_layout import TableLayout


def execution_plan(plan: ExecutionPlan, data_references: Sequence[Table]) -> Table:
    """The table of one method. `data_references[i]` is the reference to the program's delegate blob `i`."""
    devices = plan.non_const_buffer_device
    return tables.EXECUTION_PLAN, (
        plan.name,
        _container_metadata(plan.container_meta_type),
        Tables(_value, plan.values),
        numbers("i", plan.inputs),
        numbers("i", plan.outputs),
        Tables(_chain, plan.chains),
        Tables(_operator, plan.operators),
        Tables(lambda delegate: _delegate(delegate, data_references[delegate.processed]), plan.delegates),
        numbers("q", plan.non_const_buffer_sizes),
        None if devices is None else Tables(_buffer_device, devices),
    )


def _container_metadata(metadata: ContainerMetadata) -> Table:
    return tables.CONTAINER_METADATA, (metadata.encoded_inp_str, metadata.encoded_out_str)


def _operator(operator: Operator) -> Table:
    return tables.OPERATOR, (operator.name, operator.overload)


def _delegate(delegate: BackendDelegate, reference: Table) -> Table:
    return tables.BACKEND_DELEGATE, (
        delegate.id,
        reference,
        Tables(_compile_spec, delegate.compile_specs),
    )


def _compile_spec(spec: CompileSpec) -> Table:
    return tables.COMPILE_SPEC, (spec.key, Vector(spec.value, len(spec.value), 1))


def _buffer_device(device: NonConstBufferDevice) -> Table:
    return tables.NON_CONST_BUFFER_DEVICE, (device.buffer_idx, device.device_type, device.device_index)


# ---- values ----------------------------------------------------------------------------------------


def _value(value: Value) -> Table:
    code, encode = _VALUE_ENCODERS[type(value)]
    return tables.EVALUE, (code, encode(value))


def _tensor(tensor: Tensor) -> Table:
    return tables.TENSOR, (
        tensor.scalar_type,
        tensor.storage_offset,
        numbers("i", tensor.sizes),
        numbers("B", tensor.dim_order),
        tensor.requires_grad,
        tensor.data_buffer_idx,
        None if tensor.allocation_info is None else _allocation(tensor.allocation_info),
        tensor.layout,
        tensor.shape_dynamism,
        None if tensor.extra_tensor_info is None else _extra_tensor_info(tensor.extra_tensor_info),
    )


def _allocation(allocation: AllocationDetails) -> Table:
    high, low = divmod(allocation.memory_offset, 2**32)
    return tables.ALLOCATION_DETAILS, (allocation.memory_id, low, high)


def _extra_tensor_info(info: ExtraTensorInfo) -> Table:
    return tables.EXTRA_TENSOR_INFO, (
        info.mutable_data_segments_idx,
        info.fully_qualified_name,
        info.location,
        info.device_type,
        info.device_index,
    )


def _list(layout: TableLayout, code: str) -> Callable[[Any], Table]:
    return lambda value: (layout, (numbers(code, value.items),))


VALUES: Final[tuple[tuple[type[Any], Callable[[Any], Table]], ...]] = (
    (Null, lambda value: (tables.NULL, ())),
    (Int, lambda value: (tables.INT, (value.value,))),
    (Bool, lambda value: (tables.BOOL, (value.value,))),
    (Double, lambda value: (tables.DOUBLE, (value.value,))),
    (Tensor, _tensor),
    (String, lambda value: (tables.STRING, (value.value,))),
    (IntList, _list(tables.INT_LIST, "q")),
    (DoubleList, _list(tables.DOUBLE_LIST, "d")),
    (BoolList, _list(tables.BOOL_LIST, "?")),
    (TensorList, _list(tables.TENSOR_LIST, "i")),
    (OptionalTensorList, _list(tables.OPTIONAL_TENSOR_LIST, "i")),
)
_VALUE_ENCODERS: Final = {kind: (code, encode) for code, (kind, encode) in enumerate(VALUES, start=1)}


# ---- instructions ----------------------------------------------------------------------------------


def _chain(chain: Chain) -> Table:
    return tables.CHAIN, (
        numbers("i", chain.inputs),
        numbers("i", chain.outputs),
        Tables(_instruction, chain.instructions),
        None if chain.stacktrace is None else Tables(_frame_list, chain.stacktrace),
    )


def _instruction(instruction: Instruction) -> Table:
    code, encode = _INSTRUCTION_ENCODERS[type(instruction)]
    return tables.INSTRUCTION, (code, encode(instruction))


def _frame_list(frames: tuple[Frame, ...]) -> Table:
    return tables.FRAME_LIST, (Tables(_frame, frames),)


def _frame(frame: Frame) -> Table:
    return tables.FRAME, (frame.filename, frame.lineno, frame.name, frame.context)


INSTRUCTIONS: Final[tuple[tuple[type[Any], Callable[[Any], Table]], ...]] = (
    (KernelCall, lambda call: (tables.KERNEL_CALL, (call.op_index, numbers("i", call.args)))),
    (DelegateCall, lambda call: (tables.DELEGATE_CALL, (call.delegate_index, numbers("i", call.args)))),
    (MoveCall, lambda call: (tables.MOVE_CALL, (call.move_from, call.move_to))),
    (JumpFalseCall, lambda call: (tables.JUMP_FALSE_CALL, (call.cond_value_index, call.destination_instruction))),
    (FreeCall, lambda call: (tables.FREE_CALL, (call.value_index,))),
)
_INSTRUCTION_ENCODERS: Final = {kind: (code, encode) for code, (kind, encode) in enumerate(INSTRUCTIONS, start=1)}
