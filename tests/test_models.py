"""Whole models against eager: on reference kernels alone, and on the CPU backend; static and dynamic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.models import MODELS, make, outputs
from torch.export import Dim
from torch.utils import _pytree as pytree

import delegraph

pytestmark = pytest.mark.models

# float32 through some tens of layers: relative to the largest output
TOLERANCE = {"portable": 2e-5, "cpu": 2e-5}


def assert_close_to_eager(got: object, wanted: object, tolerance: float) -> None:
    ours, theirs = [np.asarray(x) for x in pytree.tree_leaves(got)], [t.numpy() for t in outputs(wanted)]
    assert [x.shape for x in ours] == [x.shape for x in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert np.abs(b).max() > 1e-2, "an output that vanishes compares nothing"
        assert np.abs(a - b).max() <= tolerance * np.abs(b).max()


@pytest.mark.parametrize("backend", ["portable", "cpu"])
@pytest.mark.parametrize("name", MODELS)
def test_equals_eager(name: str, backend: str, tmp_path: Path) -> None:
    model, args = make(name)
    lowered = delegraph.lower(model, args, backends=[] if backend == "portable" else [backend])
    lowered.save(tmp_path / "model.pte")
    module = delegraph.load(tmp_path / "model.pte")
    with torch.no_grad():
        wanted = model(*args)
    assert_close_to_eager(module(*(x.numpy() for x in args)), wanted, TOLERANCE[backend])
    assert not module["forward"].method.keeps_state
    report = lowered.report.methods["forward"]
    if backend == "cpu":
        assert not report.leftovers, [entry.name for entry in report.leftovers]
        assert len(report.delegates) == 1
    else:
        assert not report.delegates


@pytest.mark.parametrize("backend", ["portable", "cpu"])
def test_a_transformer_with_dynamic_batch_and_length(backend: str) -> None:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96)
    model = BertModel(config).eval()

    def example(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[0, length // 2 :] = 0
        return torch.randint(0, config.vocab_size, (batch, length)), mask

    # tracing a decomposition once pinned both dimensions to the example's
    shapes = {0: Dim("batch", max=4), 1: Dim("length", max=64)}
    lowered = delegraph.lower(
        model, example(2, 16), dynamic_shapes=(shapes, shapes), backends=[] if backend == "portable" else [backend]
    )
    module = delegraph.load(bytes(lowered))
    for batch, length in ((2, 16), (1, 5), (4, 64), (3, 33)):
        args = example(batch, length)
        with torch.no_grad():
            assert_close_to_eager(module(*(x.numpy() for x in args)), model(*args), 1e-5)


def test_torch_tensors_in_torch_tensors_out() -> None:
    model, args = make("mlp")
    module = delegraph.load(bytes(delegraph.lower(model, args)))
    result = module(*args)
    assert isinstance(result, torch.Tensor)
    with torch.no_grad():
        torch.testing.assert_close(result, model(*args))
