"""Models that together reach every path of emission, with inputs for several runs; shared by the tests of both runtimes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.lower import to_edge
from delegraph.aot.to_executorch import ExecutorchProgramManager

__all__ = ["CASES", "Case", "lower_model"]


def lower_model(
    model: nn.Module,
    args: tuple[Any, ...],
    dynamic_shapes: Any = None,
    constant_methods: Mapping[str, Any] | None = None,
    **config: Any,
) -> ExecutorchProgramManager:
    """Export and lower onto kernels alone; the installed kernel libraries are not asked unless `check_kernels` says so."""
    exported = torch.export.export(model.eval(), args, dynamic_shapes=dynamic_shapes)
    options = {"check_kernels": False, **config}
    return to_edge(exported, constant_methods=constant_methods).to_executorch(ExecutorchBackendConfig(**options))


@dataclass(frozen=True)
class Case:
    """A model, the inputs of its runs in order (the first is what it is exported with), and options."""

    name: str
    model: Callable[[], nn.Module]
    runs: Callable[[], list[tuple[Any, ...]]]
    dynamic_shapes: Any = None
    config: Mapping[str, Any] = field(default_factory=dict)


CASES: dict[str, Case] = {}


def case(runs: Callable[[], list[tuple[Any, ...]]], dynamic_shapes: Any = None, **config: Any) -> Any:
    def register(model: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        name = model.__name__
        CASES[name] = Case(name, model, runs, dynamic_shapes, config)
        return model

    return register


def same_shapes(*shapes: tuple[int, ...], runs: int = 2) -> Callable[[], list[tuple[Any, ...]]]:
    return lambda: [tuple(torch.randn(shape) for shape in shapes) for _ in range(runs)]


BATCH = Dim("batch", min=1, max=8)


@case(same_shapes((3, 4)))
def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@case(same_shapes((1, 3, 16, 16)))
def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


@case(lambda: [(torch.randn(2, 4),), (torch.randn(5, 4),), (torch.randn(8, 4),)], dynamic_shapes=({0: BATCH},))
def dynamic_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@case(lambda: [(torch.randn(2, 3, 4),), (torch.randn(5, 3, 4),)], dynamic_shapes=({0: BATCH},))
class dynamic_view(nn.Module):
    def forward(self, x):
        y = (x * 2).view(x.shape[0] * 3, 4)
        return (y + 1).view(x.shape[0], 12) - 1


@case(same_shapes((4, 6)))
class several_outputs(nn.Module):
    def forward(self, x):
        values, indices = torch.topk(x, 2)
        a, b = x.split([2, 4], dim=1)
        best = x.max(dim=1)
        return {"values": values, "indices": indices, "pieces": [a, b], "best": best}


@case(same_shapes((2, 6)))
class views(nn.Module):
    def forward(self, x):
        y = (x + 1).view(3, 4)
        z = y.unsqueeze(0).squeeze(0).reshape(2, 2, 3)
        w = x.view(12)
        return z * 2, w, y.unsqueeze(1), x.t() @ y.reshape(2, 6)


@case(same_shapes((4,), runs=3))
class counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.full((4,), 5.0))
        self.register_buffer("zeros", torch.zeros(4))

    def forward(self, x):
        before = self.total * 1.0
        self.total.add_(x)
        self.zeros.add_(1)
        return before, self.total + self.zeros


@case(same_shapes((2,), runs=3))
class swapped_buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.tensor([1.0, 2.0]))
        self.register_buffer("b", torch.tensor([3.0, 4.0]))

    def forward(self, x):
        a, b = self.a.clone(), self.b.clone()
        self.a.copy_(b)
        self.b.copy_(a)
        return x + a, b


@case(same_shapes((3,), (3,)))
class direct_outputs(nn.Module):
    """Outputs that are an input, a weight, one value twice."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x, y):
        z = x + y
        return x, self.weight, z, z


@case(lambda: [(torch.randn(4), torch.tensor(flag)) for flag in (True, False, True)])
class branches(nn.Module):
    def forward(self, x, flag):
        a = torch.cond(flag, lambda x: (x * 2, x + 1), lambda x: (x - 1, x * x), (x,))
        b = torch.cond(flag, lambda x: x.sin(), lambda x: x.cos(), (a[0],))
        return a[0], a[1], b


@case(lambda: [(torch.randn(4), torch.tensor(flag)) for flag in (True, False)])
class pass_through_branch(nn.Module):
    def forward(self, x, flag):
        y = torch.cond(flag, lambda x: (x.clone(), x + 1), lambda x: (x * 3, (x * 2).view(2, 2).view(4)), (x,))
        return y[0] + 1, y[1]


@case(lambda: [(torch.randn(5, 3), torch.randn(3)), (torch.randn(5, 3), torch.randn(3))])
class mapped(nn.Module):
    def forward(self, xs, y):
        return torch_map(lambda x, y: (x * y + 1).view(3), xs, y) * 2


@case(same_shapes((4, 3)))
class scanned(nn.Module):
    def forward(self, xs):
        start = xs[0] * 0
        (a, b), ys = scan(lambda c, x: ((c[1] + 0, c[0] + x), c[0] * x), (start, start + 1), xs)
        return a, b, ys


@case(lambda: [(torch.tensor(0), torch.randn(3)), (torch.tensor(7), torch.randn(3))])
class looped(nn.Module):
    def forward(self, i, x):
        y = x + 1
        i, a, b = while_loop(lambda i, a, b: i < 5, lambda i, a, b: (i + 1, b + y, a * 2), (i, x, x + 0))
        return i, a, b, y


@case(lambda: [(torch.randn(3, 4), torch.randint(0, 9, (3,))), (torch.randn(3, 4), torch.randint(0, 9, (3,)))])
class dtypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.register_buffer("halves", torch.arange(4, dtype=torch.float16))
        self.register_buffer("mask", torch.tensor([True, False, True, False]))

    def forward(self, x, i):
        e = self.embedding(i) + x
        return torch.where(self.mask, e, 0.0), i * 2, e.half() + self.halves, (e > 0).to(torch.int32)


@case(same_shapes((3, 4)), alloc_graph_input=False, alloc_graph_output=False)
class unplanned(nn.Module):
    def forward(self, x):
        y = x * 2
        values, _ = torch.topk(y, 2)
        return x.view(12), y, y, values, y.unsqueeze(0)


@case(same_shapes((2, 3, 8, 8)))
class channels_last(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    def forward(self, x):
        return self.conv(x.to(memory_format=torch.channels_last)).relu().contiguous()


@case(lambda: [(torch.randn(2, 6),), (torch.randn(3, 6),)], dynamic_shapes=({0: BATCH},))
class symbolic_arithmetic(nn.Module):
    def forward(self, x):
        n = x.shape[0]
        return torch.full((n * 2 + 1,), 1.5) * (n // 2), x.reshape(-1, 3).sum(1), x.new_zeros(max(n, 2)) + n % 2


@case(same_shapes((4,)))
class constants_folded(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * (self.weight.exp() + torch.arange(4))
