"""ExecuTorch's `TrainingModule` and its optimizer, on a joint graph that was lowered here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import export
from torch.export.experimental import _export_forward_backward

from delegraph.errors import InvalidState, LoweringError, NotFound
from delegraph_executorch.exir import ExecutorchBackendConfig, to_edge
from delegraph_executorch.extension.training import (
    TrainingModule,
    _load_for_executorch_for_training,
    _load_for_executorch_for_training_from_buffer,
    get_sgd_optimizer,
)

INPUTS = (torch.tensor([[1.0, -2.0, 0.5]]), torch.tensor([1]))


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.linear(x), label)


@pytest.fixture(scope="module")
def edge() -> Any:
    return to_edge(_export_forward_backward(export(Step(), INPUTS)))


@pytest.fixture(scope="module")
def buffer(edge: Any) -> bytes:
    return bytes(edge.to_executorch().buffer)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.1},
        {"momentum": 0.9},
        {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1},
        {"momentum": 0.9, "nesterov": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("inputs", [INPUTS, tuple(x.numpy() for x in INPUTS)], ids=["torch", "numpy"])
def test_steps_are_those_of_torchs_optimizer(buffer: bytes, options: dict[str, Any], inputs: Any) -> None:
    model = Step()
    theirs = torch.optim.SGD(model.parameters(), lr=0.1, **options)
    module, ours = _load_for_executorch_for_training_from_buffer(buffer), None
    for _ in range(4):
        (loss,) = module.forward_backward("forward", inputs)
        ours = ours or get_sgd_optimizer(module.named_parameters(), 0.1, **options)
        theirs.zero_grad()
        expected = model(*INPUTS)
        expected.backward()
        assert float(loss) == pytest.approx(expected.item(), rel=1e-4)
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            np.testing.assert_allclose(module.named_gradients()[name], parameter.grad, rtol=1e-4, atol=1e-6)
        theirs.step()
        ours.step(module.named_gradients())
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(module.named_parameters()[name], parameter.detach(), rtol=1e-4, atol=1e-6)


def test_gradients_of_one_step_are_not_the_next_ones(buffer: bytes, tmp_path: Any) -> None:
    (tmp_path / "step.pte").write_bytes(buffer)
    module = _load_for_executorch_for_training(str(tmp_path / "step.pte"))
    (loss,) = module.forward_backward("forward", INPUTS)
    before, gradients = float(loss), module.named_gradients()
    kept = {name: gradient.clone() for name, gradient in gradients.items()}
    get_sgd_optimizer(module.named_parameters(), 1.0).step(gradients)
    module.forward_backward("forward", INPUTS)
    assert float(loss) == before
    assert all(torch.equal(gradients[name], kept[name]) for name in kept)
    assert not torch.equal(module.named_gradients()["linear.weight"], kept["linear.weight"])


def test_what_comes_too_early_or_trains_nothing_says_so(edge: Any, buffer: bytes) -> None:
    module = _load_for_executorch_for_training_from_buffer(buffer)
    for read in (module.named_gradients, module.named_parameters):
        with pytest.raises(InvalidState, match="run a step first"):
            read()
    with pytest.raises(NotFound, match="__et_training_fqn_backward"):
        module.forward_backward("backward", INPUTS)
    with pytest.raises(LoweringError, match="which do_quant_fusion_and_const_prop would make constants"):
        edge.to_executorch(ExecutorchBackendConfig(do_quant_fusion_and_const_prop=True))
    assert isinstance(module, TrainingModule)
