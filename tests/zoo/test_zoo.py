"""Small configurations of real architectures: exported, lowered, run without torch, compared with eager.

The CPU backend takes each in as few pieces as its row says, so that a graph that is cut anew is seen, and
memory is planned within 2 % of what is alive at one time. `make zoo` runs all of them, `make test-models` the quick
ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.zoo import timm_models, torchvision_models, transformers_models
from tests.zoo.architecture import Architecture
from tests.zoo.conftest import Device
from torch.utils import _pytree as pytree

import delegraph

ARCHITECTURES = [
    *transformers_models.ARCHITECTURES,
    *timm_models.ARCHITECTURES,
    *torchvision_models.ARCHITECTURES,
]


def case(architecture: Architecture) -> object:
    """`architecture` as a parameter of a test."""
    marks = [pytest.mark.models if architecture.quick else pytest.mark.zoo]
    if architecture.fails:
        marks.append(pytest.mark.xfail(reason=architecture.fails, strict=True))
    return pytest.param(architecture, id=architecture.name, marks=marks)


@pytest.mark.parametrize("architecture", [case(architecture) for architecture in ARCHITECTURES])
def test_lowers_and_equals_eager(architecture: Architecture, device: Device, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = architecture.make()
    with torch.no_grad():
        settle(model, inputs)
        wanted = [leaf.numpy() for leaf in pytree.tree_leaves(model(**inputs)) if isinstance(leaf, torch.Tensor)]
    program = torch.export.export(model, (), dict(inputs))
    for backends in ([], ["cpu"]):
        lowered = delegraph.lower(program, backends=backends, bounds=architecture.bounds)
        memory = lowered.program.memory["forward"]
        assert memory.planned_bytes <= 1.02 * memory.lower_bound, "no plan can be lower than the bound"
        if backends:
            report = lowered.report.methods["forward"]
            left = Counter(entry.operator for entry in report.leftovers)
            assert len(report.delegates) <= architecture.delegates, left
            assert len(report.leftovers) <= architecture.leftovers, left
        lowered.save(tmp_path / "model.pte")
        assert_close(device.run(tmp_path, inputs), wanted, architecture.tolerance)


def settle(model: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> None:
    """Let the outputs of random weights depend on the inputs: no matrix is zero, no activation vanishes on its way.

    A batch norm gets one mean and one variance for all of its channels: with those of each channel, one that hardly
    varies would be blown up, and the rounding of its values too.
    """

    def normalize(norm: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        norm.running_mean.fill_(args[0].mean())
        norm.running_var.fill_(args[0].var())

    for parameter in model.parameters():
        if parameter.dim() > 1 and not parameter.any():
            torch.nn.init.normal_(parameter, std=0.02)
    norms = [module for module in model.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
    hooks = [norm.register_forward_pre_hook(normalize) for norm in norms]
    model(**inputs)
    for hook in hooks:
        hook.remove()


def assert_close(ours: list[np.ndarray], theirs: list[np.ndarray], tolerance: float) -> None:
    assert [(x.shape, x.dtype) for x in ours] == [(x.shape, x.dtype) for x in theirs]
    for a, b in zip(ours, theirs, strict=True):
        largest = np.abs(b).max()
        assert largest > 1e-4, "an output that vanishes compares nothing"
        assert np.abs(a - b).max() <= tolerance * largest


def test_the_zoo_is_large() -> None:
    names = [architecture.name for architecture in ARCHITECTURES]
    assert len(set(names)) == len(names) >= 90
