"""Small modules that both systems lower: each covers something about the file. Needs torch alone: runs in both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import Dim

Calls = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """A module, the inputs of several calls in a row (state is kept between them), and how to export it. `sram`: the
    bytes of a second memory, faster than the first."""

    module: torch.nn.Module
    calls: Calls
    dynamic_shapes: Any = None
    external_constants: bool = False
    sram: int | None = None


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def _case(function: Callable[..., Any], *calls: tuple[Any, ...], dynamic_shapes: Any = None) -> Case:
    wrapped = (dynamic_shapes,) if dynamic_shapes is not None else None
    return Case(_Function(function), list(calls), wrapped)


def _x(*shape: int) -> torch.Tensor:
    return torch.linspace(-2, 2, int(torch.tensor(shape).prod())).reshape(shape)


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depthwise = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.hardtanh(self.norm(self.depthwise(self.conv(x).relu())))
        y = torch.nn.functional.max_pool2d(y, 2) + torch.nn.functional.avg_pool2d(y, 2)
        scores: torch.Tensor = self.head(y.mean((2, 3))).softmax(-1)
        return scores


class _Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(20, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(self.embedding(tokens))
        return out


class _Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.count: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += x
        return self.count * 2


class _Cache(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 8, 4))
        self.cache: torch.Tensor

    def forward(self, position: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        self.cache.index_put_((torch.tensor([0]), position), row)
        return self.cache.sum(1)


def _cond(p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.cond(p.sum() > 0, lambda x: x.relu() + 1, lambda x: x * 3, (x,))


def _map(xs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops.map import map as torch_map

    return torch_map(lambda x, y: x * y + 1, xs, y)


def _parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Pieces of results and inputs, parts of a `cat`, updates of results: none of them needs a copy."""
    a, b = (x + 1).split(2)
    joined = torch.cat([a.exp(), b.sin(), a])
    changed = x * 2
    changed[1:2] = joined[:1]
    channels = x.view(1, 4, 4, 4)
    return joined * changed[0], torch.stack([x.relu(), x.sigmoid()]).sum(0) + changed, channels[:, 1:3].abs()


def cases() -> dict[str, Case]:
    """Every case by name; weights and inputs are the same in both environments."""
    torch.manual_seed(0)
    batch = {0: Dim("batch", max=8)}
    linear = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    return {
        "parts": _case(_parts, (_x(4, 16),), (-_x(4, 16),)),
        "views": _case(
            lambda x: (x.view(3, 4).t().reshape(-1), x.view(2, 6)[1:, ::2] + 1, x.unsqueeze(0).expand(2, 12) * 2),
            (_x(12),),
        ),
        "slices": _case(lambda x: (x[:, 1:3].contiguous(), x.select(0, 1), x.unbind(0)[2], x.flip(1)), (_x(3, 4),)),
        "int64": _case(lambda x: (x // 3, x % 3, x * 2 - 1, x > 2), (torch.arange(-6, 6),)),
        "int32 and uint8": _case(
            lambda a, b: (a + 1, b.to(torch.int32) * a, b & 3),
            (torch.arange(4, dtype=torch.int32), torch.tensor([1, 2, 250, 255], dtype=torch.uint8)),
        ),
        "half": _case(lambda x: (x * 2 + 1, x.float().exp()), (_x(6).half(),)),
        "bfloat16": _case(lambda x: (x * 2 + 1).float(), (_x(6).bfloat16(),)),
        "double": _case(lambda x: x.sin() + x.sqrt().nan_to_num(0.0), (_x(6).double(),)),
        "bool": _case(
            lambda x, m: (torch.where(m, x, -x), m.logical_not(), (x > 0) & m),
            (_x(4), torch.tensor([True, False, True, False])),
        ),
        "promotion": _case(lambda i, f: (i + f, i / 2, f > i, i * 0.5), (torch.arange(4), _x(4))),
        "topk": _case(lambda x: tuple(x.topk(2, dim=-1)), (_x(3, 5).cos(),)),
        "max over a dim": _case(lambda x: (*x.max(1), x.amin(0), x.argmax(1)), (_x(3, 5).cos(),)),
        "split and cat": _case(lambda x: torch.cat([a * i for i, a in enumerate(x.split(2, 1))][::-1], 1), (_x(3, 6),)),
        "stack and chunk": _case(lambda x: torch.stack(x.chunk(3, 0), 1), (_x(3, 4),)),
        "index": _case(
            lambda x, i: (x[i], x[:, i], x.index_select(0, i), torch.gather(x, 0, i.expand(4, 2).t())),
            (_x(3, 4), torch.tensor([2, 0])),
        ),
        "reductions": _case(
            lambda x: (x.sum(), x.mean(1, keepdim=True), x.var(1), x.prod(0), x.any(), x.cumsum(1)), (_x(3, 4),)
        ),
        "softmax and norm": _case(
            lambda x: (x.softmax(-1), x.log_softmax(0), torch.nn.functional.layer_norm(x, (4,))), (_x(3, 4),)
        ),
        "matrices": _case(
            lambda a, b: (a @ b, torch.bmm(a[None], b[None]), torch.addmm(a @ b, a, b, beta=0.5)), (_x(3, 4), _x(4, 3))
        ),
        "factories": _case(
            lambda x: (
                torch.arange(4) + x.sum().long(),
                torch.full((2,), 3.0) * x[0, 0],
                torch.zeros_like(x),
                x.tril(),
            ),
            (_x(3, 4),),
        ),
        "pads": _case(
            lambda x: (
                torch.nn.functional.pad(x, (1, 2), value=3.0),
                torch.nn.functional.pad(x[None], (1, 1), mode="reflect"),
            ),
            (_x(3, 4),),
        ),
        "upsample": _case(
            lambda x: (torch.nn.functional.interpolate(x, scale_factor=2.0), torch.nn.functional.pixel_shuffle(x, 2)),
            (_x(1, 4, 2, 3),),
        ),
        "activations": _case(
            lambda x: tuple(
                f(x)
                for f in (
                    torch.sigmoid,
                    torch.tanh,
                    torch.nn.functional.gelu,
                    torch.nn.functional.silu,
                    torch.nn.functional.elu,
                    torch.nn.functional.leaky_relu,
                )
            ),
            (_x(12),),
        ),
        "scalars": _case(lambda x: (x.clamp(-1, 1), x.pow(2), 2 - x, torch.remainder(x, 0.7), x.round()), (_x(7),)),
        "the input is an output": _case(lambda x: (x, x + 1, x), (_x(3),)),
        "dict and list": _case(lambda x: {"twice": x * 2, "parts": [x[:1], (x[1:], x.sum())]}, (_x(3),)),
        "conv net": Case(_Net().eval(), [(_x(1, 3, 16, 16),)]),
        "transformer block": Case(_Block().eval(), [(torch.tensor([[1, 5, 7, 2, 0]]),)]),
        "lstm": Case(_Function(torch.nn.LSTM(4, 3, batch_first=True).eval()), [(_x(1, 5, 4),)]),
        "counter": Case(_Counter(), [(_x(3),), (torch.ones(3),), (_x(3),)]),
        "cache": Case(_Cache(), [(torch.tensor([i]), torch.full((1, 4), i + 1.0)) for i in (0, 3, 5)]),
        "cond": _case(_cond, (torch.ones(1), _x(4)), (-torch.ones(1), _x(4))),
        "map": _case(_map, (_x(3, 4), _x(4))),
        "dynamic batch": Case(linear.eval(), [(_x(2, 4),), (_x(8, 4),), (_x(1, 4),)], (batch,)),
        "dynamic sizes": _case(
            lambda x: (x.reshape(x.shape[0] * 4), torch.arange(x.shape[0]), x[1:].sum(0), torch.zeros(x.shape[0] + 1)),
            (_x(3, 4),),
            (_x(8, 4),),
            (_x(4, 4),),
            dynamic_shapes=({0: Dim("rows", min=3, max=8)},),
        ),
        "external weights": Case(linear.eval(), [(_x(2, 4),)], external_constants=True),
        "two memories": Case(_Net().eval(), [(_x(1, 3, 16, 16),), (-_x(1, 3, 16, 16),)], sram=1024),
        "state in two memories": Case(_Cache(), [(torch.tensor([i]), _x(1, 4) + i) for i in (1, 5)], sram=32),
    }
