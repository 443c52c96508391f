"""Against ExecuTorch 1.4.1: its files run here with its results, ours run there with ours, and both with eager's."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.interop.memories import memory_of
from tests.interop.modules import Case, cases
from torch.export.experimental import _export_forward_backward
from torch.utils import _pytree as pytree

import delegraph
from delegraph.aot import ExecutorchBackendConfig
from delegraph.runtime import Runtime

pytestmark = pytest.mark.executorch

ROOT = Path(__file__).parents[1]
CASES = cases()

# Outputs in which ExecuTorch 1.4.1 differs from torch; ours must equal torch's.
WRONG_THERE = {"int64": {1: "remainder of negative integers by a number has the dividend's sign, as in C"}}


def _in_executorch(python: str, action: str, directory: Path) -> dict[str, Any]:
    script = ROOT / "tests" / "interop" / "run_executorch.py"
    ran = subprocess.run(
        [python, str(script), action, str(directory)], capture_output=True, text=True, timeout=1800, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    results: dict[str, Any] = torch.load(directory / ("write_errors.pt" if action == "write" else "results.pt"))
    return results


@pytest.fixture(scope="session")
def theirs(executorch_python: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Files that ExecuTorch wrote, and what its runtime made of them."""
    directory = tmp_path_factory.mktemp("theirs")
    errors = _in_executorch(executorch_python, "write", directory)
    assert errors == {}
    return directory, _in_executorch(executorch_python, "run", directory)


@pytest.fixture(scope="session")
def ours(executorch_python: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Files written here, and what ExecuTorch's runtime made of them."""
    directory = tmp_path_factory.mktemp("ours")
    for name, case in CASES.items():
        exported = torch.export.export(case.module, case.calls[0], dynamic_shapes=case.dynamic_shapes)
        config = ExecutorchBackendConfig(external_constants=case.external_constants, memory=memory_of(case))
        lowered = delegraph.lower(exported, config=config)
        (directory / f"{name}.pte").write_bytes(bytes(lowered))
        if case.external_constants:
            lowered.program.write_tensor_data_to_file(directory)
            next(directory.glob("_default*.ptd")).rename(directory / f"{name}.ptd")
    return directory, _in_executorch(executorch_python, "run", directory)


def eager(case: Case) -> list[list[Any]]:
    module = copy.deepcopy(case.module)
    with torch.no_grad():
        return [_numpy(pytree.tree_leaves(module(*copy.deepcopy(call)))) for call in case.calls]


def _numpy(values: list[Any]) -> list[Any]:
    tensors = [v.float() if isinstance(v, torch.Tensor) and v.dtype is torch.bfloat16 else v for v in values]
    return [np.asarray(v) if isinstance(v, torch.Tensor) else v for v in tensors]


def run_here(path: Path, case: Case) -> list[list[Any]]:
    data = path.with_suffix(".ptd")
    program = Runtime.get().load_program(path, data_path=data if data.exists() else None)
    method = program.load_method("forward")
    results = [[copy.deepcopy(x) for x in method.execute(list(call))] for call in case.calls]
    return [_numpy([torch.as_tensor(x) if not isinstance(x, (int, float, bool)) else x for x in r]) for r in results]


def assert_equal(got: list[list[Any]], wanted: list[list[Any]], names: str, except_for: Any = ()) -> None:
    for call, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert len(a) == len(b)
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert np.asarray(x).dtype == np.asarray(y).dtype, f"{names}, call {call}, output {i}"
            if i in except_for:
                assert not np.array_equal(x, y), f"{names}: output {i} is listed as different and is not"
                continue
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5, err_msg=f"{names}, call {call}, output {i}")


@pytest.mark.parametrize("name", CASES)
def test_its_files_run_here(name: str, theirs: tuple[Path, dict[str, Any]]) -> None:
    directory, results = theirs
    here = run_here(directory / f"{name}.pte", CASES[name])
    assert_equal(here, eager(CASES[name]), "here against eager")
    assert not isinstance(results[name], str), results[name]
    assert_equal(here, [_numpy(r) for r in results[name]], "here against ExecuTorch", WRONG_THERE.get(name, ()))


@pytest.mark.parametrize("name", CASES)
def test_our_files_run_there(name: str, ours: tuple[Path, dict[str, Any]]) -> None:
    directory, results = ours
    here = run_here(directory / f"{name}.pte", CASES[name])
    assert_equal(here, eager(CASES[name]), "here against eager")
    assert not isinstance(results[name], str), results[name]
    assert_equal([_numpy(r) for r in results[name]], here, "ExecuTorch against here", WRONG_THERE.get(name, ()))


TRAIN = """
import sys, torch
from executorch.extension.training import _load_for_executorch_for_training, get_sgd_optimizer
batch, optimizer = torch.load(sys.argv[2]), None
module = _load_for_executorch_for_training(sys.argv[1])
for _ in range(4):
    (loss,) = module.forward_backward("forward", batch)
    optimizer = optimizer or get_sgd_optimizer(module.named_parameters(), 0.1, 0.9, 0, 0, False)
    optimizer.step(module.named_gradients())
    print("loss", loss.item())
"""


def test_a_training_step_lowered_here_trains_there(executorch_python: str, tmp_path: Path) -> None:
    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.linear(x), label)

    model, batch = Loss(), (torch.randn(4, 3), torch.randint(2, (4,)))
    joint = _export_forward_backward(torch.export.export(model, batch))
    delegraph.lower(joint).save(tmp_path / "step.pte")
    torch.save(batch, tmp_path / "batch.pt")
    command = [executorch_python, "-c", TRAIN, str(tmp_path / "step.pte"), str(tmp_path / "batch.pt")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=True)
    losses = [float(line.split()[1]) for line in ran.stdout.splitlines() if line.startswith("loss")]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    expected = []
    for _ in losses:
        optimizer.zero_grad()
        loss = model(*batch)
        expected.append(loss.item())
        loss.backward()
        optimizer.step()
    assert len(losses) == 4
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
