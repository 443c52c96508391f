"""Each rule that a program obeys: what breaks it is named by its field path, by the reader and before writing alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from delegraph.errors import InvalidProgram
from delegraph.program import serialize_program, verify_program
from delegraph.program.checks.verify import MAX_VIOLATIONS, find_violations
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
    Int,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    NamedData,
    NonConstBufferDevice,
    Null,
    Operator,
    OptionalTensorList,
    Program,
    ScalarType,
    String,
    Tensor,
    TensorDataLocation,
    TensorList,
)

TENSOR = Tensor(ScalarType.FLOAT, (2, 3), (0, 1))
EXTERNAL = TensorDataLocation.EXTERNAL


def plan(*values: Any, instructions: tuple[Any, ...] = (), **fields: Any) -> ExecutionPlan:
    fields = {"non_const_buffer_sizes": (0, 64), "chains": (Chain(instructions),), **fields}
    return ExecutionPlan("forward", values, fields.pop("inputs", ()), fields.pop("outputs", ()), **fields)


def program(*plans: ExecutionPlan, **fields: Any) -> Program:
    return Program(plans, **{"constants": (b"", bytes(24)), **fields})


def value(*values: Any, **fields: Any) -> Program:
    """A program whose only method has these values."""
    return program(plan(*values, **fields))


def tensor(**fields: Any) -> Program:
    return value(replace(TENSOR, **fields))


def instruction(*instructions: Any, **fields: Any) -> Program:
    """A program with these instructions and the values %0 tensor, %1 int, %2 bool."""
    return program(plan(TENSOR, Int(1), Bool(True), instructions=instructions, **fields))


V0 = "execution_plan[0].values[0]"
I0 = "execution_plan[0].chains[0].instructions[0]"

VIOLATIONS: list[tuple[Program, str]] = [
    # the program
    (program(version=-1), "version: is -1, not within 0 to 4294967295"),
    (program(version=None), "version: is None, a NoneType, not an integer"),
    (program(constants=()), "constants: is empty; constants[0] is reserved"),
    (program(constants=(b"x",)), "constants[0]: is not empty; it is reserved"),
    (program(mutable_data=(b"x",)), "mutable_data[0]: is not empty; it is reserved"),
    (program(named_data={"": NamedData(b"")}), "named_data['']: is empty"),
    (program(named_data={"a\0": NamedData(b"")}), "named_data['a\\x00']: is 'a\\x00', with a NUL in it"),
    (program(named_data={"a": NamedData(b"", 0)}), "named_data['a'].alignment: is 0, not within 1 to 1073741824"),
    (program(named_data={"a": NamedData(b"", 2**31)}), "named_data['a'].alignment: is 2147483648, not within"),
    (program(plan(), plan()), "execution_plan[1].name: is 'forward', as an earlier method's"),
    (program(delegate_data=(b"x",)), "delegate_data[0]: no delegate refers to it"),
    # a method
    (program(replace(plan(), name="")), "execution_plan[0].name: is empty"),
    (program(replace(plan(), name=3)), "execution_plan[0].name: is a int, not a string"),
    (program(replace(plan(), name="\ud800")), "execution_plan[0].name: cannot be written as UTF-8 (surrogates not"),
    (
        program(plan(container_meta_type=ContainerMetadata("\udfff"))),
        "execution_plan[0].container_meta_type.encoded_inp_str: cannot be written as UTF-8",
    ),
    (
        program(plan(container_meta_type=ContainerMetadata("", "\udfff"))),
        "execution_plan[0].container_meta_type.encoded_out_str: cannot be written as UTF-8",
    ),
    (program(plan(inputs=(0,))), "execution_plan[0].inputs[0]: is 0, but there are 0 values"),
    (value(Null(), outputs=(0, -1)), "execution_plan[0].outputs[1]: is -1, but there are 1 values"),
    (program(plan(chains=())), "execution_plan[0].chains: is empty; a method has at least one"),
    (program(plan(non_const_buffer_sizes=())), "execution_plan[0].non_const_buffer_sizes: is ()…; its first entry is"),
    (program(plan(non_const_buffer_sizes=(8,))), "execution_plan[0].non_const_buffer_sizes: is (8,)…; its first entry"),
    (program(plan(non_const_buffer_sizes=(0, -8))), "execution_plan[0].non_const_buffer_sizes[1]: is -8, not within 0"),
    (program(plan(non_const_buffer_sizes=(0, 2**63))), "execution_plan[0].non_const_buffer_sizes[1]: is 92233720"),
    (
        program(plan(non_const_buffer_device=(NonConstBufferDevice(2),))),
        "execution_plan[0].non_const_buffer_device[0].buffer_idx: is 2, but there are 2 planned buffers",
    ),
    (
        program(plan(non_const_buffer_device=(NonConstBufferDevice(1, device_index=200),))),
        "execution_plan[0].non_const_buffer_device[0].device_index: is 200, not within -128 to 127",
    ),
    (
        program(plan(non_const_buffer_device=(NonConstBufferDevice(1), NonConstBufferDevice(1)))),
        "execution_plan[0].non_const_buffer_device: names a buffer twice",
    ),
    (program(plan(operators=(Operator(""),))), "execution_plan[0].operators[0].name: is empty"),
    (program(plan(operators=(Operator("a::b", "\ud800"),))), "execution_plan[0].operators[0].overload: cannot be"),
    (program(plan(delegates=(BackendDelegate("", 0),)), delegate_data=(b"",)), "execution_plan[0].delegates[0].id: is"),
    (
        program(plan(delegates=(BackendDelegate("B", 1),))),
        "execution_plan[0].delegates[0].processed: is 1, but there are 0 blobs in delegate_data",
    ),
    (
        program(plan(delegates=(BackendDelegate("B", 0, (CompileSpec("\ud800", b""),)),)), delegate_data=(b"",)),
        "execution_plan[0].delegates[0].compile_specs[0].key: cannot be written as UTF-8",
    ),
    (
        program(plan(delegates=(BackendDelegate("B", 0, (CompileSpec("k", "v"),)),)), delegate_data=(b"",)),  # type: ignore[arg-type]
        "execution_plan[0].delegates[0].compile_specs[0].value: is a str, not bytes",
    ),
    # scalars
    (value(7), f"{V0}: is a int, not a record of a value"),
    (value(Int(2**63)), f"{V0}.value: is 9223372036854775808, not within"),
    (value(Int(1.5)), f"{V0}.value: is 1.5, a float, not an integer"),  # type: ignore[arg-type]
    (value(Bool(1)), f"{V0}: is Bool(value=1); it has to hold a bool"),  # type: ignore[arg-type]
    (value(Double("x")), f"{V0}: is Double(value='x'); it has to hold a float"),  # type: ignore[arg-type]
    (value(String("\ud800")), f"{V0}.value: cannot be written as UTF-8"),
    # lists
    (value(IntList((1,))), f"{V0}.items[0]: is 1, not the index of one of the 1 values that it may refer to"),
    (value(IntList((-1,))), f"{V0}.items[0]: is -1, not the index"),
    (value(IntList((0,))), f"{V0}.items[0]: is 0, a value of kind IntList, not Int"),
    (value(DoubleList(("x",))), f"{V0}.items[0]: is 'x', not a float"),  # type: ignore[arg-type]
    (value(BoolList((True, 0))), f"{V0}.items[1]: is 0, not a bool"),
    (value(TensorList((1,)), TENSOR), f"{V0}.items[0]: is 1, not the index of one of the 0 values that it may refer"),
    (value(TENSOR, TensorList((0, 1))), "execution_plan[0].values[1].items[1]: is 1, not the index of one of the 1"),
    (value(Int(1), TensorList((0,))), "execution_plan[0].values[1].items[0]: is 0, a value of kind Int, not Tensor"),
    (value(TensorList((-1,))), f"{V0}.items[0]: is -1, not the index"),
    (value(OptionalTensorList((-1, -2))), f"{V0}.items[1]: is -2, not the index"),
    # a tensor by itself
    (tensor(sizes=(2, -3)), f"{V0}.sizes[1]: is -3, not within 0 to 2147483647"),
    (tensor(sizes=(2, 2**31)), f"{V0}.sizes[1]: is 2147483648, not within"),
    (tensor(sizes=(1,) * 17, dim_order=tuple(range(17))), f"{V0}.sizes: has 17 dims; runtimes take 16 at most"),
    (tensor(sizes=(2**31 - 1,) * 3, dim_order=(0, 1, 2)), f"{V0}.sizes: is (2147483647, 2147483647, 2147483647), 3961"),
    (tensor(dim_order=(0,)), f"{V0}.dim_order: is (0,), not a permutation of the 2 dims"),
    (tensor(dim_order=(1, 1)), f"{V0}.dim_order: is (1, 1), not a permutation"),
    (tensor(dim_order=(1, 2)), f"{V0}.dim_order: is (1, 2), not a permutation"),
    (tensor(storage_offset=4), f"{V0}.storage_offset: is 4; runtimes take 0 only"),
    (tensor(extra_tensor_info=ExtraTensorInfo(-1)), f"{V0}.extra_tensor_info.mutable_data_segments_idx: is -1"),
    (tensor(extra_tensor_info=ExtraTensorInfo(0, "\ud800")), f"{V0}.extra_tensor_info.fully_qualified_name: cannot be"),
    (tensor(extra_tensor_info=ExtraTensorInfo(device_index=128)), f"{V0}.extra_tensor_info.device_index: is 128"),
    (
        tensor(extra_tensor_info=ExtraTensorInfo(location=EXTERNAL)),
        f"{V0}.extra_tensor_info.fully_qualified_name: is m",
    ),
    # a tensor's place
    (tensor(data_buffer_idx=2), f"{V0}.data_buffer_idx: is 2, but there are 2 constants"),
    (tensor(data_buffer_idx=-1), f"{V0}.data_buffer_idx: is -1, but there are 2 constants"),
    (
        tensor(data_buffer_idx=1, sizes=(7, 1)),
        f"{V0}.data_buffer_idx: is 1; constants[1] has 24 bytes, the tensor needs 28",
    ),
    (
        tensor(data_buffer_idx=1, allocation_info=AllocationDetails(1, 0)),
        f"{V0}.data_buffer_idx: is 1, but there are 0 mutable_data",
    ),
    (
        tensor(data_buffer_idx=-1, extra_tensor_info=ExtraTensorInfo(0, "w", EXTERNAL)),
        f"{V0}.data_buffer_idx: is -1, not within",
    ),
    (
        tensor(allocation_info=AllocationDetails(0, 0)),
        f"{V0}.allocation_info.memory_id: is 0; ids of planned memory are",
    ),
    (
        tensor(allocation_info=AllocationDetails(2, 0)),
        f"{V0}.allocation_info.memory_id: is 2; ids of planned memory are",
    ),
    (
        tensor(allocation_info=AllocationDetails(1, 41)),
        f"{V0}.allocation_info.memory_offset: is 41; the tensor needs 24",
    ),
    (
        tensor(allocation_info=AllocationDetails(1, -1)),
        f"{V0}.allocation_info.memory_offset: is -1; the tensor needs 24",
    ),
    # instructions
    (instruction(None), f"{I0}: is a NoneType, not a record of an instruction"),
    (instruction(KernelCall(0, ())), f"{I0}.op_index: is 0, but there are 0 operators"),
    (instruction(KernelCall(0, (3,)), operators=(Operator("a::b"),)), f"{I0}.args[0]: is 3, but there are 3 values"),
    (instruction(KernelCall(0, (-1,)), operators=(Operator("a::b"),)), f"{I0}.args[0]: is -1, but there are 3 values"),
    (instruction(DelegateCall(0, (0, 9))), f"{I0}.delegate_index: is 0, but there are 0 delegates"),
    (instruction(DelegateCall(0, (0, 9))), f"{I0}.args[1]: is 9, but there are 3 values"),
    (instruction(MoveCall(3, 0)), f"{I0}.move_from: is 3, but there are 3 values"),
    (instruction(MoveCall(0, -1)), f"{I0}.move_to: is -1, but there are 3 values"),
    (instruction(JumpFalseCall(3, 0)), f"{I0}.cond_value_index: is 3, but there are 3 values"),
    (instruction(JumpFalseCall(1, 0)), f"{I0}.cond_value_index: is 1, a value of kind Int, not Bool or Tensor"),
    (instruction(JumpFalseCall(2, 2)), f"{I0}.destination_instruction: is 2, but there are 2 places to go on"),
    (instruction(JumpFalseCall(2, -1)), f"{I0}.destination_instruction: is -1, but there are 2 places to go on"),
    (instruction(FreeCall(1)), f"{I0}.value_index: is 1, a value of kind Int, not Tensor"),
    # chains
    (program(plan(chains=(Chain((), (0,)),))), "execution_plan[0].chains[0].inputs[0]: is 0, but there are 0 values"),
    (program(plan(chains=(Chain((), (), (0,)),))), "execution_plan[0].chains[0].outputs[0]: is 0, but there are 0"),
    (
        program(plan(chains=(Chain((), stacktrace=((),)),))),
        "execution_plan[0].chains[0].stacktrace: has 1 entries for 0 instructions",
    ),
    *(
        (
            program(plan(TENSOR, chains=(Chain((FreeCall(0),), stacktrace=((Frame(*fields),),)),))),
            f"execution_plan[0].chains[0].stacktrace[0][0].{path}",
        )
        for fields, path in (
            (("f", 2**31, "n", "c"), "lineno: is 2147483648, not within"),
            (("\ud800", 1, "n", "c"), "filename: cannot be written"),
            (("f", 1, "\ud800", "c"), "name: cannot be written"),
            (("f", 1, "n", "\ud800"), "context: cannot be written"),
        )
    ),
]


@pytest.mark.parametrize(("faulty", "expected"), VIOLATIONS, ids=[expected[:70] for _, expected in VIOLATIONS])
def test_violations_are_named_by_their_paths(faulty: Program, expected: str) -> None:
    violations = find_violations(faulty)
    assert any(violation.startswith(expected) for violation in violations), violations
    with pytest.raises(InvalidProgram):
        serialize_program(faulty)


def test_all_violations_are_reported_together() -> None:
    with pytest.raises(InvalidProgram) as caught:
        verify_program(value(Int(2**63), replace(TENSOR, sizes=(2, -3), dim_order=(0, 0))))
    assert str(caught.value) == (
        "the program has 3 violation(s):\n"
        "  execution_plan[0].values[0].value: is 9223372036854775808, not within"
        " -9223372036854775808 to 9223372036854775807\n"
        "  execution_plan[0].values[1].sizes[1]: is -3, not within 0 to 2147483647\n"
        "  execution_plan[0].values[1].dim_order: is (0, 0), not a permutation of the 2 dims"
    )


def test_the_report_of_garbage_is_short() -> None:
    with pytest.raises(InvalidProgram, match=r"the program has 20 or more violations:") as caught:
        verify_program(value(*[Int(2**63)] * 10_000))
    assert len(str(caught.value).splitlines()) == MAX_VIOLATIONS + 1


ALLOWED = [
    Program(()),
    value(replace(TENSOR, sizes=(), dim_order=())),
    value(replace(TENSOR, sizes=(1,) * 16, dim_order=tuple(reversed(range(16))))),
    value(replace(TENSOR, sizes=(0, 2**31 - 1))),
    value(replace(TENSOR, allocation_info=AllocationDetails(1, 40))),  # ends where the memory ends
    value(replace(TENSOR, data_buffer_idx=1, sizes=(6, 1))),  # exactly the constant
    value(replace(TENSOR, data_buffer_idx=9, extra_tensor_info=ExtraTensorInfo(0, "w", EXTERNAL))),
    value(IntList((1,)), Int(2)),  # an IntList may point forwards
    value(IntList(())),
    value(OptionalTensorList((-1,))),
    value(Double(1)),
    instruction(JumpFalseCall(2, 1)),  # to the end
    instruction(JumpFalseCall(0, 0)),  # a tensor as the condition, and backwards
]


@pytest.mark.parametrize("sound", ALLOWED, ids=range(len(ALLOWED)))
def test_limits_themselves_are_allowed(sound: Program) -> None:
    assert find_violations(sound) == []
