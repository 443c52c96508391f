"""Operators on a tensor that has no rows in some run, beside results that have elements in each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import delegraph

CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "roll": lambda x: torch.roll(x, 1, 0),
    "roll all": lambda x: torch.roll(x, 2),
    "roll two dims": lambda x: torch.roll(x, (1, -2), (0, 1)),
    "circular": lambda x: F.pad(x[:, None], (1, 2), mode="circular"),
    "circular, cut": lambda x: F.pad(x[:, None], (-1, 2), mode="circular"),
    "circular, of images": lambda x: F.pad(x[:, None, None].expand(-1, 1, 4, 4), (1, 2, 0, 1), mode="circular"),
    "circular, summed": lambda x: F.pad(x[:, None], (1, 2), mode="circular").sum(),
    "reflect": lambda x: F.pad(x[:, None], (1, 2), mode="reflect"),
    "replicate": lambda x: F.pad(x[:, None], (1, 2), mode="replicate"),
    "constant": lambda x: F.pad(x, (0, 0, 1, 2)),
}


class Beside(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.function(x), y * 2


@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=str)
@pytest.mark.parametrize("case", CALLS)
def test_no_rows(case: str, backends: list[str]) -> None:
    model, y = Beside(CALLS[case]), torch.randn(2)
    shapes = {"x": {0: Dim("rows", min=0, max=8)}, "y": None}
    run = delegraph.load(
        bytes(delegraph.lower(model, (torch.randn(3, 4), y), backends=backends, dynamic_shapes=shapes))
    )
    for rows in (0, 1, 5):
        x = torch.randn(rows, 4)
        for given, expected in zip(run(x, y), model(x, y), strict=True):
            torch.testing.assert_close(torch.as_tensor(given), expected)
