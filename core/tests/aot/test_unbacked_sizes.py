"""Sizes that depend on values keep the bounds that the model states, through decompositions."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import delegraph
from delegraph.aot import to_edge, to_edge_transform_and_lower
from delegraph.aot.functional.functionalize import functionalize
from delegraph.errors import InvalidArgument, LoweringError, RuntimeFault, UnboundedDimension

X, REPEATS = torch.ones(4, 3), torch.tensor([1, 2, 3, 4])


class Regulator(nn.Module):
    """A length regulator of text to speech: each row as often as it lasts."""

    def __init__(self, bound: int | None = 80) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, x: torch.Tensor, repeats: torch.Tensor) -> torch.Tensor:
        y = torch.repeat_interleave(x, repeats, dim=0)
        if self.bound is not None:
            torch._check(y.shape[0] <= self.bound)
        return y * 2


class TwoRegulators(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.short, self.long = Regulator(8), Regulator(20)

    def forward(self, x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, z = self.short(x, first), self.long(x, second)
        return y, z, torch.cat([y, z])


@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=["kernels", "cpu"])
def test_a_stated_bound_survives_decomposition(backends: list[str]) -> None:
    model = Regulator()
    run = delegraph.load(bytes(delegraph.lower(model, (X, REPEATS), backends=backends)))
    for last in (0, 5, 74):
        repeats = torch.tensor([1, 2, 3, last])
        torch.testing.assert_close(run(X, repeats), model(X, repeats))


def test_two_calls_of_one_form_have_two_sizes() -> None:
    """They share a template, and with it shared the symbol of their sizes."""
    model, more = TwoRegulators(), torch.tensor([5, 5, 5, 5])
    program = functionalize(torch.export.export(model, (X, REPEATS, more)), {})
    (output,) = program.graph.find_nodes(op="output")
    y, z, _ = (node.meta["val"].shape[0] for node in output.args[0])
    assert str(y) != str(z)
    run = delegraph.load(bytes(delegraph.lower(model, (X, REPEATS, more))))
    fewer = torch.tensor([2, 2, 2, 2])
    for result, expected in zip(run(X, fewer, more), model(X, fewer, more), strict=True):
        torch.testing.assert_close(result, expected)
    with pytest.raises(InvalidArgument, match=r"the upper bound \[8\] cannot become \[20\]"):
        run(np.ones((4, 3), np.float32), more.numpy(), fewer.numpy())


def test_a_size_without_a_bound_is_still_refused() -> None:
    with pytest.raises(UnboundedDimension, match="depends on the data"):
        delegraph.lower(Regulator(None), (X, REPEATS))


# ---- bounds from outside ---------------------------------------------------------------------------


def _line() -> str:
    """The line of `Regulator` that makes the size."""
    lines, first = inspect.getsourcelines(Regulator.forward)
    return f"{Path(__file__).name}:{first + next(i for i, line in enumerate(lines) if 'repeat_interleave' in line)}"


@pytest.mark.parametrize("backends", [[], ["cpu"], ["openvino"]], ids=["kernels", "cpu", "openvino"])
def test_a_user_states_the_bound_of_a_line(backends: list[str]) -> None:
    model, exported = Regulator(None), torch.export.export(Regulator(None), (X, REPEATS))
    for lowered in (
        delegraph.lower(model, (X, REPEATS), backends=backends, bounds={_line(): 12}),
        delegraph.lower(exported, backends=backends, bounds={_line(): 12}),
    ):
        run = delegraph.load(bytes(lowered))
        torch.testing.assert_close(run(X, REPEATS), model(X, REPEATS))
        with pytest.raises(RuntimeFault, match=r"\[12\] cannot become \[20\]|12.*20|20.*12"):
            run(X, REPEATS * 2)


def test_the_error_says_which_line_to_bound() -> None:
    with pytest.raises(UnboundedDimension) as caught:
        delegraph.lower(Regulator(None), (X, REPEATS))
    assert f', or outside of it, lower(…, bounds={{"{_line()}": 1024}})' in str(caught.value)


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ({"nowhere.py:1": 9}, "no size that depends on values is made there; such sizes are made at .*test_unbacked"),
        ({"x": 0}, "bounds has 0 for 'x'; a bound is a number of at least 1"),
        ({"x": "many"}, "bounds has 'many' for 'x'"),
    ],
)
def test_bounds_that_bound_nothing(bounds: dict[str, int], told: str) -> None:
    with pytest.raises(LoweringError, match=told):
        delegraph.lower(Regulator(None), (X, REPEATS), bounds=bounds)


class Speaks(nn.Module):
    """A layer to quantize before the sizes that depend on values."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.regulator = nn.Linear(3, 3), Regulator(None)

    def forward(self, x: torch.Tensor, repeats: torch.Tensor) -> torch.Tensor:
        return self.regulator(self.linear(x), repeats)


@pytest.mark.parametrize("recipe", ["int8", "int8_weight_only"])
def test_a_quantized_model_has_the_bounds_that_it_was_quantized_with(recipe: str) -> None:
    model = Speaks().eval()
    quantized = delegraph.quantize(model, [(X, REPEATS)], recipe=recipe, bounds={_line(): 12})
    run = delegraph.load(bytes(delegraph.lower(quantized)))
    torch.testing.assert_close(run(X, REPEATS), model(X, REPEATS), atol=0.2, rtol=0)
    with pytest.raises(RuntimeFault, match="12"):
        run(X, REPEATS * 2)


def test_a_model_that_trains_with_rounding_takes_bounds() -> None:
    prepared = delegraph.prepare_qat(Speaks(), (X, REPEATS), bounds={_line(): 12})
    prepared(X, REPEATS)
    run = delegraph.load(bytes(delegraph.lower(delegraph.convert_qat(prepared))))
    assert run(X, REPEATS).shape == (10, 3)


def test_to_edge_takes_bounds() -> None:
    exported = torch.export.export(Regulator(None), (X, REPEATS))
    for make in (to_edge, to_edge_transform_and_lower):
        run = delegraph.load(make(exported, bounds={_line(): 12}).to_executorch().buffer)
        torch.testing.assert_close(run(X, REPEATS), X.repeat_interleave(REPEATS, 0) * 2)
    with pytest.raises(LoweringError, match=r"no size that depends on values is made there"):
        to_edge(exported, bounds={"nowhere.py:1": 9})
