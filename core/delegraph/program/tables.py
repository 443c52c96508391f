"""The tables of `schema/program.fbs` and `schema/flat_tensor.fbs`, as data for the reader and the builder.

A keyword's position is its field's id, and so its slot in the vtable: fields are only ever appended. Codes are those
of `struct`; `REF` is an offset to a string, a vector or another table. A union takes two fields: its code, its table.
"""

from __future__ import annotations

from typing import Any, Final

REF: Final = "ref"


_DEFAULTS: Final[dict[str, Any]] = {REF: None, "?": False, "d": 0.0}


class Layout:
    """One table's fields in the order of their ids.

    `defaults` is what absent fields read as; `omitted` is what is not written: the same but for floats,
    since -0.0 equals 0.0.
    """

    __slots__ = ("codes", "defaults", "is_ref", "name", "names", "omitted")

    def __init__(self, table: str, /, **fields: str) -> None:
        self.name = table
        self.names = tuple(fields)
        self.is_ref = tuple(code is REF for code in fields.values())
        self.codes = tuple("I" if code is REF else code for code in fields.values())
        self.defaults: tuple[Any, ...] = tuple(_DEFAULTS.get(code, 0) for code in fields.values())
        self.omitted: tuple[Any, ...] = tuple(
            None if code == "d" else _DEFAULTS.get(code, 0) for code in fields.values()
        )


# ---- program.fbs: values ---------------------------------------------------------------------------

ALLOCATION_DETAILS = Layout("AllocationDetails", memory_id="I", memory_offset_low="I", memory_offset_high="I")
EXTRA_TENSOR_INFO = Layout(
    "ExtraTensorInfo",
    mutable_data_segments_idx="Q",
    fully_qualified_name=REF,
    location="b",
    device_type="b",
    device_index="b",
)
TENSOR = Layout(
    "Tensor",
    scalar_type="b",
    storage_offset="i",
    sizes=REF,
    dim_order=REF,
    requires_grad="?",
    data_buffer_idx="I",
    allocation_info=REF,
    layout="b",
    shape_dynamism="b",
    extra_tensor_info=REF,
)
NULL = Layout("Null")
INT = Layout("Int", int_val="q")
BOOL = Layout("Bool", bool_val="?")
DOUBLE = Layout("Double", double_val="d")
STRING = Layout("String", string_val=REF)
INT_LIST = Layout("IntList", items=REF)
DOUBLE_LIST = Layout("DoubleList", items=REF)
BOOL_LIST = Layout("BoolList", items=REF)
TENSOR_LIST = Layout("TensorList", items=REF)
OPTIONAL_TENSOR_LIST = Layout("OptionalTensorList", items=REF)
EVALUE = Layout("EValue", val_type="B", val=REF)

# ---- program.fbs: instructions ---------------------------------------------------------------------

KERNEL_CALL = Layout("KernelCall", op_index="i", args=REF)
DELEGATE_CALL = Layout("DelegateCall", delegate_index="i", args=REF)
MOVE_CALL = Layout("MoveCall", move_from="i", move_to="i")
JUMP_FALSE_CALL = Layout("JumpFalseCall", cond_value_index="i", destination_instruction="i")
FREE_CALL = Layout("FreeCall", value_index="i")
INSTRUCTION = Layout("Instruction", instr_args_type="B", instr_args=REF)
FRAME = Layout("Frame", filename=REF, lineno="i", name=REF, context=REF)
FRAME_LIST = Layout("FrameList", items=REF)
CHAIN = Layout("Chain", inputs=REF, outputs=REF, instructions=REF, stacktrace=REF)

# ---- program.fbs: the program ----------------------------------------------------------------------

CONTAINER_METADATA = Layout("ContainerMetadata", encoded_inp_str=REF, encoded_out_str=REF)
OPERATOR = Layout("Operator", name=REF, overload=REF)
COMPILE_SPEC = Layout("CompileSpec", key=REF, value=REF)
BACKEND_DELEGATE_DATA_REFERENCE = Layout("BackendDelegateDataReference", location="b", index="I")
BACKEND_DELEGATE = Layout("BackendDelegate", id=REF, processed=REF, compile_specs=REF)
NON_CONST_BUFFER_DEVICE = Layout("NonConstBufferDevice", buffer_idx="i", device_type="b", device_index="b")
EXECUTION_PLAN = Layout(
    "ExecutionPlan",
    name=REF,
    container_meta_type=REF,
    values=REF,
    inputs=REF,
    outputs=REF,
    chains=REF,
    operators=REF,
    delegates=REF,
    non_const_buffer_sizes=REF,
    non_const_buffer_device=REF,
)
BUFFER = Layout("Buffer", storage=REF)
BACKEND_DELEGATE_INLINE_DATA = Layout("BackendDelegateInlineData", data=REF)
DATA_SEGMENT = Layout("DataSegment", offset="Q", size="Q")
SUBSEGMENT_OFFSETS = Layout("SubsegmentOffsets", segment_index="I", offsets=REF)
NAMED_DATA = Layout("NamedData", key=REF, segment_index="I")
PROGRAM = Layout(
    "Program",
    version="I",
    execution_plan=REF,
    constant_buffer=REF,
    backend_delegate_data=REF,
    segments=REF,
    constant_segment=REF,
    mutable_data_segments=REF,
    named_data=REF,
)

# ---- flat_tensor.fbs (its DataSegment equals the program's) ----------------------------------------

TENSOR_LAYOUT = Layout("TensorLayout", scalar_type="b", sizes=REF, dim_order=REF)
NAMED_TENSOR = Layout("NamedData", key=REF, segment_index="I", tensor_layout=REF)
FLAT_TENSOR = Layout("FlatTensor", version="I", segments=REF, named_data=REF)
