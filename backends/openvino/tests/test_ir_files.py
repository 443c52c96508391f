"""A delegate as an IR: OpenVINO alone reads it and gives the delegate's results."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest
import torch
from backends.openvino.tests.harness import OPTIONS, load

import delegraph
from delegraph.errors import DelegateInvalidCompatibility
from delegraph.program import deserialize_program
from delegraph_openvino.blob import BACKEND_ID, pack, unpack
from delegraph_openvino.options import OpenVinoOptions
from delegraph_openvino.runtime.backend import OpenVinoBackend
from delegraph_openvino.runtime.saturation import IN_FLOAT, products_saturate

(_COMMAND,) = entry_points(group="console_scripts", name="delegraph")
main: Callable[[list[str]], int] = _COMMAND.load()
"""The command `delegraph`, as it is installed."""


class Net(torch.nn.Module):
    """Convolution, normalization and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.BatchNorm2d(8)
        self.up, self.down = torch.nn.Linear(72, 128), torch.nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = torch.relu(self.norm(self.conv(x))).flatten(1)
        result: torch.Tensor = self.down(torch.relu(self.up(seen)))
        return result


def net() -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Net().eval(), torch.randn(2, 3, 7, 7)


def written(lowered: bytes, folder: Path) -> list[str]:
    """The files that `delegraph inspect` writes into `folder / "out"`."""
    (folder / "m.pte").write_bytes(lowered)
    command = [sys.executable, "-m", "delegraph", "inspect", "m.pte", "--delegates", "out"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return sorted(path.name for path in (folder / "out").iterdir())


def run_alone(file: Path, *inputs: Any, int8_products: bool = False) -> list[Any]:
    """OpenVINO's results with the settings that delegates are run with: they are none of the file's."""
    core, settings = openvino.Core(), OpenVinoOptions(**OPTIONS).properties(int8_products)
    if products_saturate(core):  # on a processor without VNNI delegates round, and multiply in float32
        settings |= IN_FLOAT
    compiled = core.compile_model(core.read_model(file), "CPU", settings)
    results = compiled(dict(zip((f"input:{index}" for index in range(len(inputs))), inputs, strict=True)))
    return [results[port] for port in compiled.outputs]


@pytest.mark.parametrize("recipe", [None, "int8", "int8_weight_only", "int4_weight_only", "int8_dynamic_int4_weight"])
def test_a_delegate_is_an_ir(recipe: str | None, tmp_path: Path) -> None:
    module, x = net()
    args = () if recipe else ((x,),)
    source = delegraph.quantize(module, [(x,)], (x,), recipe=recipe, backends=["openvino"]) if recipe else module
    lowered = delegraph.lower(source, *args, backends=["openvino"])
    assert len(lowered.report.methods["forward"].delegates) == 1
    assert written(bytes(lowered), tmp_path) == ["forward_delegate_0.bin", "forward_delegate_0.xml"]
    rounds = recipe == "int8_dynamic_int4_weight"
    (result,) = run_alone(tmp_path / "out" / "forward_delegate_0.xml", x.numpy(), int8_products=rounds)
    np.testing.assert_array_equal(result, load(lowered)(x.numpy()))


def test_weights_that_methods_share_are_in_each_file(tmp_path: Path) -> None:
    layer = torch.nn.Linear(64, 96).eval()
    sizes = {"one": 1, "some": 5}
    programs = {name: torch.export.export(layer, (torch.randn(rows, 64),)) for name, rows in sizes.items()}
    lowered = bytes(delegraph.lower(programs, backends=["openvino"]))
    assert any(key.startswith(BACKEND_ID) for key in deserialize_program(lowered).named_data)
    written(lowered, tmp_path)
    for name, rows in sizes.items():
        x = torch.randn(rows, 64)
        (result,) = run_alone(tmp_path / "out" / f"{name}_delegate_0.xml", x.numpy())
        np.testing.assert_allclose(result, layer(x).detach().numpy(), atol=1e-5)


def test_compiling_dumps_the_ir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGRAPH_DUMP", "compile")
    monkeypatch.setenv("DELEGRAPH_DUMP_DIR", str(tmp_path))
    module, x = net()
    lowered = delegraph.lower(module, (x,), backends=["openvino"])
    (result,) = run_alone(tmp_path / "compile.forward.OpenVinoIR_0.xml", x.numpy())
    np.testing.assert_array_equal(result, load(lowered)(x.numpy()))


# ---- of strangers ---------------------------------------------------------------------------------------------------


def changed(**fields: Any) -> bytes:
    """The blob of a layer whose header, or graph, says something else."""
    layer = torch.nn.Linear(64, 96).eval()
    lowered = delegraph.lower(layer, (torch.randn(2, 64),), backends=["openvino"])
    (processed,) = deserialize_program(bytes(lowered)).delegate_data
    blob = unpack(processed)
    return pack(replace(blob, **{name: change(getattr(blob, name)) for name, change in fields.items()}), [blob.data])


def test_a_blob_as_it_is() -> None:
    assert set(OpenVinoBackend().engine_files("m", changed(), {})) == {"m.bin", "m.xml"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weights": lambda all_of: [replace(all_of[0], shape=(64, 96)), *all_of[1:]]}, "does not read weight 0"),
        ({"weights": lambda all_of: [replace(all_of[0], dtype="int32"), *all_of[1:]]}, "does not read weight 0"),
        ({"weights": lambda all_of: [*all_of, replace(all_of[0], shape=(1, 1))]}, "does not read weight"),
        ({"xml": lambda xml: bytes(xml).replace(b'type="MatMul"', b'type="ReadValue"')}, "lowering does not write"),
        ({"xml": lambda xml: bytes(xml).replace(b"<layer ", b"<a:layer ", 1)}, "cannot be read"),
        ({"xml": lambda xml: bytes(xml).replace(b"<edges", b"<a:edges").replace(b"</edges", b"</a:edges")}, "unbound"),
        ({"xml": lambda xml: b"<!DOCTYPE net>" + bytes(xml)}, "document type|cannot be read"),
    ],
    ids=["shape", "dtype", "one_more", "operation", "xml", "prefix", "doctype"],
)
def test_a_graph_of_other_weights_is_refused(fields: Any, message: str) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match=message):
        OpenVinoBackend().engine_files("m", changed(**fields), {})
