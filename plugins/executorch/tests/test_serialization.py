"""Programs in ExecuTorch's records: their bytes, JSON, named data, and what a finished program looks like in them."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch

from delegraph.aot import PreprocessResult
from delegraph.program import deserialize_program
from delegraph.program import schema as records
from delegraph_executorch.exir._serialize._cord import Cord, FileBackedData
from delegraph_executorch.exir._serialize._dataclass import _DataclassEncoder, _json_to_dataclass
from delegraph_executorch.exir._serialize._named_data_store import NamedDataStore
from delegraph_executorch.exir._serialize._program import (
    PTEFile,
    _extract_delegate_payload,
    deserialize_pte_binary,
    serialize_pte_binary,
)
from delegraph_executorch.exir._serialize.data_serializer import DataPayload
from delegraph_executorch.exir._serialize.file_data import in_memory
from delegraph_executorch.exir.schema import (
    BackendDelegate,
    BackendDelegateDataReference,
    BackendDelegateInlineData,
    Buffer,
    Chain,
    ContainerMetadata,
    DataLocation,
    EValue,
    ExecutionPlan,
    Int,
    Program,
    SubsegmentOffsets,
)
from delegraph_executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer


def program(**fields: Any) -> Program:
    plan = ExecutionPlan(
        name="forward",
        container_meta_type=ContainerMetadata("", ""),
        values=[EValue(Int(7))],
        inputs=[],
        outputs=[0],
        chains=[Chain([], [], [], None)],
        operators=[],
        delegates=[],
        non_const_buffer_sizes=[0, 0],
    )
    defaults: dict[str, Any] = {
        "version": 0,
        "execution_plan": [plan],
        "constant_buffer": [Buffer(b"")],
        "backend_delegate_data": [],
        "segments": [],
        "constant_segment": SubsegmentOffsets(0, []),
    }
    return Program(**{**defaults, **fields})


def with_delegate(data: bytes) -> Program:
    made = program(backend_delegate_data=[BackendDelegateInlineData(data)])
    reference = BackendDelegateDataReference(DataLocation.INLINE, 0)
    made.execution_plan[0].delegates.append(BackendDelegate("NpuBackend", reference, []))
    return made


def test_what_is_written_here_is_a_program_for_the_runtime() -> None:
    store = NamedDataStore()
    store.add_named_data("weights", b"shared", 64)
    file = PTEFile(with_delegate(b"blob"), named_data=store.get_named_data_store_output())
    data = bytes(serialize_pte_binary(file, extract_delegate_segments=True))
    found = deserialize_program(data)
    assert found.execution_plan[0].values == (records.Int(7),)
    assert bytes(found.delegate_data[0]) == b"blob"
    assert bytes(found.named_data["weights"].data) == b"shared"
    assert data.index(b"shared") % 64 == 0


def test_a_program_comes_back_as_it_was() -> None:
    before = with_delegate(b"blob")
    for extract in (False, True):
        data = bytes(
            serialize_pte_binary(PTEFile(before, [Buffer(b""), Buffer(b"state")]), extract_delegate_segments=extract)
        )
        after = deserialize_pte_binary(data)
        assert after.program.execution_plan == before.execution_plan
        assert after.program.backend_delegate_data == before.backend_delegate_data
        assert after.mutable_data == [Buffer(b""), Buffer(b"state")]


def test_a_delegates_payload_is_found_by_part_of_its_name() -> None:
    data = bytes(serialize_pte_binary(PTEFile(with_delegate(b"blob")), extract_delegate_segments=True))
    assert _extract_delegate_payload(data, "npu") == b"blob"
    assert _extract_delegate_payload(data, "npu", 1) is None
    assert _extract_delegate_payload(b"not a program", "npu") is None


def test_what_does_not_fit_together_is_refused() -> None:
    unused = program(backend_delegate_data=[BackendDelegateInlineData(b"blob")])
    with pytest.raises(ValueError, match=r"no delegate uses backend_delegate_data \[0\]"):
        serialize_pte_binary(PTEFile(unused), extract_delegate_segments=True)
    with pytest.raises(ValueError, match="constant_tensor_alignment is 3; an alignment is a power of two"):
        serialize_pte_binary(PTEFile(program()), constant_tensor_alignment=3)
    lost = program(constant_segment=SubsegmentOffsets(4, [0]), constant_buffer=[])
    data = bytes(serialize_pte_binary(PTEFile(lost, [Buffer(b"state")])))
    with pytest.raises(ValueError, match="refers to segment 4; the program has 1"):
        deserialize_pte_binary(data)


@dataclass
class Point:
    x: int
    y: int


@dataclass
class Circle:
    radius: float


@dataclass
class Drawing:
    name: str
    shape: "Point | Circle"  # noqa: UP037  (as a string: that is what makes it a union with a tag)
    note: str | None = None


def test_json_of_dataclasses() -> None:
    drawing = Drawing("d", Circle(2.0))
    text = json.dumps(drawing, cls=_DataclassEncoder)
    assert _json_to_dataclass(json.loads(text), Drawing) == drawing
    with pytest.raises(TypeError, match="Drawing needs a value for 'name'"):
        _json_to_dataclass({"shape": {"radius": 1.0}, "shape_type": "Circle"}, Drawing)


def test_named_data_as_a_backend_hands_it_in() -> None:
    """`PreprocessResult` takes it as it takes Delegraph's own: keys, bytes and alignments."""
    store = NamedDataStore()
    store.add_named_data("a", b"one", 16)
    store.add_named_data("b", b"one")
    store.add_named_data("c", torch.arange(2, dtype=torch.int32), external_tag="file")
    output: Any = PreprocessResult(b"", data_store_output=store.get_named_data_store_output()).data_store_output  # type: ignore[arg-type]
    assert output.buffers == [b"one", b"\0\0\0\0\1\0\0\0"]
    assert [(key, entry.data, entry.alignment) for key, entry in output.pte_data.items()] == [
        ("a", b"one", 16),
        ("b", b"one", 1),
    ]
    assert output.external_data["file"]["c"].tensor_layout.sizes == [2]
    with pytest.raises(ValueError, match="named data 'a'"):
        store.add_named_data("a", b"other")


@pytest.mark.parametrize("content", [b"weights in a file", b""])
def test_data_stay_in_their_file(content: bytes, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(content)
    stores = [NamedDataStore(), NamedDataStore()]
    taken = [FileBackedData.move_from(str(tmp_path / name)) for name in ("first", "second")]
    for store, data in zip(stores, taken, strict=True):
        store.add_named_data(f"key{id(data)}", data, external_tag="file")
    stores[0].merge_named_data_store(stores[1].get_named_data_store_output())
    output = stores[0].get_named_data_store_output()
    assert [bytes(in_memory(data)) for data in output.buffers] == [content]
    assert not content or output.buffers[0] is taken[0]
    payload = DataPayload(output.buffers, output.external_data["file"])
    for entry in FlatTensorSerializer().deserialize(FlatTensorSerializer().serialize(payload)).named_data.values():
        assert entry.buffer_index == 0
    digests = {data.sha256() for data in taken} | {sha256(content).digest()}
    assert (len(digests), taken[0].prefix(3), taken[0].to_bytes()) == (1, content[:3], content)
    written = io.BytesIO()
    taken[0].write_to_file(written)
    Cord(taken[0]).write_to_file(written)
    assert written.getvalue() == content * 2 == bytes(Cord(taken[1])) * 2
    assert len(list(tmp_path.iterdir())) == 2
    with taken[0]:
        taken[1].close()
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        FileBackedData.move_from(str(tmp_path / "gone"))
    assert not list(tmp_path.iterdir())


def test_a_cord_takes_bytes_alone() -> None:
    cord = Cord(b"one")
    cord.append(Cord(b"two"))
    assert (bytes(cord), len(cord)) == (b"onetwo", 6)
    with pytest.raises(TypeError, match="a Cord takes bytes, FileBackedData and Cords, not str"):
        cord.append("three")  # type: ignore[arg-type]
