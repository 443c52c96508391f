"""The library as lowering and the runtime meet it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import delegraph
import delegraph_portable
from delegraph.aot import ExecutorchBackendConfig
from delegraph.errors import MissingKernel, OperatorMissing
from delegraph_special import library

EXECUTORCH = Path(__file__).parents[2] / "portable" / "tests" / "executorch_operators.txt"


class Volume(torch.nn.Module):
    """The volume of an ellipsoid with these axes, and the inverse matrix."""

    def forward(self, axes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n = axes.shape[-1] / 2
        ball = n * torch.log(torch.tensor(torch.pi)) - torch.lgamma(axes[0, 0] * 0 + n + 1)
        return torch.exp(ball) * torch.linalg.det(axes), torch.linalg.inv(axes)


AXES = torch.tensor([[2.0, 0.5, 0.0], [0.0, 3.0, 0.0], [1.0, 0.0, 4.0]])


def test_it_has_nothing_that_portable_has() -> None:
    assert not library.operator_names() & delegraph_portable.library.operator_names()


def test_it_has_nothing_of_executorch_or_core_aten() -> None:
    assert not library.operator_names() & set(EXECUTORCH.read_text().split())
    for operator in library.operator_names():
        packet = getattr(torch.ops.aten, operator.removeprefix("aten::").partition(".")[0])
        assert not any(torch.Tag.core in getattr(packet, overload).tags for overload in packet.overloads()), operator


def test_importing_it_imports_neither_scipy_nor_torch() -> None:
    program = "import sys, delegraph_special; print(*{m.partition('.')[0] for m in sys.modules} & {'torch', 'scipy'})"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_a_model_runs_on_both_libraries() -> None:
    module = delegraph.load(bytes(delegraph.lower(Volume(), (AXES,))))
    used = module["forward"].method.kernels
    assert {used["aten::lgamma.out"], used["aten::_linalg_det.result"], used["aten::linalg_inv_ex.inverse"]} == {
        "special"
    }
    assert set(used.values()) == {"portable", "special"}
    for actual, expected in zip(module(AXES.numpy()), Volume()(AXES), strict=True):
        np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_where_it_is_not_installed_lowering_and_loading_say_so() -> None:
    with pytest.raises(MissingKernel, match=r"aten::lgamma\.out") as refused:
        delegraph.lower(Volume(), (AXES,), config=ExecutorchBackendConfig(kernels=["portable"]))
    assert "aten::linalg_inv_ex.inverse" in str(refused.value)
    with pytest.raises(OperatorMissing, match=r"no kernel for") as refused:
        delegraph.load(bytes(delegraph.lower(Volume(), (AXES,))), kernels=["portable"])
    assert "aten::lgamma.out" in str(refused.value)
