"""A model through both halves, with options of each."""

from pathlib import Path

import numpy as np
import pytest
import torch

import delegraph


@pytest.fixture
def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).eval()


@pytest.mark.parametrize("backend", ["sample_name", "sample_name{precision=float64}"])
def test_a_model_is_taken_whole(model: torch.nn.Module, backend: str) -> None:
    x = torch.randn(3, 4)
    lowered = delegraph.lower(model, (x,), backends=[backend])
    assert not lowered.report.methods["forward"].leftovers
    np.testing.assert_allclose(delegraph.load(bytes(lowered))(x.numpy()), model(x).detach(), rtol=1e-5, atol=1e-6)


def test_methods_share_their_weights() -> None:
    wide, x = torch.nn.Linear(64, 64), torch.randn(1, 64)
    both = delegraph.lower({"one": wide, "other": wide}, {"one": (x,), "other": (x,)}, backends=["sample_name"])
    assert len(bytes(both)) < 1.5 * 64 * 64 * 4
    run = delegraph.load(bytes(both), method="one")
    np.testing.assert_allclose(run(x.numpy()), wide(x).detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run.other(x.numpy()), wide(x).detach(), rtol=1e-5, atol=1e-6)


def test_constants_are_packed_once(model: torch.nn.Module, tmp_path: Path) -> None:
    x = torch.randn(3, 4)
    program = bytes(delegraph.lower(model, (x,), backends=["sample_name"]))
    for _ in range(2):
        run = delegraph.load(program, cache=tmp_path)
        np.testing.assert_allclose(run(x.numpy()), model(x).detach(), rtol=1e-5, atol=1e-6)
        assert len(list(tmp_path.iterdir())) == 1


def test_what_is_left_has_a_reason() -> None:
    lowered = delegraph.lower(torch.nn.Linear(4, 2, bias=False), (torch.randn(1, 4),), backends=["sample_name"])
    leftovers = lowered.report.methods["forward"].leftovers
    assert leftovers
    assert all("no converter" in left.reasons["sample_name"] for left in leftovers)


def test_options_at_load(model: torch.nn.Module) -> None:
    program = bytes(delegraph.lower(model, (torch.randn(1, 4),), backends=["sample_name"]))
    run = delegraph.load(program, backend_options={"sample_name": {"check_finite": True}})
    with pytest.raises(delegraph.RuntimeFault, match="not finite"):
        run(np.full((1, 4), np.nan, np.float32))
