"""Random programs on portable kernels, on torch's, and in eager: all three must agree.

`make test` always draws the same programs. To draw others: `DELEGRAPH_RANDOM_PROGRAMS=1000 pytest <this file>`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from plugins.aten.tests.random_programs import Program, Recipe, recipes
from torch.export import Dim

import delegraph

SEARCHED = int(os.environ.get("DELEGRAPH_RANDOM_PROGRAMS", "0"))
"""How many new programs to draw instead of the usual ones."""

LIBRARIES = ("portable", "aten")

drawn = settings(
    max_examples=SEARCHED or 40,
    derandomize=not SEARCHED,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.models
@drawn
@given(recipes())
def test_portable_and_aten_and_eager_agree(recipe: Recipe) -> None:
    model = Program(recipe)
    _compare(model, bytes(delegraph.lower(model, recipe.inputs)), [recipe.inputs])


@settings(drawn, max_examples=SEARCHED or 10)
@given(recipes(any_size=True))
def test_they_agree_on_dynamic_sizes(recipe: Recipe) -> None:
    model = Program(recipe)
    rows = {0: Dim("rows", min=1, max=8)}
    data = bytes(delegraph.lower(model, recipe.inputs, dynamic_shapes=((rows, rows),)))
    sizes = (3, 8, 1, 5, 3)
    _compare(model, data, [tuple(x.repeat(3, 1)[:size].contiguous() for x in recipe.inputs) for size in sizes])


def _compare(model: Program, data: bytes, inputs: Sequence[tuple[torch.Tensor, ...]]) -> None:
    runs = {name: delegraph.load(data, kernels=[name]) for name in LIBRARIES}
    for given_inputs in inputs:
        expected = model(*given_inputs)
        for name, run in runs.items():
            for position, (actual, eager) in enumerate(zip(run(*given_inputs), expected, strict=True)):
                _assert_close(actual, eager, f"output {position} on {name}")


def _assert_close(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Within torch.testing's relative tolerance of the dtype, of each element or of the largest."""
    rtol, atol = torch.testing._comparison.default_tolerances(expected.dtype)
    magnitude = expected.double().abs().nan_to_num(0, 0, 0)
    largest = float(magnitude.max()) if magnitude.numel() else 0.0
    limits: dict[str, Any] = {"rtol": rtol, "atol": max(atol, rtol * largest)}
    torch.testing.assert_close(actual, expected, equal_nan=True, **limits, msg=lambda text: f"{what}: {text}")
