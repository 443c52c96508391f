"""`delegraph inspect`: records, tables and text."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delegraph.devtools.summary import FileSizes, file_sizes, summarize
from delegraph.errors import InvalidProgram
from delegraph.plugins.registry import PluginRegistry, use_registry
from delegraph.program import (
    ExternalData,
    FlatTensor,
    serialize_program,
    to_text,
    write_flat_tensor,
    write_program,
)
from delegraph.program.flat_tensor import TensorLayout
from delegraph.program.schema import (
    DeviceType,
    ExtraTensorInfo,
    KernelCall,
    NonConstBufferDevice,
    Program,
    ScalarType,
    Tensor,
    TensorDataLocation,
)
from delegraph.program.weights_origin import WeightMark, WeightsOrigin

from .conftest import STAMP, library, plan, program

Told = Callable[..., Any]
Refused = Callable[..., str]


def method_of(summary: Any, name: str) -> Any:
    return next(method for method in summary["methods"] if method["name"] == name)


def test_json(pte: str, told: Told) -> None:
    summary = told("inspect", pte, "--json")
    assert [method["name"] for method in summary["methods"]] == ["dynamic", "forward", "identities"]
    forward = method_of(summary, "forward")
    tensor = {
        "kind": "float32",
        "shape": [4],
        "dynamic": False,
        "planned": True,
        "nbytes": 16,
        "value": "",
        "name": "",
        "dims": [],
    }
    assert forward["inputs"][0] == forward["outputs"][0] == tensor
    assert [(value["kind"], value["value"]) for value in forward["inputs"][1:]] == [("Null", ""), ("Int", "2")]
    assert forward["operators"] == [{"name": "aten::add.out", "calls": 1, "libraries": ["numpy"], "missing": 0}]
    assert forward["kernels"] == [
        {
            "operator": "aten::add.out",
            "key": "v1/6;0|6;0|6;0",
            "instructions": [[0, 0]],
            "library": "numpy",
            "reason": "the only one",
        }
    ]
    assert forward["instructions"] == {"kernel": 1, "delegate": 1}
    assert forward["memory"] == {"1": 256}
    assert forward["delegates"] == [
        {
            "backend": "Negator",
            "calls": 1,
            "blob_nbytes": 6,
            "stamp": {"backend": "Negator", "distribution": "acme", "version": "1.2", "blob_version": 3, "variant": ""},
            "compile_specs": ["speed"],
            "installed": True,
            "alternatives": [],
        }
    ]


def test_json_of_dynamic_and_unplanned_tensors(pte: str, told: Told) -> None:
    first = method_of(told("inspect", pte, "--json"), "dynamic")["inputs"][0]
    expected = {
        "kind": "float32",
        "shape": [4, 8],
        "dynamic": True,
        "planned": False,
        "nbytes": 128,
        "value": "",
        "name": "",
        "dims": [],
    }
    assert first == expected


def test_sizes_add_up(pte: str, told: Told) -> None:
    summary = told("inspect", pte, "--json")
    sizes = summary["sizes"]
    assert sizes["file"] == os.path.getsize(pte)
    assert sizes["flatbuffer"] + sizes["segments"] <= sizes["file"]
    assert (summary["constants"], summary["constant_nbytes"]) == (1, 16)
    assert (summary["delegate_nbytes"], summary["mutable_nbytes"]) == (6, 0)
    assert summary["named_data"] == {"shared.table": 24}
    assert sizes["segments"] >= 16 + 6 + 24


def test_sizes_of_a_file_without_segments() -> None:
    data = serialize_program(Program((plan("forward", (), (), (), ()),)))
    assert file_sizes(data, len(data)) == FileSizes(len(data), len(data), 0)


def test_sizes_of_what_is_no_program() -> None:
    with pytest.raises(InvalidProgram, match=r"not a \.pte"):
        file_sizes(bytes(64), 64)


def test_what_is_not_installed(pte: str, told: Told) -> None:
    with use_registry(PluginRegistry()):
        forward = method_of(told("inspect", pte, "--json"), "forward")
        table = told("inspect", pte)
    assert forward["operators"] == [{"name": "aten::add.out", "calls": 1, "libraries": [], "missing": 1}]
    assert forward["delegates"][0]["installed"] is False
    assert "none for 1 calls" in table


def test_nobody_asked_what_is_installed() -> None:
    forward = summarize(program()).methods[1]
    assert forward.operators[0].missing is None
    assert forward.delegates[0].installed is None
    assert forward.delegates[0].stamp == STAMP
    assert forward.planned_nbytes == 256


def test_a_kernel_library_that_is_broken_is_told_of(pte: str, told: Told, tmp_path: Path, monkeypatch: Any) -> None:
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[delegraph.kernels]\nacme = acme_broken:library\n")
    (tmp_path / "acme_broken.py").write_text("raise OSError('no such device')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = PluginRegistry.discover(environ={"DELEGRAPH_PLUGINS": "acme"}, path=[str(tmp_path)])
    registry.register("kernels", "numpy", library())
    with use_registry(registry):
        out = told("inspect", pte)
    assert "numpy" in out
    assert "a kernel library could not be asked: " in out
    assert "no such device" in out


def test_table(pte: str, told: Told) -> None:
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in told("inspect", pte).splitlines()]
    assert ["input 0", "float32", "up to [4, 8]", "the caller's", "128"] in cells
    assert ["input 0", "float32", "[4]", "planned", "16"] in cells
    assert ["input 2", "Int", "2", "", ""] in cells
    assert ["0", "Negator", "yes", "1", "6", "acme 1.2, blob version 3", "speed"] in cells
    assert ["aten::add.out", "1", "numpy"] in cells
    assert ["0", "aten::add.out", "v1/6;0|6;0|6;0", "numpy", "the only one"] in cells
    assert ["named data shared.table", "24"] in cells
    assert ["planned memory 1 of identities", "640"] in cells
    assert ["forward: 7 values, instructions: 1 kernel, 1 delegate"] in cells


def test_memory_of_a_device(told: Told, tmp_path: Path) -> None:
    forward = replace(
        plan("forward", (), (), (), ()),
        non_const_buffer_sizes=(0, 16, 32),
        non_const_buffer_device=(NonConstBufferDevice(2, DeviceType.CUDA, 1),),
    )
    path = str(tmp_path / "m.pte")
    Path(path).write_bytes(serialize_program(Program((forward,))))
    assert method_of(told("inspect", path, "--json"), "forward")["devices"] == {"2": "cuda:1"}
    assert "planned memory 2 of forward on cuda:1" in told("inspect", path)


def test_the_schedule(pte: str, told: Told, refused: Refused) -> None:
    """The program is loaded for it; the file's own order, where nothing is submitted."""
    steps = told("inspect", pte, "--schedule", "--json")["methods"]["forward"]
    assert [(step["does"], step["name"]) for step in steps] == [("run", "aten::add.out"), ("run", "delegate 0 Negator")]
    assert "--schedule does not go with" in refused("inspect", pte, "--schedule", "--text", code=2)


def test_table_without_rich(pte: str, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    lines = told("inspect", pte).splitlines()
    assert "  input 0   float32  up to [4, 8]  the caller's    128" in lines
    assert "  aten::add.out      1  numpy" in lines


def test_names_from_a_stranger_do_nothing_to_the_terminal(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "\x1b[2Jgone"
    values = (Tensor(ScalarType.FLOAT, (1,), (0,)),)
    evil = plan(name, values, (0,), (0,), [KernelCall(0, (0,))], [f"aten::{name}.out"])
    path = tmp_path / "m.pte"
    write_program(Program((evil,), named_data={name: program().named_data["shared.table"]}), path)
    for _ in range(2):
        out = told("inspect", str(path))
        assert "\x1b" not in out
        assert out.count("\\x1b[2Jgone") >= 5
        monkeypatch.setitem(sys.modules, "rich.console", None)


def test_external_constants_are_named(told: Told, tmp_path: Path) -> None:
    info = ExtraTensorInfo(fully_qualified_name="lm.weight", location=TensorDataLocation.EXTERNAL)
    value = Tensor(ScalarType.COMPLEX32, (2,), (0,), extra_tensor_info=info)
    path = tmp_path / "m.pte"
    write_program(Program((plan("forward", (value,), (), (0,), ()),)), path)
    out = told("inspect", str(path))
    assert "needs a .ptd with 'lm.weight'" in out
    assert "complex32" in out


def test_text(pte: str, told: Told) -> None:
    assert told("inspect", pte, "--text") == to_text(program())


def test_kernels_in_the_order_that_was_asked_for(pte: str, told: Told) -> None:
    registry = PluginRegistry()
    registry.register("kernels", "numpy", library())
    registry.register("kernels", "other", library("other"))
    with use_registry(registry):
        default = method_of(told("inspect", pte, "--json"), "forward")["kernels"]
        asked = method_of(told("inspect", pte, "--json", "--kernels", "other,numpy"), "forward")["kernels"]
        single = told("inspect", pte, "--kernels", "numpy", "--kernels", "aten::add.out=other")
    assert [(use["library"], use["reason"]) for use in default] == [
        (None, "numpy and other have it, and no order says which goes first")
    ]
    assert [(use["library"], use["reason"]) for use in asked] == [("other", "first in the order, before numpy")]
    assert "the only one" in single


# ---- files of weights ------------------------------------------------------------------------------


@pytest.fixture
def ptd(tmp_path: Path) -> str:
    layout = TensorLayout(ScalarType.FLOAT, (2, 3), (0, 1))
    marks = {key: WeightMark("a blob", "00") for key in ("w", "packed", "adapter.w")}
    entries = {"w": ExternalData(bytes(24), layout), "packed": ExternalData(bytes(1000))}
    write_flat_tensor(FlatTensor(entries, origin=WeightsOrigin("cafe", marks), name="base"), tmp_path / "w.ptd")
    return str(tmp_path / "w.ptd")


def test_weights_in_words(ptd: str, told: Told, refused: Refused) -> None:
    lines = told("inspect", ptd).splitlines()
    assert lines[0] == f"{ptd}: external weights, 2 keys, 1,024 bytes"
    rows = [line.replace("│", " ").split() for line in lines]
    assert [words for words in rows if words and words[0] in ("w", "packed")] == [
        ["w", "float32", "[2,", "3]", "24"],
        ["packed", "a", "blob", "1,000"],
    ]
    assert lines[-3:-1] == ["written as 'base' with the program cafe", "in another file: 'adapter.w'"]
    assert "--text has no use with" in refused("inspect", ptd, "--text", code=2)
    assert "--delegates has no use with" in refused("inspect", ptd, "--delegates", "out", code=2)


def test_weights_as_json(ptd: str, told: Told) -> None:
    tensor = {"dtype": "float32", "shape": [2, 3], "dim_order": [0, 1], "nbytes": 24}
    blob = {"dtype": None, "shape": None, "dim_order": None, "nbytes": 1000}
    assert told("inspect", ptd, "--json") == {
        "name": "base",
        "program": "cafe",
        "nbytes": 1024,
        "entries": {"w": tensor, "packed": blob},
        "elsewhere": ["adapter.w"],
        "integrity": None,
    }


def test_weights_of_which_nothing_is_known(told: Told, refused: Refused, tmp_path: Path) -> None:
    write_flat_tensor(FlatTensor({"\x1b[31m": ExternalData(b"1")}), tmp_path / "w.ptd")
    out = told("inspect", str(tmp_path / "w.ptd"))
    assert "which program they belong to is not said" in out and "\x1b" not in out
    (tmp_path / "w.ptd").write_bytes(bytes(4) + b"FT01")
    assert "not a .ptd" in refused("inspect", str(tmp_path / "w.ptd"), code=1)
