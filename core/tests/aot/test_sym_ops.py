"""Arithmetic on symbolic numbers means at run time what it means in Python."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

import delegraph
from delegraph.aot.emission.symbolic_scalars import PRIM_OPERATORS, compose
from delegraph.runtime.resolution.prim_ops import SCALAR_OPS


class Evaluator:
    """A builder that computes at once, as the runtime does; values stand for their own indices."""

    def prim(self, name: str, args: Sequence[Any], like: Any) -> Any:
        return SCALAR_OPS[f"executorch_prim::{name}.Scalar"].function(*args)

    def constant(self, value: Any) -> Any:
        return value


def run(target: Any, args: Sequence[Any]) -> Any:
    name = PRIM_OPERATORS.get(target)
    if name is not None:
        return Evaluator().prim(name, args, None)
    return compose(target, args, Evaluator(), args)


NUMBERS = (-7, -2, -1, 1, 2, 3, 8)
BINARY = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod, operator.ne)
BINARY += (operator.eq, operator.lt, operator.le, operator.gt, operator.ge, torch.sym_max, torch.sym_min)


@pytest.mark.parametrize("target", BINARY)
def test_two_numbers(target: Any) -> None:
    assert all(run(target, (a, b)) == target(a, b) for a in NUMBERS for b in NUMBERS)


@pytest.mark.parametrize("target", [operator.neg, operator.abs, torch.sym_float, torch.sym_int])
def test_one_number(target: Any) -> None:
    assert all(run(target, (a,)) == target(a) for a in NUMBERS)


@pytest.mark.parametrize("target", [math.ceil, math.floor, math.trunc, round])
def test_rounding(target: Any) -> None:
    assert all(run(target, (a,)) == target(a) for a in (-2.5, -1.0, -0.5, 0.0, 0.5, 1.5, 2.7))


@pytest.mark.parametrize("target", [operator.and_, operator.or_])
def test_two_bools(target: Any) -> None:
    assert all(run(target, (a, b)) == target(a, b) for a in (True, False) for b in (True, False))


def test_the_others() -> None:
    assert run(operator.pow, (3, 4)) == 81
    assert run(torch.sym_sum, (1, 2, 3)) == 6
    assert run(torch.sym_ite, (False, 1, 2)) == 2
    assert run(torch.sym_not, (True,)) is False


class Powers(nn.Module):
    """Powers of sizes that are no products: on either side, in a branch, whole ones."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, columns = x.shape
        scaled = torch.cond(x.sum() > 0, lambda x: x * columns**-0.25, lambda x: x - 1, (x,))
        return x * rows**0.5, x + 2.0**columns, scaled, x.new_full((2,), rows**columns)


@pytest.mark.parametrize("backends", [[], ["cpu"]])
def test_powers_of_sizes_are_computed_by_kernels(backends: list[str]) -> None:
    sizes = {0: torch.export.Dim("rows", min=2, max=5), 1: torch.export.Dim("columns", min=2, max=6)}
    program = torch.export.export(Powers(), (torch.ones(3, 4),), dynamic_shapes=(sizes,))
    run = delegraph.load(bytes(delegraph.lower(program, backends=backends)))
    for shape in ((3, 4), (5, 2)):
        for actual, expected in zip(run(torch.ones(shape)), Powers()(torch.ones(shape)), strict=True):
            torch.testing.assert_close(actual, expected)
