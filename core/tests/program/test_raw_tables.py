"""The tables of a `.pte` as dicts: what is in the file comes out, and goes in again."""

from __future__ import annotations

from typing import Any

import pytest

from delegraph.errors import InvalidArgument, InvalidProgram
from delegraph.program import deserialize_program, read_tables, serialize_program, table_layouts, write_tables
from delegraph.program.files.serialize import SerializationConfig
from delegraph.program.flat_tensor import ExternalData, FlatTensor, TensorLayout, serialize_flat_tensor
from delegraph.program.schema import (
    BackendDelegate,
    Bool,
    Chain,
    CompileSpec,
    ExecutionPlan,
    Int,
    JumpFalseCall,
    KernelCall,
    NamedData,
    Operator,
    Program,
    ScalarType,
    String,
    Tensor,
)

PLAN = ExecutionPlan(
    "forward",
    (Int(7), String("text"), Tensor(ScalarType.FLOAT, (2,), (0,), data_buffer_idx=1), Bool(True)),
    inputs=(0,),
    outputs=(2,),
    chains=(Chain((KernelCall(0, (0, 2)), JumpFalseCall(3, 0))),),
    operators=(Operator("aten::neg", "out"),),
    delegates=(BackendDelegate("Npu", 0, (CompileSpec("key", b"\x01"),)),),
)
PROGRAM = Program((PLAN,), (b"", bytes(range(8))), delegate_data=(b"blob",), named_data={"w": NamedData(b"shared")})


def only(record: dict[str, Any], name: str) -> Any:
    (element,) = record[name]
    return element


def test_tables_say_what_the_file_says() -> None:
    tables = read_tables(serialize_program(PROGRAM))
    plan = only(tables, "execution_plan")
    assert [value["val_type"] for value in plan["values"]] == ["Int", "String", "Tensor", "Bool"]
    assert plan["values"][0]["val"] == {"int_val": 7}
    assert plan["values"][2]["val"]["data_buffer_idx"] == 1
    chain = only(plan, "chains")
    assert chain["instructions"][1] == {
        "instr_args_type": "JumpFalseCall",
        "instr_args": {"cond_value_index": 3, "destination_instruction": 0},
    }
    assert only(plan, "delegates")["compile_specs"] == [{"key": "key", "value": b"\x01"}]
    assert [segment["size"] for segment in tables["segments"]] == [8, 4, 6]
    assert tables["named_data"] == [{"key": "w", "segment_index": 2}]
    assert tables["mutable_data_segments"] is None


def test_what_was_read_is_written_again() -> None:
    inline = SerializationConfig(extract_delegate_segments=False)
    for config in (SerializationConfig(), inline):
        tables = read_tables(serialize_program(PROGRAM, config))
        assert read_tables(write_tables(tables)) == tables


def test_edited_tables_are_a_program() -> None:
    program = Program((ExecutionPlan("forward", (Int(7),), (), (0,), (Chain(()),)),))
    tables = read_tables(serialize_program(program))
    tables["execution_plan"][0]["values"][0] = {"val_type": "String", "val": {"string_val": "new"}}
    tables["segments"], tables["constant_segment"] = [], None
    assert deserialize_program(write_tables(tables)).execution_plan[0].values == (String("new"),)


def test_inline_data_is_aligned() -> None:
    tables = read_tables(serialize_program(PROGRAM, SerializationConfig(extract_delegate_segments=False)))
    data = write_tables(tables, delegate_alignment=256)
    assert data.index(b"blob") % 256 == 0


def test_what_cannot_be_written_is_refused() -> None:
    tables = read_tables(serialize_program(PROGRAM))
    with pytest.raises(InvalidArgument, match="constant_tensor_alignment is 3; an alignment is a power of two"):
        write_tables(tables, constant_tensor_alignment=3)
    tables["execution_plan"][0]["values"][0]["val_type"] = "Complex"
    with pytest.raises(InvalidArgument, match=r"EValue\.val is a Complex; it can be Null, Int"):
        write_tables(tables)


def test_what_is_not_a_program_is_refused() -> None:
    with pytest.raises(InvalidProgram, match="not a \\.pte"):
        read_tables(b"no program at all")
    data = bytearray(serialize_program(PROGRAM))
    with pytest.raises(InvalidProgram, match="damaged"):
        read_tables(data[:40])


def test_tables_of_external_data() -> None:
    layout = TensorLayout(ScalarType.FLOAT, (2,), (0,))
    tables = read_tables(serialize_flat_tensor(FlatTensor({"w": ExternalData(bytes(8), layout)})))
    assert tables["named_data"][0]["tensor_layout"] == {"scalar_type": 6, "sizes": [2], "dim_order": [0]}
    assert only(tables, "segments") == {"offset": 0, "size": 8}


@pytest.mark.parametrize(
    ("identifier", "root"), [(b"ET12", "Program"), (b"BP08", "BundledProgram"), (b"FT01", "FlatTensor")]
)
def test_layouts_name_the_fields_of_every_table(identifier: bytes, root: str) -> None:
    layouts = table_layouts(identifier)
    assert layouts[root].names[0] == "version"
    referred = {
        name for one in layouts.values() for kind in one.kinds if kind.form in ("table", "tables") for name in kind.of
    }
    assert referred <= layouts.keys()
    with pytest.raises(KeyError):
        table_layouts(b"none")
