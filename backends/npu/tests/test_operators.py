"""Each operator, quantized by the NPU's quantizer, compiled and run: within a step of torch's quantized program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from backends.npu.tests.compiled import Of, Outcome, lower_and_run
from torch import nn

import delegraph

Case = tuple[nn.Module, Sequence[tuple[int, ...]]]


IMAGE = [(2, 6, 9, 8)]
ROWS = [(2, 5, 12)]


def of(function: Callable[..., Any], shapes: Sequence[tuple[int, ...]], **layers: nn.Module) -> Case:
    return Of(function, **layers), shapes


def moved(function: Callable[[torch.Tensor], Any], shape: tuple[int, ...] = (2, 6, 9, 8)) -> Case:
    """What moves integers, behind a function that makes them."""
    return of(lambda x: function(torch.sigmoid(x)), [shape])


def sum_of(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return sum(parts[1:], parts[0])


class Addmm(nn.Module):
    """A linear layer as GPT-2 has it, its weight as [in, out]."""

    def __init__(self, taken: int, given: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(taken, given) * torch.linspace(0.1, 2, given))
        self.bias = nn.Parameter(torch.randn(given))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x, self.weight)


CASES: dict[str, Case] = {
    "conv": (nn.Conv2d(6, 10, 3), IMAGE),
    "conv strided, padded": (nn.Conv2d(6, 10, (3, 5), stride=(2, 1), padding=(1, 2)), IMAGE),
    "conv dilated": (nn.Conv2d(6, 4, 3, dilation=2, padding=2, bias=False), IMAGE),
    "conv same": (nn.Conv2d(6, 4, (5, 3), padding="same"), IMAGE),
    "conv in groups": (nn.Conv2d(6, 4, 3, groups=2), IMAGE),
    "conv of sequences": (nn.Conv1d(6, 4, 3, padding=1, stride=2), [(2, 6, 11)]),
    "conv and relu6": (nn.Sequential(nn.Conv2d(6, 10, 3), nn.ReLU6()), IMAGE),
    "conv, batch norm and relu": (nn.Sequential(nn.Conv2d(6, 10, 3), nn.BatchNorm2d(10), nn.ReLU()), IMAGE),
    "conv and hardswish": (nn.Sequential(nn.Conv2d(6, 10, 3), nn.Hardswish()), IMAGE),
    "depthwise": (nn.Conv2d(6, 6, 3, groups=6, padding=1, stride=2), IMAGE),
    "depthwise with a multiplier": (nn.Conv2d(6, 12, 3, groups=6), IMAGE),
    "transposed": (nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1), IMAGE),
    "transposed, 2 x 2": (nn.ConvTranspose2d(6, 4, 2, stride=2), IMAGE),
    "transposed in groups": (nn.ConvTranspose2d(6, 4, 3, stride=1, padding=1, groups=2), IMAGE),
    "transposed, of sequences": (nn.ConvTranspose1d(6, 4, 4, stride=2, padding=1), [(2, 6, 7)]),
    "linear": (nn.Linear(12, 7), [(5, 12)]),
    "linear of a batch, and relu": (nn.Sequential(nn.Linear(12, 7), nn.ReLU()), ROWS),
    "matmul": of(lambda a, b: a @ b, [(4, 12), (12, 7)]),
    "matmul of a batch": of(lambda a, b: a @ b, [(2, 3, 4, 12), (2, 3, 12, 7)]),
    "matmul transposed": of(lambda a, b: a @ b.transpose(-1, -2), [(2, 4, 12), (2, 7, 12)]),
    "matmul of itself, transposed": of(lambda x: x @ x.transpose(-1, -2), [(2, 8, 8)]),
    "matmul of its transpose": of(lambda x: x.transpose(0, 1) @ x, [(8, 8)]),
    "add its own transpose": of(lambda x: x + x.transpose(1, 2) - x.permute(2, 0, 1), [(8, 8, 8)]),
    "add itself in another shape": of(lambda x: x + x.reshape(2, 6, 4).transpose(1, 2), [(2, 4, 6)]),
    "cat of itself and its transpose": moved(
        lambda x: torch.cat([x, x.transpose(2, 3), x.permute(0, 2, 3, 1)], 1), (2, 8, 8, 8)
    ),
    "cat of its own parts": moved(
        lambda x: torch.cat([x[..., 3:], x[..., :3], x.transpose(2, 3)[..., ::2]], -1), (2, 6, 8, 8)
    ),
    "max pool": moved(lambda x: F.max_pool2d(x, 3, 2, 1)),
    "average pool": moved(lambda x: F.avg_pool2d(x, 2)),
    "average pool, padded": moved(lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "average pool, padding not counted": moved(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
    "adaptive pool to one": of(lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
    "adaptive pool": of(lambda x: F.adaptive_avg_pool2d(x, (3, 2)), IMAGE),
    "add": of(lambda a, b: a + b, IMAGE * 2),
    "add and relu": of(lambda a, b: F.relu(a + b), IMAGE * 2),
    "add to itself": of(lambda a: a + a, IMAGE),
    "add, broadcast": of(lambda a, b: a + b, [(2, 6, 9, 8), (1, 6, 1, 1)]),
    "add of fewer dims": of(lambda a, b: a + b, [(2, 5, 12), (12,)]),
    "add of a single number": of(lambda a, b: a + b, [(2, 5, 12), ()]),
    "fewer dims, added to an image": of(lambda a, b: b + a, [(2, 6, 9, 8), (9, 8)]),
    "conv of what is permuted first": of(lambda f, x: f(x.permute(0, 3, 1, 2)), [(2, 9, 8, 6)], f=nn.Conv2d(6, 4, 3)),
    "sub": of(lambda a, b: a - b, ROWS * 2),
    "mul": of(lambda a, b: a * b, ROWS * 2),
    "add a number": of(lambda x: x + 0.7, IMAGE),
    "a number minus": of(lambda x: 1 - x, ROWS),
    "minus a number, and relu": of(lambda x: F.relu(x - 0.3), ROWS),
    "times a number": of(lambda x: x * -1.7, IMAGE),
    "divided by a number": of(lambda x: x / 3, ROWS),
    "to a power": of(lambda x: x**2, ROWS),
    "a large number": of(lambda x: x + 1000, ROWS),
    "add 0": of(lambda x: x + 0.0, ROWS),
    "addmm": (Addmm(12, 7), [(5, 12)]),
    "mul, broadcast": of(lambda a, b: a * b, [(2, 6, 1, 1), (2, 6, 9, 8)]),
    "sigmoid": of(torch.sigmoid, ROWS),
    "tanh": of(torch.tanh, IMAGE),
    "hardswish": of(F.hardswish, ROWS),
    "silu": of(F.silu, ROWS),
    "gelu": of(lambda x: F.gelu(x, approximate="tanh"), ROWS),
    "leaky relu": of(lambda x: F.leaky_relu(x, 0.2), ROWS),
    "elu": of(F.elu, ROWS),
    "exp": of(torch.exp, ROWS),
    "square root": of(lambda x: torch.sqrt(torch.sigmoid(x)), ROWS),
    "relu": moved(F.relu),
    "clamp": moved(lambda x: x.clamp(0.3, 0.7)),
    "softmax": of(lambda x: x.softmax(-1), ROWS),
    "softmax of a number": of(lambda x: x.softmax(0), [()]),
    "softmax over channels": of(lambda x: x.softmax(1), IMAGE),
    "cat": moved(lambda x: torch.cat([x, x], 1)),
    "cat of results": of(lambda a, b: torch.cat([torch.sigmoid(a), torch.tanh(b)], 1), IMAGE * 2),
    "chunk": moved(lambda x: sum_of(x.chunk(2, 1))),
    "split": moved(lambda x: sum_of(torch.split(x, 3, -1)[:2])),
    "split with sizes": moved(lambda x: torch.cat(x.split([1, 2, 3], 1)[::-1], 1)),
    "unbind": moved(lambda x: sum_of(x.unbind(2))),
    "slice": moved(lambda x: x[:, 1:5:2, 2:-1]),
    "select": moved(lambda x: x[:, 2]),
    "pad": moved(lambda x: F.pad(x, (1, 2, 0, 3), value=0.4)),
    "pad, then conv": of(lambda conv, x: conv(F.pad(x, (0, 1, 0, 1))), IMAGE, conv=nn.Conv2d(6, 4, 3, stride=2)),
    "flatten": of(lambda conv, line, x: line(conv(x).flatten(1)), IMAGE, c=nn.Conv2d(6, 4, 3), l=nn.Linear(168, 3)),
    "reshape": moved(lambda x: x.reshape(2, 3, 2, 72)),
    "permute": moved(lambda x: x.permute(0, 2, 3, 1).reshape(2, -1, 6)),
    "transpose": moved(lambda x: x.transpose(1, 2)),
    "unsqueeze, squeeze": moved(lambda x: x.unsqueeze(1).squeeze(1), (2, 5, 12)),
    "mean": of(lambda x: x.mean((2, 3)), IMAGE),
    "mean of rows": of(lambda x: x.mean(1, keepdim=True), ROWS),
    "sum": of(lambda x: x.sum(-1), ROWS),
    "amax": moved(lambda x: x.amax((2, 3))),
    "nearest": moved(lambda x: F.interpolate(x, scale_factor=2.0)),
    "nearest, to a size": moved(lambda x: F.interpolate(x, size=(12, 20))),
    "bilinear": moved(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear")),
    "bilinear, corners aligned": moved(lambda x: F.interpolate(x, size=(17, 15), mode="bilinear", align_corners=True)),
}


class Every(nn.Module):
    """All cases beside each other, each with inputs of its own: exported and quantized once."""

    def __init__(self) -> None:
        super().__init__()
        self.cases = nn.ModuleList(model for model, _ in CASES.values())
        self.counts = [len(shapes) for _, shapes in CASES.values()]

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        rest, results = list(inputs), []
        for case, count in zip(self.cases, self.counts, strict=True):
            results.append(case(*rest[:count]))
            rest = rest[count:]
        return results


@pytest.fixture(scope="module")
def every() -> Outcome:
    torch.manual_seed(0)
    return lower_and_run(Every(), *(torch.randn(shape) for _, shapes in CASES.values() for shape in shapes))


def test_all_operators_are_taken(every: Outcome) -> None:
    assert every.left == []


@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_within_a_step_of_torch(every: Outcome, name: str) -> None:
    off = every.off[list(CASES).index(name)]
    assert off < 1.01, f"off by {off} steps"


@pytest.mark.parametrize("groups", [1, 4])
def test_a_bias_beside_no_weights_does_not_saturate(groups: int) -> None:
    """Its channel's scale is next to nothing, of which 1.0 is more than 32 bits hold."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(16, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1, groups=groups)
    ).eval()
    with torch.no_grad():
        model[2].weight[0] = 0
        model[2].bias[:] = torch.eye(64)[0]
    x = torch.randn(1, 16, 32, 32) * 0.05
    program = delegraph.quantize(model, [(x,)], backends=["npu"]).program
    lowered = delegraph.lower(program, backends=["npu"])
    assert lowered.report.methods["forward"].delegates
    got, wanted = delegraph.load(bytes(lowered))(x.numpy()), program.module()(x).detach().numpy()
    assert abs(wanted[0, 0] - 1).max() < 0.01
    step = (wanted.max() - wanted.min()) / 255
    np.testing.assert_allclose(got, wanted, atol=1.01 * step)
