"""Tensors that `forward` assigns are kept where a program can, and refused where the next call would miss them."""

from __future__ import annotations

import copy
import re
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import delegraph
from delegraph.errors import LoweringError

CALLS = [torch.full((3,), number + 0.5) for number in range(3)]


class Sums(nn.Module):
    """A buffer that is assigned."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sum = self.sum + x
        return self.sum * 2


class Inner(nn.Module):
    """The same in a submodule, which torch.export forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Sums()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.inner.sum


class Swaps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(3))
        self.register_buffer("b", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a, self.b = self.b, self.a
        self.b = self.b + x
        return self.a * 2


class Keeps(nn.Module):
    """The argument of one call is the result of the next."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before, self.last = self.last, x
        return before * 1


class Turns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("square", torch.arange(9.0).view(3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.square = self.square.T
        return self.square @ x


class ByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._buffers["sum"] = self._buffers["sum"] + x
        return self.sum * 1


class Plain(nn.Module):
    """Tensors that nobody registered, changed in place and assigned."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = torch.zeros(3)
        self.cache = SimpleNamespace(largest=torch.zeros(3))
        self.steps = [torch.zeros(3), torch.zeros(3)]
        self.pair = (torch.zeros(3), torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sum.add_(x)
        self.cache.largest = torch.maximum(self.cache.largest, x)
        self.steps[0], self.steps[1] = self.steps[1], x
        self.pair = (self.pair[1] - x, self.pair[0] * x + 1)
        return self.sum + self.cache.largest * self.steps[0] - self.pair[0]


class Unregistered(nn.Module):
    """A module in a list that is no ModuleList."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = [Sums()]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.parts[0](x)


class Closed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        total = torch.zeros(3)

        def add(x: torch.Tensor) -> torch.Tensor:
            nonlocal total
            total = total + x
            return total * 1

        self.add = add

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.add(x)


class Data(nn.Module):
    """`.data`, read, written in place and set."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(3))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sum.data.add_(x)
        self.mean.data = self.mean.data * 0.5 + x
        return self.sum.data + self.mean


class Remembers(nn.Module):
    """Tensors that a first call makes and the next ones find, as they would make them; and some that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 2.0))
        self.mask: torch.Tensor | None = None
        self.by_size: dict[int, torch.Tensor] = {}
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mask is None:
            self.mask = self.weight.detach() * torch.arange(3.0)
        if len(x) not in self.by_size:
            self.by_size[len(x)] = torch.ones(len(x)) * 4
        self.last = x * 2
        self.seen.append(self.last)
        self.size = len(x)
        return x * self.mask + self.by_size[len(x)]


RIGHT = [Sums, Inner, Swaps, Keeps, Turns, ByName, Plain, Unregistered, Closed, Data, Remembers]


@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=["kernels", "cpu"])
@pytest.mark.parametrize("make", RIGHT)
def test_what_is_assigned_is_there_in_the_next_call(make: type[nn.Module], backends: list[str]) -> None:
    model = make().eval()
    with warnings.catch_warnings(action="error"):
        run = delegraph.load(bytes(delegraph.lower(model, (CALLS[0],), backends=backends)))
    for x in CALLS:
        torch.testing.assert_close(run(x), model(x))


@pytest.mark.parametrize("make", RIGHT)
def test_lowering_leaves_the_model_as_it_was(make: type[nn.Module]) -> None:
    model, expected = make().eval(), make().eval()
    before = {name: id(value) for name, value in vars(model).items()}
    delegraph.lower(model, (CALLS[0],))
    assert {name: id(value) for name, value in vars(model).items()} == before
    for x in CALLS:
        result = model(x)
        assert type(result) is torch.Tensor
        torch.testing.assert_close(result, expected(x))


# ---- refused ---------------------------------------------------------------------------------------


class First(nn.Module):
    """Makes its state in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache = x if self.cache is None else self.cache + x
        return self.cache * 1


class Registers(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "cache"):
            self.register_buffer("cache", torch.zeros(3))
        self.cache.add_(x)
        return self.cache * 1


class Grows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache = torch.cat([self.cache, x])
        return self.cache.sum() + x


class Widens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(3, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache = self.cache + x
        return self.cache * 1


class Appends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.append(x)
        return torch.stack(self.cache).sum(0)


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = SimpleNamespace(cache=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.cache += 1
        return x * self.calls.cache


class Alternates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache = not self.cache
        return x if self.cache else -x


class Trains(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache = nn.Parameter(self.cache + x)
        return self.cache * x


class Parts(nn.Module):
    """One tensor under two names, of which one is another tensor after a call."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = self.start = torch.zeros(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache = self.cache + x
        return self.cache - self.start


@pytest.mark.parametrize(
    ("make", "next_step"),
    [
        (First, "Make it in __init__, self.register_buffer('cache', torch.zeros(…))"),
        (Registers, "Make it in __init__"),
        (Grows, "a buffer of the largest shape that it takes"),
        (Widens, "Give it one form"),
        (Appends, "Make it in __init__"),
        (Counts, "Keep a number in a buffer, self.register_buffer('cache', torch.tensor(1))"),
        (Alternates, "torch.tensor(False)"),
        (Trains, "make it a buffer"),
        (Parts, "Another name shows the memory that it had"),
    ],
)
def test_what_the_next_call_would_miss_is_refused(make: type[nn.Module], next_step: str) -> None:
    model = make()
    before = copy.deepcopy(vars(model))
    with pytest.raises(LoweringError, match=r"forward assigns self\.\S*cache") as caught:
        delegraph.lower(model, (CALLS[0],))
    assert next_step in str(caught.value)
    assert re.search(r"test_assigned_state\.py:\d+, in forward: .*cache", str(caught.value))
    assert vars(model).keys() == before.keys()


def test_zeros_for_examples_hide_no_state() -> None:
    with pytest.raises(LoweringError, match=r"assigns self\.cache, and its next call depends on that"):
        delegraph.lower(First(), (torch.zeros(3),))


def test_data_of_another_form_is_refused() -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("sum", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.sum.data = torch.cat([self.sum, x])
            return x

    with pytest.raises(LoweringError, match=r"\.data another shape, dtype or (.|\n)*self\.sum\.data = torch\.cat"):
        delegraph.lower(Other(), (CALLS[0],))


class CountsOnly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x if self.calls < 100 else -x


def test_what_the_first_call_computes_and_drops_is_no_difference() -> None:
    """A recurrent layer whose weight is computed keeps the last one, to see whether it is another."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = weight_norm(nn.LSTM(4, 2), "weight_hh_l0")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0]  # type: ignore[no-any-return]

    model, x = Recurrent().eval(), torch.randn(3, 1, 4)
    run = delegraph.load(bytes(delegraph.lower(model, (x,))))
    for _ in range(2):
        torch.testing.assert_close(run(x), model(x))


def test_a_number_that_changes_without_effect_is_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"forward counts in self\.calls, which the program does not keep"):
        delegraph.lower(CountsOnly(), (CALLS[0],))


def test_a_second_call_that_cannot_be_tried_is_a_warning() -> None:
    class Once(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last = x * 2
            return x + 1

        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("there is one of these")

    with pytest.warns(UserWarning, match=r"assigns self\.last, .* not be tried \(TypeError: there is one of these\)"):
        delegraph.lower(Once(), (CALLS[0],))


def test_a_failing_forward_leaves_the_model_as_it_was() -> None:
    class Fails(First):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            return y if y.sum() > 0 else x

    model = Fails()
    with pytest.raises(LoweringError, match=r"torch\.cond"):
        delegraph.lower(model, (CALLS[0],))
    assert model.cache is None
    assert not model._forward_hooks and not model._forward_pre_hooks


def test_a_quantized_model_keeps_what_is_assigned() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.hidden = nn.Linear(3, 3), torch.zeros(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.hidden = torch.tanh(self.linear(x + self.hidden)).detach()
            return self.hidden * 2

    torch.manual_seed(0)
    model = Recurrent().eval()
    quantized = delegraph.quantize(model, args=(CALLS[0],), recipe="int8_weight_only")
    run = delegraph.load(bytes(delegraph.lower(quantized)))
    for x in CALLS:
        torch.testing.assert_close(run(x), model(x), atol=0.05, rtol=0)
