"""Example arguments beside programs that are exported already, and beside a mapping of one model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

import delegraph
from delegraph.aot.export import export_requests
from delegraph.errors import LoweringError

X = torch.ones(2, 4)


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, factor: float = 2.0, *, bias: torch.Tensor | None = None) -> torch.Tensor:
        return x * factor if bias is None else x * factor + bias


def varying() -> ExportedProgram:
    return torch.export.export(nn.ReLU(), (X,), dynamic_shapes=({0: Dim("batch", min=2, max=5)},))


def scaled() -> ExportedProgram:
    return torch.export.export(Scaled(), (X, 3.0), {"bias": torch.ones(4)})


def test_a_quantized_model_lowers_with_the_arguments_that_it_was_quantized_for() -> None:
    quantized = delegraph.quantize(nn.Linear(4, 3).eval(), [(X,)], recipe="int8")
    with_arguments, without = delegraph.lower(quantized, (X,)), delegraph.lower(quantized)
    assert bytes(with_arguments) == bytes(without)
    with pytest.raises(LoweringError) as caught:
        delegraph.lower(quantized, (X[:1],))
    assert str(caught.value) == (
        "method 'forward' is exported already, and takes (float32[2, 4]); the example arguments are (float32[1, 4])."
        " Leave them out, or export or quantize the model with examples like these, and the dims that vary in"
        " dynamic_shapes"
    )


@pytest.mark.parametrize(
    ("make", "args", "kwargs"),
    [
        (varying, (torch.ones(5, 4),), None),
        (varying, [X], {}),
        (varying, X, None),
        (scaled, {"bias": torch.zeros(4), "factor": 3.0, "x": X}, None),
        (scaled, (X, 3.0), {"bias": torch.zeros(4)}),
    ],
)
def test_arguments_that_fit(make: Callable[[], ExportedProgram], args: Any, kwargs: Any) -> None:
    program = make()
    for model in (program, {"forward": program}):
        assert export_requests(model, args, kwargs)["forward"].model is program


@pytest.mark.parametrize(
    ("make", "args", "kwargs", "told"),
    [
        (varying, (torch.ones(6, 4),), None, r"takes \(float32\[s\d+, 4\]\); the example arguments are \(float32\[6"),
        (varying, (X.double(),), None, r"are \(float64\[2, 4\]\)"),
        (varying, (X[0],), None, r"are \(float32\[4\]\)"),
        (varying, (1.5,), None, r"are \(1.5\)"),
        (varying, (), None, r"are \(\)"),
        (varying, 3, None, r"a tuple, not int; for one argument write \(x,\)"),
        (scaled, (X, 4.0), {"bias": torch.ones(4)}, r"takes \(float32\[2, 4\], 3.0, float32\[4\]\)"),
    ],
    ids=["out of range", "dtype", "rank", "a number", "none", "no tuple", "another number"],
)
def test_arguments_that_do_not_fit(make: Callable[[], ExportedProgram], args: Any, kwargs: Any, told: str) -> None:
    with pytest.raises(LoweringError, match=told):
        export_requests(make(), args, kwargs)


def test_arguments_of_a_mapping_of_one_model_are_its_own() -> None:
    shapes = {"x": {0: Dim("batch", max=9)}}
    request = export_requests({"scale": Scaled()}, (X,), {"factor": 3.0}, shapes)["scale"]
    assert (request.args, request.kwargs, request.dynamic_shapes) == ((X,), {"factor": 3.0}, shapes)
    by_method = export_requests({"scale": Scaled()}, {"scale": (X,)}, {"scale": {"factor": 3.0}})["scale"]
    assert (by_method.args, by_method.kwargs) == ((X,), {"factor": 3.0})


class Pair(nn.Module):
    """Arguments by position, by name alone, and in a structure."""

    def forward(self, x: torch.Tensor, y: dict[str, Any], *, bias: torch.Tensor | None = None) -> torch.Tensor:
        return x * y["scale"] + y["shift"] + (0 if bias is None else bias)


def test_a_mapping_has_arguments_by_name() -> None:
    y, bias = {"scale": X, "shift": torch.ones(())}, X[0]
    request = export_requests(Pair(), {"bias": bias, "y": y, "x": X})["forward"]
    assert (request.args, request.kwargs) == ((X, y), {"bias": bias})
    several = export_requests({"a": Scaled(), "b": Scaled()}, {"a": X, "b": {"x": X}})
    assert [request.args for request in several.values()] == [(X,), (X,)]
    run = delegraph.load(bytes(delegraph.lower(Scaled(), {"x": X})))
    assert run(X).tolist() == run(x=X).tolist() == (X * 2).tolist(), "the first arguments go by position too"
    with pytest.raises(LoweringError, match="do not fit: got an unexpected keyword argument 'z'"):
        export_requests(Pair(), {"x": X, "y": y, "z": X})


def test_dims_of_every_tensor() -> None:
    batch, width = Dim("batch", max=9), Dim("width", max=7)
    shapes = {0: batch, 1: width}
    y = {"scale": X, "shift": torch.ones(())}
    request = export_requests(Pair(), (X, y), {"bias": X[0]}, shapes)["forward"]
    both = {0: batch, 1: width}
    assert request.dynamic_shapes == {"x": both, "y": {"scale": both, "shift": None}, "bias": {0: batch}}
    run = delegraph.load(bytes(delegraph.lower(Scaled(), X, dynamic_shapes={0: batch})))
    assert run(torch.ones(9, 4)).shape == (9, 4)
