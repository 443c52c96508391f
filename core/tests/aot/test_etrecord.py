"""ETRecords: what is saved is parsed again, programs with their nodes, shapes and weights; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from torch import nn
from torch._export.verifier import _VerifierMeta
from torch.export import Dim, ExportedProgram, export

from delegraph.aot import (
    ETRecord,
    ExecutorchBackendConfig,
    generate_etrecord,
    graph_modules,
    parse_etrecord,
    to_edge,
    to_edge_transform_and_lower,
)
from delegraph.aot.etrecord.archive import read_zip_members
from delegraph.aot.etrecord.program_json import deserialize_exported_program, serialize_exported_program
from delegraph.errors import ETRecordError

CONFIG = ExecutorchBackendConfig(check_kernels=False)


class Branches(nn.Module):
    """Weights, a dynamic batch, a cond, and dtypes that the two schemas number differently."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        low, high = torch.split(self.linear(x).relu(), 3, dim=1)
        low = torch.cond(low.sum() > 0, lambda y: y + 1, lambda y: y - 1, (low,))
        return low * high, high.to(torch.uint16).to(torch.float32)


@pytest.fixture(scope="module")
def exported() -> ExportedProgram:
    with torch.no_grad():  # else torch warns of gradients in the branches
        return export(Branches(), (torch.randn(2, 4),), dynamic_shapes=({0: Dim("batch", min=1, max=9)},))


def nodes(program: ExportedProgram) -> list[Any]:
    return [
        (node.name, str(node.target), node.meta.get("stack_trace"))
        for _, module in graph_modules(program.graph_module)
        for node in module.graph.nodes
        if node.op == "call_function"
    ]


def handles(program: ExportedProgram) -> list[Any]:
    return [
        (node.name, node.meta.get("debug_handle"))
        for _, module in graph_modules(program.graph_module)
        for node in module.graph.nodes
        if node.op == "call_function" and "getitem" not in node.name
    ]


def test_programs_come_back(exported: ExportedProgram, tmp_path: Path) -> None:
    edge = to_edge(exported, generate_etrecord=True)
    record = edge.to_executorch(CONFIG).get_etrecord()
    record.update_representative_inputs([torch.ones(2, 4)])
    record.update_reference_outputs([[torch.ones(3)]])
    record.save(tmp_path / "etrecord.bin")
    parsed = parse_etrecord(tmp_path / "etrecord.bin")
    assert parsed.exported_program is not None
    assert isinstance(parsed.edge_dialect_program, ExportedProgram)
    assert nodes(parsed.exported_program) == nodes(exported)
    assert nodes(parsed.edge_dialect_program) == nodes(edge.exported_program())
    assert handles(parsed.edge_dialect_program) == handles(edge.exported_program())
    for batch in (1, 5):
        x = torch.randn(batch, 4)
        for one, other in zip(parsed.edge_dialect_program.module()(x), exported.module()(x), strict=True):
            torch.testing.assert_close(one, other)
    assert parsed.export_graph_id == id(exported.graph)
    assert [*parsed._debug_handle_map["forward"]] == [*map(str, record._debug_handle_map["forward"])]  # type: ignore[index]
    assert torch.equal(parsed._representative_inputs[0], torch.ones(2, 4))
    assert parsed._reference_outputs is not None
    assert torch.equal(parsed._reference_outputs["forward"][0][0], torch.ones(3))


def test_a_file_that_was_just_written_is_read_from_its_beginning(exported: ExportedProgram, tmp_path: Path) -> None:
    to_edge(exported, generate_etrecord=True).to_executorch(CONFIG).get_etrecord().save(tmp_path / "etrecord.bin")
    with (tmp_path / "etrecord.bin").open("r+b") as file:
        file.seek(0, 2)
        members = read_zip_members(file, "the record")
    assert members.keys() == {*ZipFile(tmp_path / "etrecord.bin").namelist()}


def test_the_dialect_that_executorch_writes_beside_the_verifiers_is_passed_over(exported: ExportedProgram) -> None:
    files = serialize_exported_program(exported)
    document = json.loads(files.exported_program) | {"dialect": "TRAINING"}
    read = deserialize_exported_program(files._replace(exported_program=json.dumps(document).encode()))
    assert nodes(read) == nodes(exported)


def test_the_files_are_executorchs(exported: ExportedProgram, tmp_path: Path) -> None:
    to_edge(exported, generate_etrecord=True).to_executorch(CONFIG).get_etrecord().save(tmp_path / "etrecord.bin")
    assert sorted(
        name
        for name in ZipFile(tmp_path / "etrecord.bin").namelist()
        if "_program_" not in name and "/forward_" not in name
    ) == [
        "ETRECORD_V0",
        "debug_handle_map",
        "delegate_map",
        "edge_dialect_exported_program/forward",
        "export_graph_id",
        "exported_program",
        "instruction_id_to_num_outs_map",
    ]


def test_several_methods_and_transforms(tmp_path: Path) -> None:
    program = export(nn.Linear(2, 2), (torch.ones(1, 2),))
    lowered = to_edge_transform_and_lower(
        {"a": program, "b": program}, transform_passes=["constant_folding"], generate_etrecord=True
    )
    lowered.to_executorch(CONFIG).get_etrecord().save(tmp_path / "etrecord.bin")
    parsed = parse_etrecord(tmp_path / "etrecord.bin")
    assert isinstance(parsed.edge_dialect_program, dict)
    assert sorted(parsed.edge_dialect_program) == ["a", "b"]
    assert parsed.graph_map is not None
    assert sorted(parsed.graph_map) == ["edge_after_transform/a", "edge_after_transform/b"]


def test_generate_etrecord(exported: ExportedProgram, tmp_path: Path) -> None:
    edge = to_edge(exported)
    generate_etrecord(tmp_path / "etrecord.bin", edge, edge.to_executorch(CONFIG), exported, {"again": exported})
    parsed = parse_etrecord(tmp_path / "etrecord.bin")
    assert parsed.graph_map is not None
    assert nodes(parsed.graph_map["again/forward"]) == nodes(exported)


def test_what_is_refused(exported: ExportedProgram, tmp_path: Path) -> None:
    record = ETRecord(exported_program=exported)
    with pytest.raises(ETRecordError, match="Exported program already exists in the ETRecord; make an ETRecord of its"):
        record.add_exported_program(exported)
    with pytest.raises(ETRecordError, match="must contain edge dialect program and executorch program to be saved"):
        record.save(tmp_path / "etrecord.bin")
    with pytest.raises(ETRecordError, match="'delegate_map' is a reserved name of ETRecords; give the program another"):
        record.add_extra_export_modules({"delegate_map": exported})
    with pytest.raises(ETRecordError, match="takes exported programs and EdgeProgramManagers, not int"):
        record.add_extra_export_modules({"number": 3})
    (tmp_path / "text").write_text("no zip")
    with pytest.raises(ETRecordError, match="text is not an ETRecord: File is not a zip file"):
        parse_etrecord(tmp_path / "text")
    with ZipFile(tmp_path / "zip", "w") as file:
        file.writestr("x", "")
    with pytest.raises(ETRecordError, match="zip is not an ETRecord: it has no ETRECORD_V0"):
        parse_etrecord(tmp_path / "zip")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("exported_program", "exported_program: no JSON as a program is written in: Expecting value: line 1 column 1"),
        ("reference_outputs", "reference_outputs: File is not a zip file; have whoever made the file write it again"),
    ],
)
def test_a_damaged_file(exported: ExportedProgram, tmp_path: Path, name: str, message: str) -> None:
    with ZipFile(tmp_path / "etrecord.bin", "w") as file:
        for entry in (
            "ETRECORD_V0",
            name,
            *(f"{name}_{part}" for part in ("state_dict", "constants", "example_inputs")),
        ):
            if entry == name or name == "exported_program" or entry == "ETRECORD_V0":
                file.writestr(entry, "" if entry == "ETRECORD_V0" else "damaged")
    with pytest.raises(ETRecordError, match=message):
        parse_etrecord(tmp_path / "etrecord.bin")


def test_a_program_that_calls_delegates(exported: ExportedProgram, tmp_path: Path) -> None:
    from core.tests.aot.test_managers import lowered

    record = to_edge(exported, generate_etrecord=True).to_executorch(CONFIG).get_etrecord()
    record.add_extra_export_modules({"lowered": lowered().exported_program()})
    with pytest.raises(ETRecordError, match="programs as they were before delegation, this one calls delegates"):
        record.save(tmp_path / "etrecord.bin")


def test_a_program_is_read_by_our_verifier_whoever_else_has_one_for_its_dialect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ExecuTorch's has torch's table's `"EDGE"` wherever it is imported: neither reads the other's programs."""

    class Theirs:
        def __init__(self) -> None:
            raise AssertionError("another's verifier was asked")

    edge = to_edge(export(nn.Linear(2, 2), (torch.randn(1, 2),)), generate_etrecord=True)
    assert edge.exported_program().dialect == "EDGE"
    assert _VerifierMeta._registry.get("EDGE") is not edge.exported_program().verifier
    monkeypatch.setitem(_VerifierMeta._registry, "EDGE", Theirs)
    edge.to_executorch(CONFIG).get_etrecord().save(tmp_path / "etrecord.bin")
    read = parse_etrecord(tmp_path / "etrecord.bin").edge_dialect_program
    assert read is not None and not isinstance(read, dict)
    assert read.dialect == "EDGE"
