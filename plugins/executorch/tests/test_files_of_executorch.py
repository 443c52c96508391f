"""ETRecords and saved programs: ExecuTorch's are read and used here, ours there, and both find the same in them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from plugins.executorch.tests.test_exir_save import delegates, nodes, saved_here

from delegraph.aot import parse_etrecord
from delegraph.runtime import Runtime
from delegraph_executorch import exir
from delegraph_executorch.devtools import Inspector

pytestmark = pytest.mark.executorch

PEER = Path(__file__).with_name("executorch_peer.py")
EDGE = "edge_dialect_exported_program"

Peer = Callable[[str, Path], Any]


@pytest.fixture(scope="module")
def peer(executorch_package: Path) -> Peer:
    python = executorch_package.parents[3] / "bin" / "python"

    def run(action: str, folder: Path) -> Any:
        ran = subprocess.run(
            [python, PEER, action, str(folder)], capture_output=True, text=True, timeout=600, check=False
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        return json.loads(ran.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def theirs(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """What ExecuTorch wrote, with an ETDump of a run here: its own runtime is built without."""
    folder = tmp_path_factory.mktemp("theirs")
    found = peer("write", folder)
    loaded = Runtime.get().load_program(folder / "model.pte", enable_etdump=True, debug_buffer_size=1 << 16)
    loaded.load_method("forward").execute([torch.load(folder / "x.pt")])
    loaded.write_etdump_result_to_file(folder / "run.etdp", folder / "run.bin")
    return folder, found


def inspector(folder: Path) -> Inspector:
    return Inspector(
        etdump_path=str(folder / "run.etdp"),
        etrecord=str(folder / "etrecord.bin"),
        debug_buffer_path=str(folder / "run.bin"),
    )


def test_its_etrecord_has_its_nodes(theirs: tuple[Path, Any]) -> None:
    folder, found = theirs
    record = parse_etrecord(folder / "etrecord.bin")
    assert isinstance(record.edge_dialect_program, torch.export.ExportedProgram)
    assert nodes(record.edge_dialect_program) == found["edge"][0]
    x = torch.load(folder / "x.pt")
    for one, other in zip(record.edge_dialect_program.module()(x), record.exported_program.module()(x), strict=True):  # type: ignore[union-attr]
        torch.testing.assert_close(one, other)


def test_our_inspector_uses_its_etrecord(peer: Peer, theirs: tuple[Path, Any]) -> None:
    """Times by module, and gaps to both of its graphs; the pairs that are compared are those of its own Inspector."""
    shown = inspector(theirs[0])
    addmm = next(event for block in shown.event_blocks for event in block.events if "addmm" in event.name)
    assert "aten.addmm.default" in addmm.op_types
    assert shown.find_total_for_module("up") > 0
    edge, exported = (shown.calculate_numeric_gap("MSE", reference_graph=name) for name in (EDGE, "exported_program"))
    assert all(gap < 1e-9 for table in (edge, exported) for gaps in table["gap"] for gap in gaps)
    assert "linear" in [name for names in exported["aot_ops"] for name in names]
    columns = (edge[column] for column in ("aot_debug_handle", "aot_ops", "runtime_ops"))
    assert [[list(handle), ops, runtime] for handle, ops, runtime in zip(*columns, strict=True)] == peer(
        "gaps", theirs[0]
    )


def test_what_its_exir_save_wrote(theirs: tuple[Path, Any]) -> None:
    folder, found = theirs
    for name, expected in found.items():
        extra: dict[str, str] = {}
        program = exir.load(folder / f"{name}.pt2", extra_files=extra)
        assert [nodes(program), delegates(program)] == expected
        assert extra == {"note": name}
    assert found["delegated"][1], "its program has delegates"


def test_what_our_exir_save_wrote(peer: Peer, tmp_path: Path) -> None:
    saved = saved_here(tmp_path)
    assert peer("read", tmp_path) == {name: [nodes(one), delegates(one)] for name, one in saved.items()}
