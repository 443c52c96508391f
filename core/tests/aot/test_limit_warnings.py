"""What asks for more memory than a load allows by itself is told when it is lowered."""

from __future__ import annotations

import warnings

import pytest
import torch

import delegraph
from delegraph.errors import LimitExceeded, LimitWarning


class Outer(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[:, None] * y[None]


@pytest.mark.parametrize(("rows", "what"), [(20_000, "outputs"), (70_000, "planned memory")])
def test_told_at_lowering_refused_at_load(rows: int, what: str) -> None:
    dynamic = {"x": {0: torch.export.Dim("n", max=rows)}, "y": None}
    program = torch.export.export(Outer(), (torch.ones(3), torch.ones(70_000)), dynamic_shapes=dynamic)
    with pytest.warns(LimitWarning, match=rf"method 'forward' asks for [\d,]+ bytes of {what}.*limits=Limits\("):
        lowered = delegraph.lower(program)
    with pytest.raises(LimitExceeded, match=what):
        delegraph.load(bytes(lowered))


def test_what_fits_is_not_told() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        delegraph.lower(Outer(), (torch.ones(3), torch.ones(4)))
