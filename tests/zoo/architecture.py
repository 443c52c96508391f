"""A row of the zoo: how to make a small model with random weights, and what its lowering is held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

__all__ = ["Architecture", "Example"]

Example: TypeAlias = tuple[torch.nn.Module, Mapping[str, torch.Tensor]]
"""A model, and example inputs by the names of its arguments."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """`make` gives the model and its example. `delegates` and `leftovers` are the most that lowering onto the CPU
    backend may leave; `tolerance` is relative to the largest output. `fails` says in words why lowering or
    running fails today; `quick` ones are part of `make test`. `bounds` are for `lower`."""

    name: str
    make: Callable[[], Example]
    delegates: int = 1
    leftovers: int = 0
    tolerance: float = 2e-5  # float32 through some tens of layers, as in `tests/test_models.py`
    fails: str = ""
    bounds: Mapping[str, int] = field(default_factory=dict)
    quick: bool = False
