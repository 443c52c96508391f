"""Tables of `schema/program.fbs` -> records of an execution plan.

Structure is checked here and by the reader: missing parts, unknown codes of unions and enums. Meaning (index
ranges, sizes, kinds) is `verify.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from delegraph.program._generated import program_tables as tables
from delegraph.program.flatbuffer_reader import FlatBufferReader
from delegraph.program.schema import (
    AllocationDetails,
    BackendDelegate,
    Bool,
    BoolList,
    Chain,
    CompileSpec,
    ContainerMetadata,
    DelegateCall,
    DeviceType,
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
    Layout,
    MoveCall,
    NonConstBufferDevice,
    Null,
    Operator,
    OptionalTensorList,
    ScalarType,
    String,
    Tensor,
    TensorDataLocation,
    TensorList,
    TensorShapeDynamism,
    Value,
)
from delegraph.program.table_layout import TableLayout

_T = TypeVar("_T")
INLINE: Final = 0
SEGMENT: Final = 1
DataReference = tuple[int, int]
"""The location (0 inline, 1 segment) and index of a delegate's blob, as on the wire."""


def execution_plan(reader: FlatBufferReader, position: int, processed: Callable[[DataReference], int]) -> ExecutionPlan:
    """The method at `position`. `processed` turns a reference to a blob into its index in `Program.delegate_data`."""
    name, meta, values, inputs, outputs, chains, operators, delegates, buffer_sizes, devices = reader.table(
        tables.EXECUTION_PLAN, position
    )
    return ExecutionPlan(
        name=reader.string(name),
        container_meta_type=_container_metadata(reader, meta),
        values=tuple([_value(reader, at) for at in reader.tables(values)]),
        inputs=reader.vector("i", inputs),
        outputs=reader.vector("i", outputs),
        chains=tuple([_chain(reader, at) for at in reader.tables(chains)]),
        operators=tuple([_operator(reader, at) for at in reader.tables(operators)]),
        delegates=tuple([_delegate(reader, at, processed) for at in reader.tables(delegates)]),
        non_const_buffer_sizes=reader.vector("q", buffer_sizes),
        non_const_buffer_device=None
        if devices is None
        else tuple([_buffer_device(reader, at) for at in reader.tables(devices)]),
    )


def _container_metadata(reader: FlatBufferReader, position: int | None) -> ContainerMetadata:
    if position is None:
        return ContainerMetadata()
    inputs, outputs = reader.table(tables.CONTAINER_METADATA, position)
    return ContainerMetadata(reader.string(inputs), reader.string(outputs))


def _operator(reader: FlatBufferReader, position: int) -> Operator:
    name, overload = reader.table(tables.OPERATOR, position)
    return Operator(reader.string(name), reader.string(overload))


def _delegate(reader: FlatBufferReader, position: int, processed: Callable[[DataReference], int]) -> BackendDelegate:
    backend_id, reference, specs = reader.table(tables.BACKEND_DELEGATE, position)
    if reference is None:
        reader.refuse(position, "a BackendDelegate has no processed data")
    location, index = reader.table(tables.BACKEND_DELEGATE_DATA_REFERENCE, reference)
    return BackendDelegate(
        reader.string(backend_id),
        processed((location, index)),
        tuple([_compile_spec(reader, at) for at in reader.tables(specs)]),
    )


def _compile_spec(reader: FlatBufferReader, position: int) -> CompileSpec:
    key, value = reader.table(tables.COMPILE_SPEC, position)
    return CompileSpec(reader.string(key), bytes(reader.view(value)))


def _buffer_device(reader: FlatBufferReader, position: int) -> NonConstBufferDevice:
    buffer_idx, device_type, device_index = reader.table(tables.NON_CONST_BUFFER_DEVICE, position)
    return NonConstBufferDevice(buffer_idx, reader.enum(DeviceType, device_type, position), device_index)


def _by_union_code(*decoders: _T) -> dict[int, _T]:
    """The members of a union, by their codes: their positions, from 1 on (0 is none)."""
    return dict(enumerate(decoders, start=1))


# ---- values ----------------------------------------------------------------------------------------


def _value(reader: FlatBufferReader, position: int) -> Value:
    code, value = reader.table(tables.EVALUE, position)
    decoder = _VALUE_DECODERS.get(code)
    if decoder is None or value is None:
        reader.refuse(position, f"an EValue of union code {code} has no value that this version knows")
    return decoder(reader, value)


def _tensor(reader: FlatBufferReader, position: int) -> Tensor:
    (
        scalar_type,
        storage_offset,
        sizes,
        dim_order,
        requires_grad,
        data_buffer_idx,
        allocation,
        layout,
        dynamism,
        extra,
    ) = reader.table(tables.TENSOR, position)
    return Tensor(
        reader.enum(ScalarType, scalar_type, position),
        reader.vector("i", sizes),
        reader.vector("B", dim_order),
        data_buffer_idx,
        None if allocation is None else _allocation(reader, allocation),
        reader.enum(TensorShapeDynamism, dynamism, position),
        requires_grad,
        reader.enum(Layout, layout, position),
        storage_offset,
        None if extra is None else _extra_tensor_info(reader, extra),
    )


def _allocation(reader: FlatBufferReader, position: int) -> AllocationDetails:
    memory_id, low, high = reader.table(tables.ALLOCATION_DETAILS, position)
    return AllocationDetails(memory_id, high << 32 | low)


def _extra_tensor_info(reader: FlatBufferReader, position: int) -> ExtraTensorInfo:
    mutable_idx, name, location, device_type, device_index = reader.table(tables.EXTRA_TENSOR_INFO, position)
    return ExtraTensorInfo(
        mutable_idx,
        None if name is None else reader.string(name),
        reader.enum(TensorDataLocation, location, position),
        reader.enum(DeviceType, device_type, position),
        device_index,
    )


def _scalar(kind: Callable[[Any], Value], layout: TableLayout) -> Callable[[FlatBufferReader, int], Value]:
    return lambda reader, position: kind(reader.table(layout, position)[0])


def _list(kind: Callable[[Any], Value], layout: TableLayout, code: str) -> Callable[[FlatBufferReader, int], Value]:
    return lambda reader, position: kind(reader.vector(code, reader.table(layout, position)[0]))


_NULL: Final = Null()
_VALUE_DECODERS: Final[dict[int, Callable[[FlatBufferReader, int], Value]]] = _by_union_code(
    lambda reader, position: _NULL,
    _scalar(Int, tables.INT),
    _scalar(Bool, tables.BOOL),
    _scalar(Double, tables.DOUBLE),
    _tensor,
    lambda reader, position: String(reader.string(reader.table(tables.STRING, position)[0])),
    _list(IntList, tables.INT_LIST, "q"),
    _list(DoubleList, tables.DOUBLE_LIST, "d"),
    _list(BoolList, tables.BOOL_LIST, "?"),
    _list(TensorList, tables.TENSOR_LIST, "i"),
    _list(OptionalTensorList, tables.OPTIONAL_TENSOR_LIST, "i"),
)


# ---- instructions ----------------------------------------------------------------------------------


def _chain(reader: FlatBufferReader, position: int) -> Chain:
    inputs, outputs, instructions, stacktrace = reader.table(tables.CHAIN, position)
    return Chain(
        instructions=tuple([_instruction(reader, at) for at in reader.tables(instructions)]),
        inputs=reader.vector("i", inputs),
        outputs=reader.vector("i", outputs),
        stacktrace=None if stacktrace is None else tuple([_frame_list(reader, at) for at in reader.tables(stacktrace)]),
    )


def _instruction(reader: FlatBufferReader, position: int) -> Instruction:
    code, arguments = reader.table(tables.INSTRUCTION, position)
    decoder = _INSTRUCTION_DECODERS.get(code)
    if decoder is None or arguments is None:
        reader.refuse(position, f"an instruction of union code {code} has no arguments that this version knows")
    return decoder(reader, arguments)


def _frame_list(reader: FlatBufferReader, position: int) -> tuple[Frame, ...]:
    (items,) = reader.table(tables.FRAME_LIST, position)
    return tuple([_frame(reader, at) for at in reader.tables(items)])


def _frame(reader: FlatBufferReader, position: int) -> Frame:
    filename, lineno, name, context = reader.table(tables.FRAME, position)
    return Frame(reader.string(filename), lineno, reader.string(name), reader.string(context))


def _kernel_call(reader: FlatBufferReader, position: int) -> Instruction:
    op_index, args = reader.table(tables.KERNEL_CALL, position)
    return KernelCall(op_index, reader.vector("i", args))


def _delegate_call(reader: FlatBufferReader, position: int) -> Instruction:
    delegate_index, args = reader.table(tables.DELEGATE_CALL, position)
    return DelegateCall(delegate_index, reader.vector("i", args))


_INSTRUCTION_DECODERS: Final[dict[int, Callable[[FlatBufferReader, int], Instruction]]] = _by_union_code(
    _kernel_call,
    _delegate_call,
    lambda reader, position: MoveCall(*reader.table(tables.MOVE_CALL, position)),
    lambda reader, position: JumpFalseCall(*reader.table(tables.JUMP_FALSE_CALL, position)),
    lambda reader, position: FreeCall(*reader.table(tables.FREE_CALL, position)),
)
