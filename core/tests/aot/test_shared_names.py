"""State that methods share, behind wrappers: told by the tensor, not by the path to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import delegraph
from delegraph.aot.graph.shared_names import with_shared_names
from delegraph.errors import LoweringError

X = torch.ones(4)
SHARED = delegraph.ExecutorchBackendConfig(share_mutable_buffers=True)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(4))
        self.register_buffer("scratch", torch.ones(4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.add_(x)
        self.scratch.mul_(2)
        return self.state + self.scratch


class Wrapper(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x) * 10


class Reader(Wrapper):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model.state + x


def lowered(models: dict[str, nn.Module], **options: Any) -> bytes:
    return bytes(delegraph.lower(models, dict.fromkeys(models, (X,)), config=SHARED, **options))


@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=["kernels", "cpu"])
def test_a_wrapper_shares_the_state_of_what_it_wraps(backends: list[str]) -> None:
    counter = Counter()
    methods = {"add": counter, "scaled": Wrapper(counter), "read": Reader(Wrapper(counter).model)}
    session = delegraph.load(lowered(methods, backends=backends), method="add")
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(session.add(x), 3 * x)
    np.testing.assert_array_equal(session.scaled(x), 60 * x)
    np.testing.assert_array_equal(session.read(0 * x), 2 * x)
    assert set(session.state) == {"state", "scratch"}


def test_programs_exported_by_the_user_share_too() -> None:
    counter = Counter()
    programs = {"add": torch.export.export(counter, (X,)), "scaled": torch.export.export(Wrapper(counter), (X,))}
    session = delegraph.load(delegraph.to_edge(programs).to_executorch(SHARED).buffer, method="add")
    x = np.ones(4, np.float32)
    assert [float(session[method](x)[0]) for method in ("add", "scaled", "add")] == [3, 60, 11]


def test_quantized_methods_share_what_wrappers_reach() -> None:
    class Filter(Counter):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(super().forward(x))

    model = Filter().eval()
    methods = {"add": model, "scaled": Wrapper(model).eval()}
    quantized = delegraph.quantize(methods, {name: [(X,)] for name in methods}, recipe="int8")
    session = delegraph.load(bytes(delegraph.lower(quantized, config=SHARED)), method="add")
    session.add(np.ones(4, np.float32))
    session.scaled(np.ones(4, np.float32))
    np.testing.assert_array_equal(session.state["state"], np.full(4, 2, np.float32))


def test_methods_that_share_nothing_are_an_error() -> None:
    with pytest.raises(LoweringError) as caught:
        lowered({"add": Counter(), "scaled": Wrapper(Counter())})
    assert str(caught.value) == (
        "share_mutable_buffers=True, and the methods have no buffer in common that one of them changes: 'add' has"
        " 'state', 'scratch'; 'scaled' has 'model.state', 'model.scratch'. Shared are buffers that are one tensor or"
        " have one name: export the methods from one module, or set share_mutable_buffers=False"
    )


def test_a_name_that_means_two_buffers_is_an_error() -> None:
    class Both(Counter):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + self.inner(x)

    counter = Counter()
    with pytest.raises(LoweringError, match=r"'both': its buffer 'inner.\w+' is buffer '\w+' of 'add', and cannot be"):
        lowered({"add": counter, "both": Both(counter)})


def test_a_single_method_and_methods_without_state_share_nothing_in_peace() -> None:
    lowered({"add": Counter()})
    lowered({"a": nn.ReLU(), "b": nn.Tanh()})


def test_names_of_the_first_method_count() -> None:
    counter = Counter()
    programs = {"scaled": torch.export.export(Wrapper(counter), (X,)), "add": torch.export.export(counter, (X,))}
    renamed = with_shared_names(programs)
    assert renamed["scaled"] is programs["scaled"]
    assert set(renamed["add"].state_dict) == {"model.state"}
    assert set(renamed["add"].constants) == {"model.scratch"}
    torch.testing.assert_close(renamed["add"].module()(X), torch.full((4,), 3.0))
