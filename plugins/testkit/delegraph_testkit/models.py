"""The kit's models: small ones, each with its calls, by the property that they prove.

Weights and inputs are drawn with a fixed seed; no value is near a place where rounding would decide a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn

from delegraph_testkit.opaque import opaque_operator

__all__ = ["Example", "example"]

Inputs: TypeAlias = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """Modules by method, the calls of each in order (the first is the example for the export), and dynamic shapes."""

    modules: Mapping[str, nn.Module]
    calls: Mapping[str, Sequence[Inputs]]
    dynamic_shapes: Mapping[str, Any] = field(default_factory=dict)


def _forward(module: nn.Module, *calls: Inputs, dynamic_shapes: Any = None) -> Example:
    shapes = {} if dynamic_shapes is None else {"forward": dynamic_shapes}
    return Example({"forward": module.eval()}, {"forward": calls}, shapes)


# ---- models of which everybody should take a part ------------------------------------------------------


def arithmetic() -> Example:
    class Arithmetic(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Any:
            return ((x + y) * y - x).relu()

    return _forward(Arithmetic(), *((torch.randn(3, 8), torch.randn(3, 8)) for _ in range(3)))


def perceptron() -> Example:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return _forward(model, *((torch.randn(3, 8),) for _ in range(3)))


def image() -> Example:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3), nn.ReLU())
    return _forward(model, *((torch.randn(1, 3, 8, 8),) for _ in range(3)))


def several_results() -> Example:
    class SeveralResults(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            total = x + y
            return total, total * y, (total - x).relu()

    return _forward(SeveralResults(), *((torch.randn(2, 5), torch.randn(2, 5)) for _ in range(3)))


def constants() -> Example:
    class ScaledAndShifted(nn.Module):
        scale: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.linspace(0.5, 2.0, 6))
            self.shift = nn.Parameter(torch.linspace(-1.0, 1.0, 6))

        def forward(self, x: Tensor) -> Any:
            return x * self.scale + self.shift

    return _forward(ScaledAndShifted(), *((torch.randn(4, 6),) for _ in range(3)))


def zero_dims() -> Example:
    class ZeroDims(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Any:
            return (x + y) * x

    return _forward(ZeroDims(), *((torch.randn(()), torch.randn(())) for _ in range(3)))


# ---- models --------------------------------------------------------------------------------------------


class _SelfAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Any:
        y = self.norm(x)
        attended = nn.functional.scaled_dot_product_attention(self.query(y), self.key(y), self.value(y))
        return x + self.out(attended)


def attention() -> Example:
    return _forward(
        nn.Sequential(_SelfAttention(16), _SelfAttention(16)), *((torch.randn(2, 5, 16),) for _ in range(2))
    )


def residual() -> Example:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
            self.second = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.BatchNorm2d(4))
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Any:
            y = torch.relu(x + self.second(self.first(x)))
            return torch.softmax(self.head(y.mean((2, 3))), dim=-1)

    model = Residual()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.get_buffer("running_mean").uniform_(-0.5, 0.5)
                module.get_buffer("running_var").uniform_(0.5, 1.5)
    return _forward(model, *((torch.randn(1, 4, 6, 6),) for _ in range(2)))


def recurrent() -> Example:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTM(6, 8, batch_first=True)

        def forward(self, x: Tensor) -> Any:
            return self.cell(x)[0][:, -1]

    return _forward(Recurrent(), *((torch.randn(2, 4, 6),) for _ in range(2)))


def embedding() -> Example:
    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(11, 8), nn.Linear(8, 5)

        def forward(self, tokens: Tensor) -> Any:
            return torch.log_softmax(self.head(self.table(tokens).sum(1)), dim=-1)

    return _forward(Embedded(), *((torch.randint(0, 11, (2, 4)),) for _ in range(2)))


# ---- graphs that are not easy to cut -------------------------------------------------------------------


def diamond() -> Example:
    """The nodes before and behind `opaque` must not be one partition, which would need its own result.

    x ── add ──┬── opaque ── mul ──> out
               └──────────────┘
    """
    opaque = opaque_operator()

    class Diamond(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Any:
            total = x + y
            return opaque(total) * total

    return _forward(Diamond(), *((torch.randn(2, 4), torch.randn(2, 4)) for _ in range(2)))


def ladder() -> Example:
    """Two strands that read each other across `opaque`, at every rung."""
    opaque = opaque_operator()

    class Ladder(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Any:
            for _ in range(3):
                x, y = opaque(x + y) * 0.5, (y * x).relu()
                y = opaque(y) - x
            return x, y

    return _forward(Ladder(), *((torch.randn(2, 4), torch.randn(2, 4)) for _ in range(2)))


def results_on_the_way() -> Example:
    """Values that are results and are read on; one that is two results; an input that is one."""

    class ResultsOnTheWay(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Any:
            total = x + y
            product = total * y
            return total, product - total, total, x

    return _forward(ResultsOnTheWay(), *((torch.randn(2, 4), torch.randn(2, 4)) for _ in range(2)))


# ---- features ------------------------------------------------------------------------------------------


def dynamic_batch() -> Example:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    batch = torch.export.Dim("batch", min=1, max=8)
    calls = [(torch.randn(rows, 8),) for rows in (3, 8, 1, 5)]
    return _forward(model, *calls, dynamic_shapes=({0: batch},))


def dynamic_arithmetic() -> Example:
    class DynamicArithmetic(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Any:
            return (x + y) * y

    length = torch.export.Dim("length", min=1, max=16)
    calls = [(torch.randn(2, n), torch.randn(2, n)) for n in (4, 16, 1, 9)]
    return _forward(DynamicArithmetic(), *calls, dynamic_shapes=({1: length}, {1: length}))


def running_total() -> Example:
    class RunningTotal(nn.Module):
        total: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: Tensor) -> Any:
            self.total.add_(x)
            return self.total * 2

    return _forward(RunningTotal(), *((torch.randn(4),) for _ in range(4)))


def branches() -> Example:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return torch.cond(x.sum() > 0, lambda t: (t + t) * t, lambda t: t * t - t, (x,)) + x

    positive = torch.ones(2, 3)
    return _forward(Branches(), (positive,), (-positive,), (2 * positive,))


class _Shared(nn.Module):
    """Two methods on one set of weights, as prefill and decode are."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 96), nn.Linear(96, 64)

    def forward(self, x: Tensor) -> Any:
        return self.down(torch.relu(self.up(x)))


def two_methods() -> Example:
    model = _Shared().eval()
    calls = {"prefill": [(torch.randn(6, 64),)] * 2, "decode": [(torch.randn(1, 64),)] * 2}
    return Example({"prefill": model, "decode": model}, calls)


def external() -> Example:
    return _forward(_Shared(), *((torch.randn(2, 64),) for _ in range(2)))


_MAKERS: Final[Mapping[str, Callable[[], Example]]] = {
    make.__name__: make
    for make in (
        *(arithmetic, perceptron, image, several_results, constants, zero_dims),
        *(diamond, ladder, results_on_the_way),
        *(attention, residual, recurrent, embedding, dynamic_batch, dynamic_arithmetic, running_total, branches),
        *(two_methods, external),
    )
}
"""By name; `checks` says which check is tried on which, and what each is there for."""


def example(name: str) -> Example:
    """The model of that name, its weights and inputs the same every time."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return _MAKERS[name]() if name in _MAKERS else _from_author(name)


def _from_author(name: str) -> Example:
    """The result of `module:function`: a model with the inputs of a call, or of several calls in a list."""
    module, _, function = name.partition(":")
    model, inputs = getattr(import_module(module), function)()
    return _forward(model, *(inputs if isinstance(inputs, list) else [inputs]))
