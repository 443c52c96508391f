"""`delegraph inspect --sizes` and `--nodes`: what is in delegates, and why nothing is known of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import DelegateDescription, DelegateNode, DelegateWeight, DescribedTensor
from delegraph.plugins.registry import PluginRegistry, use_registry
from delegraph.program import DebugData, SourceNode, write_program
from delegraph.program.debug_data import DEBUG_DATA_KEY, SourceWeight, write_debug_data
from delegraph.program.schema import NamedData
from delegraph.runtime import BackendInterface

from .conftest import Negator, program

Told = Callable[..., Any]
Refused = Callable[..., str]

DESCRIBED = DelegateDescription(
    nodes=(
        DelegateNode("load", "Load", ("table",), (DescribedTensor("loaded"),)),
        DelegateNode("neg", "Negate", ("loaded", "w_scale_weight"), debug_id=7),
    ),
    weights=(
        DelegateWeight("w_scale_weight", "float32", (1,), 4, data=b"abcd"),
        DelegateWeight("table", "int8", (24,), 24, key="shared.table", data=bytes(24)),
    ),
    device="abacus",
    options={"beads": "10"},
    parts={"wires": 2},
)
ORIGINS = DebugData(
    nodes={
        1: SourceNode(("aten::add.Tensor",), "head", "net.py:3, in forward", ("head.bias",)),
        2: SourceNode(("aten::neg",), "tail.0", "net.py:4, in forward", ("scale.weight", "lut"), ("float32 [4]",)),
    },
    instructions={0: (1,), 1: (2,)},
    delegates=({7: (2,)},),
    constants={1: ("head.bias",)},
    weights={
        "head.bias": SourceWeight("float32", (4,)),
        "scale.weight": SourceWeight("float32", (1,)),
        "lut": SourceWeight("int8", (4, 6)),
    },
)


class Telling(Negator):
    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer

    def describe(self, processed: Any, compile_specs: Any, named_data: Any) -> Any:
        return self._answer()


def use(backend: BackendInterface | None) -> Any:
    registry = PluginRegistry()
    if backend is not None:
        registry.register("backends", "Negator", backend)
    return use_registry(registry)


@pytest.fixture
def told_of(tmp_path: Path) -> str:
    """The program with debug data."""
    named = {**program().named_data, DEBUG_DATA_KEY: NamedData(write_debug_data({"forward": ORIGINS}))}
    path = tmp_path / "told.pte"
    write_program(replace(program(), named_data=MappingProxyType(named)), path)
    return str(path)


def test_steps_in_a_delegate_come_from_lines(told_of: str, told: Told) -> None:
    with use(Telling(lambda: DESCRIBED)):
        text = told("inspect", told_of, "--nodes")
        rows = [row for row in told("inspect", told_of, "--nodes", "--json")["nodes"] if row["method"] == "forward"]
    assert "forward: delegate 0, Negator for abacus, 2 nodes" in text
    assert [(row["name"], row["operator"], row["module"], row["reads"]) for row in rows] == [
        ("0", "aten::add.out", "head", ["head.bias"]),
        ("load", "Load", "tail.0", ["lut"]),
        ("neg", "Negate", "tail.0", ["scale.weight"]),
    ]
    assert [row["origin"]["lines"] for row in rows[1:]] == [["net.py:4, in forward"]] * 2, "Load is what Negate reads"


def test_bytes_add_up_and_belong_to_modules(told_of: str, told: Told) -> None:
    with use(Telling(lambda: DESCRIBED)):
        text = told("inspect", told_of, "--sizes")
        sizes = told("inspect", told_of, "--sizes", "--json")
        short = told("inspect", told_of)
    assert "weights by module" in short and "--sizes shows every part and weight" in short
    for whole in ("file", "delegate 0 of forward (Negator)"):
        (nbytes,) = (part["nbytes"] for part in sizes["parts"] if part["name"] == whole)
        assert nbytes == sum(part["nbytes"] for part in sizes["parts"] if part["within"] == whole)
    weights = {row["label"]: (row["module"], row["stored"], row["nbytes"], row["place"]) for row in sizes["weights"]}
    assert weights["lut"] == ("", "table", 24, "named data shared.table")
    assert weights["scale.weight"] == ("scale", "w_scale_weight", 4, "delegate 0 of forward")
    assert weights["head.bias"] == ("head", "constants 1", 16, "constants")
    assert {row["module"]: row["nbytes"] for row in sizes["modules"]}["scale"] == 4
    (delegate,) = sizes["delegates"]
    assert (delegate["device"], delegate["options"], delegate["parts"]) == ("abacus", {"beads": "10"}, {"wires": 2})
    assert "wires" in text and "named data shared.table" in text


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        (Negator(), "this backend does not describe its blobs"),
        (None, "its backend is not installed here"),
        (
            Telling(lambda: replace(DESCRIBED, parts={"wires": 400})),
            "delegate 0 of forward (Negator): its describe contradicts its blob: its weights and parts have 404 bytes,"
            " and the blob 6",
        ),
        (
            Telling(lambda: replace(DESCRIBED, weights=(replace(DESCRIBED.weights[1], nbytes=23),))),
            "its weight 'table' has 23 bytes, and other data",
        ),
        (
            Telling(lambda: replace(DESCRIBED, weights=(replace(DESCRIBED.weights[1], nbytes=25, data=None),))),
            "its weight 'table' has 25 bytes, the named data 'shared.table' has 24",
        ),
        (Telling(lambda: {}["beads"]), "(Negator): KeyError while it describes its blob: 'beads'"),
    ],
)
def test_why_a_delegate_is_one_piece(told_of: str, told: Told, backend: BackendInterface | None, reason: str) -> None:
    with use(backend):
        assert reason in told("inspect", told_of, "--sizes")
        (delegate,) = told("inspect", told_of, "--nodes", "--json")["delegates"]
        nodes = told("inspect", told_of, "--nodes", "--json")["nodes"]
    assert reason in delegate["reason"]
    (whole,) = (row for row in nodes if row["delegate"] == 0)
    assert (whole["operator"], whole["module"]) == ("Negator", "tail.0"), "what the file tells is told"


def test_a_damaged_blob_is_told(told_of: str, told: Told) -> None:
    def damaged() -> Any:
        raise DelegateInvalidCompatibility("its wires are cut")

    with use(Telling(damaged)):
        assert "one piece here: delegate 0 of forward (Negator): its wires are cut" in told(
            "inspect", told_of, "--sizes"
        )


def test_a_file_without_debug_data(pte: str, told: Told) -> None:
    with use(Telling(lambda: DESCRIBED)):
        sizes = told("inspect", pte, "--sizes", "--json")
        nodes = told("inspect", pte, "--nodes", "--json")["nodes"]
    assert {row["label"] for row in sizes["weights"]} >= {"constants 1", "table", "w_scale_weight"}
    assert all(row["module"] == "" and row["origin"]["lines"] == [] for row in nodes)


def test_what_does_not_go_with_it(told_of: str, refused: Refused) -> None:
    assert "--nodes does not go with --sizes" in refused("inspect", told_of, "--sizes", "--nodes", code=2)
    assert "--text does not go with --json" in refused("inspect", told_of, "--text", "--json", code=2)
    assert "--data goes with --delegates" in refused("inspect", told_of, "--data", "w.ptd", code=2)
