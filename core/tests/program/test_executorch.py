"""ExecuTorch itself as the reference: it takes what we write, and we read what it writes, field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from delegraph.program import (
    FlatTensor,
    SerializationConfig,
    deserialize_flat_tensor,
    deserialize_program,
    serialize_program,
    write_flat_tensor,
    write_program,
)
from delegraph.program.flat_tensor import ExternalData, TensorLayout
from delegraph.program.schema import Program, ScalarType

pytestmark = pytest.mark.executorch

Peer = Callable[..., Any]

CONFIGS = {
    "xnnpack_inline": SerializationConfig(extract_delegate_segments=False),
    "alignment": SerializationConfig(segment_alignment=4096, constant_tensor_alignment=64),
}

RENAMED = {
    ("Int", "value"): "int_val",
    ("Bool", "value"): "bool_val",
    ("Double", "value"): "double_val",
    ("String", "value"): "string_val",
}


def as_executorch(value: Any) -> Any:
    """Our records as `executorch_peer.plain` shows ExecuTorch's."""
    if is_dataclass(value):
        kind = type(value).__name__
        shown = {RENAMED.get((kind, f.name), f.name): as_executorch(getattr(value, f.name)) for f in fields(value)}
        return {"kind": kind, **RESHAPED.get(kind, lambda shown: shown)(shown)}
    if isinstance(value, tuple):
        return [as_executorch(item) for item in value]
    if isinstance(value, bytes | memoryview):
        return value.hex()
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def reshaped_allocation(shown: dict[str, Any]) -> dict[str, Any]:
    high, low = divmod(shown.pop("memory_offset"), 2**32)
    return {**shown, "memory_offset_low": low, "memory_offset_high": high}


def reshaped_chain(shown: dict[str, Any]) -> dict[str, Any]:
    if shown["stacktrace"] is not None:
        shown["stacktrace"] = [{"kind": "FrameList", "items": items} for items in shown["stacktrace"]]
    wrapped = [{"kind": "Instruction", "instr_args": instruction} for instruction in shown["instructions"]]
    return {**shown, "instructions": wrapped}


RESHAPED: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "AllocationDetails": reshaped_allocation,
    "Chain": reshaped_chain,
    "ExecutionPlan": lambda shown: {
        **shown,
        "values": [{"kind": "EValue", "val": value} for value in shown["values"]],
    },
}


def check_contents(ours: Program, theirs: Any) -> None:
    """Every field of every method; every constant, blob, mutable and named datum."""
    program = theirs["program"]
    assert program["version"] == ours.version
    shown = as_executorch(ours.execution_plan)
    blobs = [blob["data"] for blob in program["backend_delegate_data"]]
    for plan, their_plan in zip(shown, program["execution_plan"], strict=True):
        for delegate, their_delegate in zip(plan["delegates"], their_plan["delegates"], strict=True):
            assert blobs[their_delegate["processed"]["index"]] == bytes(ours.delegate_data[delegate["processed"]]).hex()
            delegate["processed"] = their_delegate["processed"]
        assert plan == {**their_plan, "non_const_buffer_device": plan["non_const_buffer_device"]}
        assert (their_plan["non_const_buffer_device"] or None) == (plan["non_const_buffer_device"] or None)
    # ExecuTorch's reader keeps the padding of constants, and leaves out the placeholder of a file without segments.
    for data, stored in zip(ours.constants, program["constant_buffer"] or [{"storage": ""}], strict=True):
        assert stored["storage"].startswith(bytes(data).hex())
        assert set(stored["storage"][2 * len(data) :]) <= {"0"}
    assert [data.hex() for data in map(bytes, ours.mutable_data)] == [
        data["storage"] for data in theirs["mutable_data"] or []
    ]
    assert {key: bytes(entry.data).hex() for key, entry in ours.named_data.items()} == theirs["named_data"]


@pytest.fixture(scope="module")
def files(executorch: Peer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """ExecuTorch's files, by name."""
    directory = tmp_path_factory.mktemp("theirs")
    return {name: directory / f"{name}.pte" for name in executorch("write", directory)}


@pytest.fixture(scope="module")
def rewritten(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same programs, read and written by us."""
    directory = tmp_path_factory.mktemp("ours")
    for name, path in files.items():
        config = CONFIGS.get(name, SerializationConfig())
        write_program(deserialize_program(path.read_bytes()), directory / path.name, config)
    return {name: directory / path.name for name, path in files.items()}


def test_we_read_what_executorch_writes(executorch: Peer, files: dict[str, Path]) -> None:
    for name, theirs in executorch("read", *files.values()).items():
        check_contents(deserialize_program(files[name].read_bytes()), theirs)


def test_executorch_reads_what_we_write(executorch: Peer, rewritten: dict[str, Path]) -> None:
    for name, theirs in executorch("read", *rewritten.values()).items():
        check_contents(deserialize_program(rewritten[name].read_bytes()), theirs)


def test_executorch_reads_one_of_everything(executorch: Peer, sample: Program, tmp_path: Path) -> None:
    for name, inline in (("segments", False), ("inline", True)):
        write_program(sample, tmp_path / f"{name}.pte", SerializationConfig(extract_delegate_segments=not inline))
    for theirs in executorch("read", tmp_path / "segments.pte", tmp_path / "inline.pte").values():
        check_contents(sample, theirs)


def test_segments_lie_where_executorch_puts_them(files: dict[str, Path], rewritten: dict[str, Path]) -> None:
    """The same segment data to the byte, from a base with the same alignment."""
    for name, path in files.items():
        theirs, ours = path.read_bytes(), rewritten[name].read_bytes()
        assert (theirs[8:12] == b"eh00") == (ours[8:12] == b"eh00")
        if theirs[8:12] == b"eh00":
            their_base, our_base = (int.from_bytes(data[24:32], "little") for data in (theirs, ours))
            assert our_base % (4096 if name == "alignment" else 128) == 0
            assert ours[our_base:] == theirs[their_base:]


def test_executorch_runs_what_we_write(executorch: Peer, files: dict[str, Path], rewritten: dict[str, Path]) -> None:
    """Its runtime verifies a file before it runs it; `external` needs a `.ptd`, which its Python API cannot take."""
    names = [name for name in files if name != "external"]
    theirs = executorch("run", *(files[name] for name in names))
    assert len(theirs) >= 12
    assert executorch("run", *(rewritten[name] for name in names)) == theirs


def test_ptd(executorch: Peer, files: dict[str, Path], tmp_path: Path) -> None:
    (path,) = files["external"].parent.glob("*.ptd")
    read = deserialize_flat_tensor(path.read_bytes())
    assert check_ptd(read, executorch("read_ptd", path)) == {"conv.bias", "conv.weight", "linear.bias", "linear.weight"}
    blob = ExternalData(b"blob", None, 64)
    more = FlatTensor(
        {**read.named_data, "blob": blob, "v": ExternalData(b"", TensorLayout(ScalarType.BOOL, (0,), (0,)))}
    )
    write_flat_tensor(more, tmp_path / "ours.ptd")
    assert "blob" in check_ptd(more, executorch("read_ptd", tmp_path / "ours.ptd"))


def check_ptd(ours: FlatTensor, theirs: Any) -> set[str]:
    shown = {
        key: [bytes(entry.data).hex(), as_executorch(entry.tensor_layout)] for key, entry in ours.named_data.items()
    }
    assert shown == theirs
    return set(shown)


def test_external_constants_are_named_in_the_program(files: dict[str, Path]) -> None:
    program = deserialize_program(files["external"].read_bytes())
    names = {
        value.extra_tensor_info.fully_qualified_name
        for value in program.execution_plan[0].values
        if getattr(value, "extra_tensor_info", None) is not None
    }
    assert {"conv.weight", "linear.bias"} <= names
    assert deserialize_program(serialize_program(program)) == program
