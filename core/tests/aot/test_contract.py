"""What torch.export assumed of the inputs is in the file, and a call that breaks it ends before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

import delegraph
from delegraph.errors import DelegraphError, InvalidArgument
from delegraph.program.contract import DimRange, contracts_of

Loaded = Callable[..., Any]


def loaded(module: torch.nn.Module, args: Any, dynamic_shapes: Any, kwargs: Any = None) -> Any:
    lowered = delegraph.lower(module, args, kwargs, dynamic_shapes=dynamic_shapes, backends=[])
    return delegraph.load(bytes(lowered))


def refused(model: Any, *shapes: tuple[int, ...], match: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(match)):
        model(*(np.ones(shape, np.float32) for shape in shapes))


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] >= 4 else x * 3


def test_the_branch_that_was_exported_is_not_taken_for_the_other() -> None:
    model = loaded(Branching(), (torch.ones(6, 2),), {"x": {0: Dim("batch", min=4, max=16)}})
    np.testing.assert_array_equal(model(np.ones((4, 2), np.float32)), np.full((4, 2), 2))
    refused(
        model, (2, 2), match="forward', x: expected float32[batch in 4..16, 2], got shape [2, 2]: dim 0 (batch) is 2,"
    )


def test_a_bound_that_only_the_branch_tells() -> None:
    """With `Dim.AUTO` the user gave no minimum; the guard of the branch is one."""
    model = loaded(Branching(), (torch.ones(6, 2),), {"x": {0: Dim.AUTO(max=16)}})
    assert model(np.ones((4, 2), np.float32)).shape == (4, 2)
    refused(model, (3, 2), match="dim 0 is 3, allowed is 4..16")


class Mean(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1) / x.shape[1]


def test_static_dims_of_a_dynamic_input() -> None:
    model = loaded(Mean(), (torch.ones(3, 8),), {"x": {0: Dim("b", max=16)}})
    refused(model, (2, 4), match="got shape [2, 4]: dim 1 is 4, and 8 in every call")
    refused(model, (2, 8, 1), match="it has 3 dims, not 2")
    np.testing.assert_array_equal(model(np.ones((2, 8), np.float32)), [1, 1])


class Related(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        result = x * 2 if x.shape[0] % 8 == 0 else x * 3
        if x.shape[0] + 1 == y.shape[0]:
            result = result + y.sum()
        return (result + 1 if x.shape[0] * x.shape[1] >= 64 else result) * scale


def test_relations_between_sizes() -> None:
    auto = Dim.AUTO(max=64)
    shapes = {"x": {0: auto, 1: auto}, "y": {0: auto}, "scale": {0: auto}}
    model = loaded(Related(), (torch.ones(16, 8), torch.ones(17)), shapes, {"scale": torch.ones(16, 1)})

    def call(rows: int, columns: int, more: int) -> Any:
        x, y = torch.ones(rows, columns), torch.ones(more)
        scale = torch.ones(rows, 1)
        result = model(x, scale=scale, y=y)
        torch.testing.assert_close(result, Related()(x, y, scale=scale))

    call(16, 8, 17)
    call(24, 3, 25)
    for shape, message in (
        ((12, 8, 13), "the model was exported for x.shape[0] % 8 == 0; here x.shape[0] is 12"),
        ((16, 8, 16), "y.shape[0] is 16"),
        ((8, 2, 9), "* x.shape[0] >= 64; here x.shape[1] is 2 and x.shape[0] is 8"),
    ):
        with pytest.raises(InvalidArgument, match=re.escape(message)):
            call(*shape)
    call(16, 8, 17)  # a refused call leaves the method usable


class Halves(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y])


def test_a_dim_that_no_input_has_as_it_is() -> None:
    half = Dim("half", min=1, max=16)
    model = loaded(Halves(), (torch.ones(4, 3), torch.ones(8, 3)), {"x": {0: 2 * half}, "y": {0: 4 * half}})
    assert model(np.ones((6, 3), np.float32), np.ones((12, 3), np.float32)).shape == (18, 3)
    refused(model, (5, 3), (10, 3), match="x.shape[0] % 2 == 0; here x.shape[0] is 5")
    refused(model, (6, 3), (8, 3), match="y.shape[0] is 8")


@pytest.mark.parametrize("rows", range(1, 34))
def test_what_torch_refuses_is_refused_and_nothing_else(rows: int) -> None:
    module, example = Branching(), (torch.ones(6, 2),)
    exported = torch.export.export(module, example, dynamic_shapes={"x": {0: Dim("batch", min=4, max=16)}})
    model = delegraph.load(bytes(delegraph.lower(exported, backends=[])))
    x = torch.ones(rows, 2)
    try:
        expected = exported.module()(x)
    except AssertionError:
        with pytest.raises(InvalidArgument):
            model(x)
    else:
        torch.testing.assert_close(model(x), expected)


# ---- names -----------------------------------------------------------------------------------------


class Named(torch.nn.Module):
    def forward(self, x: torch.Tensor, cache: list[torch.Tensor], scale: torch.Tensor) -> torch.Tensor:
        return x + cache[0] * cache[1] - scale


def test_calls_by_keyword() -> None:
    one, two, three = (torch.full((2,), value) for value in (1.0, 2.0, 3.0))
    model = delegraph.load(bytes(delegraph.lower(Named(), (one, [two, three], torch.ones(2)), backends=[])))
    expected = Named()(one, [two, three], two)
    for args, kwargs in (
        ((one, [two, three], two), {}),
        ((one, [two, three]), {"scale": two}),
        ((one,), {"scale": two, "cache": [two, three]}),
        ((), {"scale": two, "x": one, "cache": [two, three]}),
    ):
        torch.testing.assert_close(model(*args, **kwargs), expected)
    assert "(x, cache=[*, *], scale)" in repr(model)
    for args, kwargs in (((one,), {"scale": two}), ((one, [two]), {"scale": two}), ((one, one), {"x": two})):
        with pytest.raises(InvalidArgument, match=re.escape("method 'forward' takes (x, cache=[*, *], scale), got ")):
            model(*args, **kwargs)
    with pytest.raises(InvalidArgument, match=re.escape("method 'forward', cache[1]: expected float32[2]")):
        model(one, [two, torch.ones(3)], two)


def test_dims_in_the_metadata() -> None:
    batch = Dim("batch", min=1, max=16)
    model = loaded(Halves(), (torch.ones(4, 3), torch.ones(4, 3)), ({0: batch}, {0: batch}))
    assert model.metadata.input_tensor_meta(0).dims == (DimRange("batch", 1, 16), 3)
    assert model.metadata.input_tensor_meta(0).sizes() == (16, 3)
    assert "batch in 1..16, 3" in repr(model.metadata)


# ---- where there is nothing, or something else ------------------------------------------------------


def test_a_static_program_has_names_only() -> None:
    lowered = delegraph.lower(Mean(), (torch.ones(3, 8),), backends=[])
    (contract,) = contracts_of(lowered.program.executorch_program).values()
    assert contract.parameters == ("x",) and contract.inputs == () and contract.relations == ()


def test_a_program_without_a_contract_still_runs() -> None:
    """As ExecuTorch writes it: upper bounds, and no more."""
    import dataclasses

    lowered = delegraph.lower(Mean(), (torch.ones(3, 8),), dynamic_shapes={"x": {0: Dim("b", max=16)}}, backends=[])
    model = delegraph.load(dataclasses.replace(lowered.program.executorch_program, named_data={}))
    np.testing.assert_array_equal(model(np.ones((2, 8), np.float32)), [1, 1])
    with pytest.raises(DelegraphError, match=re.escape("args[0]: expected float32[0..16, 0..8], got shape [17, 8]")):
        model(np.ones((17, 8), np.float32))
