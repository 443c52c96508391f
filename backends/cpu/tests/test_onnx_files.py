"""A delegate as an ONNX model: onnx's checker takes it, and onnxruntime alone gives the delegate's results."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from backends.cpu.tests.test_hostile import ADD, ONES, blob, graph, in_file, model

import delegraph
from delegraph.aot import ExecutorchBackendConfig, LoweringConfig
from delegraph.errors import DelegateInvalidCompatibility
from delegraph.program import deserialize_program, write_program
from delegraph.runtime import Program
from delegraph_cpu.runtime import onnx_files
from delegraph_cpu.runtime.backend import CpuBackend
from delegraph_cpu.sessions import LEFT_OUT

(_COMMAND,) = entry_points(group="console_scripts", name="delegraph")
main: Callable[[list[str]], int] = _COMMAND.load()
"""The command `delegraph`, as it is installed."""


class Net(torch.nn.Module):
    """Convolution, normalization and two layers, wide enough that their weights lie outside of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.BatchNorm2d(8)
        self.up, self.down = torch.nn.Linear(72, 128), torch.nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = torch.relu(self.norm(self.conv(x))).flatten(1)
        result: torch.Tensor = self.down(torch.relu(self.up(seen)))
        return result


def net() -> tuple[torch.nn.Module, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    return Net().eval(), torch.randn(2, 3, 7, 7, generator=generator)


def written(lowered: bytes, folder: Path) -> list[str]:
    """The names of the files that the delegates are, written into `folder`."""
    program = Program.load(lowered)
    names = []
    for plan in program.records.execution_plan:
        for index, delegate in enumerate(plan.delegates):
            blob = program.records.delegate_data[delegate.processed]
            files = CpuBackend().engine_files(f"{plan.name}_delegate_{index}", blob, program.named_data)
            for name, pieces in files.items():
                (folder / name).write_bytes(b"".join(pieces))
            names += files
    return sorted(names)


def inspect(folder: Path, *words: object) -> tuple[int, str]:
    """`delegraph inspect m.pte --delegates out` in `folder`: its exit code, and what it says of errors."""
    command = [sys.executable, "-m", "delegraph", "inspect", "m.pte", "--delegates", "out", *map(str, words)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stderr


def run_alone(file: Path, *inputs: Any) -> list[Any]:
    """onnxruntime's results, of a file that onnx finds sound."""
    onnx.checker.check_model(str(file))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", "1")  # without VNNI, products would saturate
    session = onnxruntime.InferenceSession(str(file), options, ["CPUExecutionProvider"], disabled_optimizers=LEFT_OUT)
    names = [each.name for each in session.get_inputs()]
    results: list[Any] = session.run(None, dict(zip(names, inputs, strict=True)))
    return results


RECIPES = [
    None,
    "int8",
    "int8_dynamic",
    "int8_weight_only",
    "int4_weight_only",
    "int8_dynamic_int4_weight",
]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("backend", ["cpu", "cpu{int8_products=true}"])
def test_a_delegate_is_an_onnx_model(recipe: str | None, backend: str, tmp_path: Path) -> None:
    module, x = net()
    args = () if recipe else ((x,),)
    source = delegraph.quantize(module, [(x,)], (x,), recipe=recipe, backends=["cpu"]) if recipe else module
    lowered = bytes(delegraph.lower(source, *args, backends=[backend]))
    assert written(lowered, tmp_path) == ["forward_delegate_0.onnx"]
    (result,) = run_alone(tmp_path / "forward_delegate_0.onnx", x.numpy())
    np.testing.assert_array_equal(result, delegraph.load(lowered)(x.numpy()))


def test_methods_have_files_of_their_own(tmp_path: Path) -> None:
    """Weights that they share are in each."""
    layer = torch.nn.Linear(64, 96).eval()
    sizes = {"one": 1, "some": 5}
    programs = {name: torch.export.export(layer, (torch.randn(rows, 64),)) for name, rows in sizes.items()}
    lowered = delegraph.lower(programs, backends=["cpu"])
    assert written(bytes(lowered), tmp_path) == ["one_delegate_0.onnx", "some_delegate_0.onnx"]
    for name, rows in sizes.items():
        x = torch.randn(rows, 64)
        (result,) = run_alone(tmp_path / f"{name}_delegate_0.onnx", x.numpy())
        np.testing.assert_allclose(result, layer(x).detach().numpy(), atol=1e-5)


def test_states_are_inputs_and_outputs(tmp_path: Path) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.full((4,), 3.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)  # type: ignore[operator]
            return self.total * 2  # type: ignore[operator]

    lowered = bytes(delegraph.lower(Counting(), (torch.zeros(4),), backends=["cpu"]))
    written(lowered, tmp_path)
    x, total = np.arange(4, dtype=np.float32), np.full(4, 3, np.float32)
    results = run_alone(tmp_path / "forward_delegate_0.onnx", x, total)
    np.testing.assert_array_equal(results, [2 * (x + total), x + total])


def test_external_weights_are_in_the_file(tmp_path: Path) -> None:
    module, x = net()
    config = LoweringConfig(executorch=ExecutorchBackendConfig(external_constants=True))
    delegraph.lower(module, (x,), backends=["cpu"], config=config).save(tmp_path / "m.pte")
    (data,) = tmp_path.glob("*.ptd")
    code, message = inspect(tmp_path)
    assert code == 1 and "is in a .ptd file" in message and not (tmp_path / "out").exists()
    assert inspect(tmp_path, "--data", data) == (0, "")
    (result,) = run_alone(tmp_path / "out" / "forward_delegate_0.onnx", x.numpy())
    np.testing.assert_array_equal(result, delegraph.load(tmp_path / "m.pte", data_path=data)(x.numpy()))


@pytest.mark.parametrize("recipe", [None, "int8"])
def test_large_weights_lie_beside(recipe: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A protobuf ends at 2 GB."""
    monkeypatch.setattr(onnx_files, "_LARGEST", 5_000)
    module, x = net()
    args = () if recipe else ((x,),)
    source = delegraph.quantize(module, [(x,)], (x,), recipe=recipe, backends=["cpu"]) if recipe else module
    lowered = bytes(delegraph.lower(source, *args, backends=["cpu"]))
    assert written(lowered, tmp_path) == ["forward_delegate_0.onnx", "forward_delegate_0.onnx.data"]
    (result,) = run_alone(tmp_path / "forward_delegate_0.onnx", x.numpy())
    np.testing.assert_array_equal(result, delegraph.load(lowered)(x.numpy()))


def test_compiling_dumps_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGRAPH_DUMP", "partition,compile")
    monkeypatch.setenv("DELEGRAPH_DUMP_DIR", str(tmp_path))
    module, x = net()
    lowered = bytes(delegraph.lower(module, (x,), backends=["cpu"]))
    assert [path.name for path in tmp_path.glob("*.onnx")] == ["compile.forward.CpuBackend_0.onnx"]
    (result,) = run_alone(tmp_path / "compile.forward.CpuBackend_0.onnx", x.numpy())
    np.testing.assert_array_equal(result, delegraph.load(lowered)(x.numpy()))


# ---- of strangers ---------------------------------------------------------------------------------------------------


def files_of(packed: bytes) -> Any:
    return CpuBackend().engine_files("m", packed, {})


@pytest.mark.parametrize(
    ("tensors", "weights", "message"),
    [
        ([in_file("/etc/passwd")], {}, "refers to a file"),
        ([in_file("weights")], {"w": np.ones(3, np.float32)}, "weight 'w' is float32 (3,), and not what its graph"),
        ([in_file("weights")], {"w": np.ones(2, np.int32)}, "weight 'w' is int32 (2,), and not what its graph"),
    ],
    ids=["file", "shape", "dtype"],
)
def test_a_graph_of_other_weights_is_refused(tensors: Sequence[Any], weights: Any, message: str) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match=re.escape(message)):
        files_of(blob(model(graph([ADD], *tensors)), weights=weights))


def test_where_a_graph_says_that_a_weight_lies_is_of_no_account() -> None:
    tensor = in_file("/etc/passwd")
    del tensor.external_data[2]
    (pieces,) = files_of(blob(model(graph([ADD], tensor)), weights={"w": ONES})).values()
    (weight,) = onnx.ModelProto.FromString(b"".join(pieces)).graph.initializer
    assert (weight.raw_data, list(weight.external_data)) == (ONES.tobytes(), [])


def test_a_damaged_blob_is_refused_and_nothing_written(tmp_path: Path) -> None:
    module, x = net()
    programs = {"a": torch.export.export(module, (x,)), "b": torch.export.export(module, (x[:1],))}
    records = deserialize_program(bytes(delegraph.lower(programs, backends=["cpu"])))
    first, second = map(bytes, records.delegate_data)
    write_program(replace(records, delegate_data=(first, second[: len(second) // 2])), tmp_path / "m.pte")
    code, message = inspect(tmp_path)
    assert code == 1 and "b_delegate_0 (CpuBackend): a blob of CpuBackend is damaged" in message
    assert not (tmp_path / "out").exists()
