"""exir.save and exir.load: programs come back with their metadata and their delegates, and lower to the same bytes."""

from __future__ import annotations

import json
import operator
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export
from torch.utils._pytree import tree_leaves

from delegraph.aot import (
    CompileSpec,
    EdgeProgramManager,
    ExecutorchBackendConfig,
    LoweredBackendModule,
    NamedDataStoreOutput,
    graph_modules,
    to_backend,
    to_edge,
    to_edge_transform_and_lower,
)
from delegraph.errors import ETRecordError, LoweringError
from delegraph.program.schema import NamedData
from delegraph_executorch import exir
from delegraph_executorch.exir._serialize._named_data_store import NamedDataStore
from delegraph_executorch.exir.serde.serialize import deserialize, serialize

CONFIG = ExecutorchBackendConfig(check_kernels=False)


class Branches(nn.Module):
    """A dynamic batch, results of which some are not read, and a cond with work for a delegate in it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low, _, high = torch.split(self.linear(x).relu(), 2, dim=1)
        # cpu has no erfinv: the branches stay branches, and what is around it goes to delegates in them
        return torch.cond(x.sum() > 0, lambda y: ((y + 1) * y).sigmoid().erfinv(), lambda y: y - 1, (low,)) * high


@pytest.fixture(scope="module")
def exported() -> ExportedProgram:
    with torch.no_grad():  # else torch warns of gradients in the branches
        return export(Branches(), (torch.randn(4, 4),), dynamic_shapes=({0: 2 * Dim("half", min=1, max=4)},))


def lowered(exported: ExportedProgram) -> ExportedProgram:
    return to_edge_transform_and_lower(exported, partitioner=["cpu"]).exported_program()


def nodes(program: ExportedProgram) -> list[Any]:
    """The calls with debug handle and origin; what takes a result has those of its call in a file."""
    return [
        [node.name, node.meta.get("debug_handle"), [source.to_dict() for source in node.meta.get("from_node") or ()]]
        for node in program.graph.nodes
        if node.op == "call_function" and node.target is not operator.getitem
    ]


def calls(program: ExportedProgram) -> list[Any]:
    """The calls in the graph and in bodies of its control flow; torch may write an argument by its name."""
    return [
        [path, node.name, str(node.target), [str(value) for value in tree_leaves(node.meta["val"])]]
        for path, module in graph_modules(program.graph_module)
        for node in module.graph.nodes
        if node.op == "call_function"
    ]


def delegates(program: ExportedProgram) -> list[Any]:
    held = [one for one in program.graph_module.children() if isinstance(one, LoweredBackendModule)]
    return [
        [one.backend_id, one.processed_bytes.decode("latin1"), len(one.original_module.graph.nodes)] for one in held
    ]


def saved_here(folder: Path) -> dict[str, ExportedProgram]:
    """An edge program and one with a delegate, which `exir.save` wrote into `folder`."""
    source = export(nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2)), (torch.randn(2, 4),))
    saved = {"edge": to_edge(source).exported_program(), "delegated": lowered(source)}
    for name, program in saved.items():
        exir.save(program, folder / f"{name}.pt2")
    return saved


def test_metadata_comes_back(exported: ExportedProgram, tmp_path: Path) -> None:
    edge = to_edge(exported).exported_program()
    texts: dict[str, str] = {}
    exir.save(edge, tmp_path / "edge.pt2", extra_files={"note.txt": "é"})
    loaded = exir.load(tmp_path / "edge.pt2", extra_files=texts)
    assert calls(loaded) == calls(edge)
    assert texts == {"note.txt": "é"}
    for (_, one), (_, other) in zip(graph_modules(edge.graph_module), graph_modules(loaded.graph_module), strict=True):
        for node, again in zip(one.graph.nodes, other.graph.nodes, strict=True):
            assert node.meta.get("debug_handle") == again.meta.get("debug_handle"), node.name
            assert node.meta.get("stack_trace") == again.meta.get("stack_trace") or node.op != "call_function"
    assert [name for name, _, origins in nodes(loaded) if not origins] == []


def test_delegates_come_back(exported: ExportedProgram, tmp_path: Path) -> None:
    """In bodies of control flow too; what is finished of them is the same to the byte: blobs, stamps and all."""
    program = lowered(exported)
    exir.save(program, tmp_path / "program.pt2")
    loaded = exir.load(tmp_path / "program.pt2")
    assert calls(loaded) == calls(program)
    finished, again = (EdgeProgramManager(one).to_executorch(CONFIG) for one in (program, loaded))
    assert again.buffer == finished.buffer
    assert again.debug_handle_map == finished.debug_handle_map
    assert again.delegate_map == finished.delegate_map
    assert len(finished.executorch_program.delegate_data) > 1
    for batch in (2, 6):
        x = torch.randn(batch, 4)
        torch.testing.assert_close(loaded.module()(x), exported.module()(x))


def test_a_delegate_that_is_called_twice_is_one() -> None:
    edge = to_edge(export(nn.Linear(4, 4), (torch.randn(2, 4),))).exported_program()
    module = to_backend("CpuBackend", edge, [])

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.part(self.part(x))  # type: ignore[no-any-return]

    program = to_edge(export(Twice(), (torch.randn(2, 4),))).exported_program()
    loaded = deserialize(serialize(program))
    assert calls(loaded) == calls(program)
    assert len(delegates(loaded)) == 1


def store() -> NamedDataStoreOutput:
    return NamedDataStoreOutput({"a": NamedData(b"one", 16)}, {"file": {"b": NamedData(b"two", 4)}})


def store_of_tensors() -> Any:
    made = NamedDataStore()
    made.add_named_data("a", b"one", 16)
    made.add_named_data("b", torch.arange(3, dtype=torch.int32), external_tag="file")
    return made.get_named_data_store_output()


@pytest.mark.parametrize("named_data", [store, store_of_tensors])
def test_what_a_delegate_holds(named_data: Any) -> None:
    edge = to_edge(export(nn.Linear(4, 4), (torch.randn(2, 4),))).exported_program()
    part = LoweredBackendModule(edge, "NpuBackend", b"\x00blob\xff", [CompileSpec("k", b"\xfe")], named_data())
    part.meta["debug_handle_map"] = {7: (1, 2), "eight": (3,)}

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = part

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.part(x)  # type: ignore[no-any-return]

    program = to_edge(export(Whole(), (torch.randn(2, 4),))).exported_program()
    loaded = deserialize(serialize(program))
    (again,) = (one for one in loaded.graph_module.children() if isinstance(one, LoweredBackendModule))
    assert (again.backend_id, again.processed_bytes) == (part.backend_id, part.processed_bytes)
    assert [*again.stamped_compile_specs] == again.compile_specs == part.compile_specs
    assert again.debug_handle_map == part.debug_handle_map
    entries = again.named_data_store_output
    assert entries is not None and entries.buffers == named_data().buffers
    assert entries.pte_data["a"].alignment == 16
    expected = getattr(named_data().external_data["file"]["b"], "tensor_layout", None)
    assert getattr(entries.external_data["file"]["b"], "tensor_layout", None) == expected
    assert all("custom" not in node.meta for node in loaded.graph.nodes)


def test_a_finished_program_is_saved_as_what_it_was_made_of(exported: ExportedProgram) -> None:
    manager = exir.to_edge(export(nn.Linear(4, 4), (torch.randn(2, 4),)))
    loaded = deserialize(serialize(manager.to_executorch().exported_program()))
    x = torch.randn(2, 4)
    torch.testing.assert_close(loaded.module()(x), manager.exported_program().module()(x))
    assert not any("out" in node.kwargs for node in loaded.graph.nodes)


def test_what_is_refused(exported: ExportedProgram, tmp_path: Path) -> None:
    with pytest.raises(LoweringError, match="opset_version: torch writes the versions of its own operators"):
        serialize(exported, opset_version={"aten": 1})
    (tmp_path / "text").write_text("no zip")
    with pytest.raises(LoweringError, match=r"text is not a program that exir\.save wrote: File is not a zip file"):
        exir.load(tmp_path / "text")
    with ZipFile(tmp_path / "zip", "w") as file:
        file.writestr("x", "")
    with pytest.raises(LoweringError, match=r"has no serialized_exported_program\.json; torch\.export\.load reads"):
        exir.load(tmp_path / "zip")
    with pytest.raises(ETRecordError, match="the exported program cannot be read: KeyError: 'graph_module'"):
        deserialize(serialize(exported)._replace(exported_program=b"{}"))


def changed(program: ExportedProgram, edit: Callable[[dict[str, Any]], Any]) -> Any:
    """The files of a program with a delegate, whose JSON was changed by `edit`."""
    files = serialize(program)
    document = json.loads(files.exported_program)
    call = next(node for node in document["graph_module"]["graph"]["nodes"] if "call_delegate" in node["target"])
    text = call["inputs"][0]["arg"]
    held = json.loads(text["as_string"])
    edit(held)
    text["as_string"] = json.dumps(held)
    return files._replace(exported_program=json.dumps(document).encode())


def nested_size(held: dict[str, Any]) -> None:
    values = held["original_module"]["graph_module"]["graph"]["tensor_values"]
    next(iter(values.values()))["sizes"] = [{"as_expr": {"expr_str": "print()"}}]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda held: held.update(original_state_dict=b64encode(b"cos\nmkdir\n.").decode()), "File is not a zip file"),
        (nested_size, r"tensor_values\..*expr_str: .* is none of sizes"),
        (lambda held: held.pop("backend_id"), "the delegate cannot be read: KeyError: 'backend_id'"),
        (lambda held: held.update(processed_bytes="é"), "the delegate cannot be read: ValueError"),
        (lambda held: held.update(compile_specs=3), "the delegate cannot be read: TypeError"),
    ],
)
def test_a_delegate_that_is_none(edit: Callable[[dict[str, Any]], Any], message: str) -> None:
    program = lowered(export(nn.Linear(4, 4), (torch.randn(2, 4),)))
    with pytest.raises(ETRecordError, match=message):
        deserialize(changed(program, edit))


def test_a_zip_that_exir_save_does_not_write(exported: ExportedProgram, tmp_path: Path) -> None:
    exir.save(to_edge(exported).exported_program(), tmp_path / "program.pt2")
    with ZipFile(tmp_path / "program.pt2", "a") as file:
        file.writestr("extra_files/../note", "")
    with pytest.raises(LoweringError, match=r"'extra_files/\.\./note' at byte \d+: no name of a file in it"):
        exir.load(tmp_path / "program.pt2")
    with ZipFile(tmp_path / "program.pt2", "w") as file:
        file.writestr("extra_files/note", b"\xff")
    with pytest.raises(
        LoweringError, match="can't decode byte 0xff in position 0: invalid start byte; save the program"
    ):
        exir.load(tmp_path / "program.pt2")
