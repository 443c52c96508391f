"""Small programs that together use what the runtime has: made here, where torch is, and run on every platform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim

import delegraph

__all__ = ["PROGRAMS", "Program", "save"]


@dataclass(frozen=True, slots=True)
class Program:
    """What `lower` gives, and the arguments of each call. `with_engine`: it needs onnxruntime."""

    lowered: Callable[[], Any]
    calls: Callable[[], Sequence[tuple[Tensor, ...]]]
    with_engine: bool = False


def save(name: str, folder: Path) -> None:
    """Write the program and its inputs into `folder`."""
    torch.manual_seed(0)
    program = PROGRAMS[name]
    program.lowered().save(folder / f"{name}.pte")
    calls = program.calls()
    inputs = {f"{call}_{index}": x.numpy() for call, args in enumerate(calls) for index, x in enumerate(args)}
    np.savez(folder / f"{name}.npz", **inputs)


class Net(nn.Module):
    """Convolutions, a normalisation, pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.Conv2d(8, 16, 1), nn.SiLU())
        self.head = nn.Linear(16, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.deep(self.features(image)).mean((2, 3))).softmax(-1)


class Varying(nn.Module):
    """Attention over a length that varies."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.norm = nn.Linear(16, 48), nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + nn.functional.scaled_dot_product_attention(q, k, v)


class Counting(nn.Module):
    """A cache that is written at the number of calls so far."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("at", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("cache", torch.zeros(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        self.cache.index_copy_(0, self.at, x)
        self.at.add_(1)
        return self.cache.cumsum(0)


class Branching(nn.Module):
    """A branch, and a loop whose length depends on values."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x * 2, (x,))
        return torch.while_loop(lambda y: y.abs().sum() < 100, lambda y: (y * 1.5,), (y,))[0]


class Dtypes(nn.Module):
    """Arithmetic in each dtype that NumPy has, and what one turns into another."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        kinds = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float64)
        whole = (x * 20).round().clamp(0, 100)
        sums = [(whole.to(kind) * 3 + 1) // 2 for kind in kinds]
        turned = torch.complex(x, x * 2) * 2
        shifted = whole.to(torch.int32) << 2
        return (*sums, x > 0, turned.abs(), shifted, whole.to(torch.int64).cumsum(0), x.to(torch.float64).exp())


def _images() -> list[tuple[Tensor, ...]]:
    return [(torch.randn(2, 3, 16, 16),) for _ in range(2)]


def _net(backends: Sequence[str]) -> Any:
    return delegraph.lower(Net().eval(), _images()[0], backends=list(backends))


def _int8(quantizing: str, backends: Sequence[str]) -> Any:
    quantized = delegraph.quantize(Net().eval(), _images(), recipe="int8", backends=[quantizing])
    return delegraph.lower(quantized, backends=list(backends))


def _varying() -> Any:
    return delegraph.lower(Varying().eval(), (torch.randn(1, 4, 16),), dynamic_shapes={1: Dim("length", max=32)})


PROGRAMS: Final = {
    "float_cnn": Program(lambda: _net([]), _images),
    "int8_cnn": Program(lambda: _int8("npu", []), _images),
    "dynamic": Program(_varying, lambda: [(torch.randn(1, length, 16),) for length in (1, 7, 32)]),
    "state": Program(
        lambda: delegraph.lower(Counting().eval(), (torch.randn(1, 3),)), lambda: [(torch.randn(1, 3),)] * 3
    ),
    "control_flow": Program(
        lambda: delegraph.lower(Branching().eval(), (torch.ones(5),)),
        lambda: [(torch.full((5,), 0.25),), (torch.full((5,), -3.0),)],
    ),
    "dtypes": Program(
        lambda: delegraph.lower(Dtypes().eval(), (torch.randn(9),)), lambda: [(torch.linspace(-1, 4, 9),)]
    ),
    "npu": Program(lambda: _int8("npu", ["npu"]), _images),
    "dsp": Program(lambda: _net(["dsp"]), _images),
    "cpu": Program(lambda: _net(["cpu"]), _images, with_engine=True),
    "cpu_int8": Program(lambda: _int8("cpu", ["cpu"]), _images, with_engine=True),
}
