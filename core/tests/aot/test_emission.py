"""Models that together reach every path of emission: what is emitted gives eager's results, here and on ExecuTorch."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim
from torch.utils._pytree import tree_leaves

from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.lower import to_edge
from delegraph.runtime.runtime import Runtime


@dataclass(frozen=True)
class Case:
    """A model, the inputs of its runs in order (the first is what it is exported with), and options."""

    model: Callable[[], nn.Module]
    runs: Callable[[], list[tuple[Any, ...]]]
    dynamic_shapes: Any = None
    config: Mapping[str, Any] = field(default_factory=dict)


CASES: dict[str, Case] = {}


def case(runs: Callable[[], list[tuple[Any, ...]]], dynamic_shapes: Any = None, **config: Any) -> Any:
    def register(model: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        CASES[model.__name__] = Case(model, runs, dynamic_shapes, config)
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
class DynamicView(nn.Module):
    def forward(self, x):
        y = (x * 2).view(x.shape[0] * 3, 4)
        return (y + 1).view(x.shape[0], 12) - 1


@case(same_shapes((4, 6)))
class SeveralOutputs(nn.Module):
    def forward(self, x):
        values, indices = torch.topk(x, 2)
        a, b = x.split([2, 4], dim=1)
        best = x.max(dim=1)
        return {"values": values, "indices": indices, "pieces": [a, b], "best": best}


@case(same_shapes((2, 6)))
class Views(nn.Module):
    def forward(self, x):
        y = (x + 1).view(3, 4)
        z = y.unsqueeze(0).squeeze(0).reshape(2, 2, 3)
        w = x.view(12)
        return z * 2, w, y.unsqueeze(1), x.t() @ y.reshape(2, 6)


@case(same_shapes((4,), runs=3))
class Counter(nn.Module):
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
class SwappedBuffers(nn.Module):
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
class DirectOutputs(nn.Module):
    """Outputs that are an input, a weight, one value twice."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x, y):
        z = x + y
        return x, self.weight, z, z


@case(lambda: [(torch.randn(4), torch.tensor(flag)) for flag in (True, False, True)])
class Branches(nn.Module):
    def forward(self, x, flag):
        a = torch.cond(flag, lambda x: (x * 2, x + 1), lambda x: (x - 1, x * x), (x,))
        b = torch.cond(flag, lambda x: x.sin(), lambda x: x.cos(), (a[0],))
        return a[0], a[1], b


@case(lambda: [(torch.randn(4), torch.tensor(flag)) for flag in (True, False)])
class PassThroughBranch(nn.Module):
    def forward(self, x, flag):
        y = torch.cond(flag, lambda x: (x.clone(), x + 1), lambda x: (x * 3, (x * 2).view(2, 2).view(4)), (x,))
        return y[0] + 1, y[1]


@case(lambda: [(torch.randn(5, 3), torch.randn(3)), (torch.randn(5, 3), torch.randn(3))])
class Mapped(nn.Module):
    def forward(self, xs, y):
        return torch_map(lambda x, y: (x * y + 1).view(3), xs, y) * 2


@case(same_shapes((4, 3)))
class Scanned(nn.Module):
    def forward(self, xs):
        start = xs[0] * 0
        (a, b), ys = scan(lambda c, x: ((c[1] + 0, c[0] + x), c[0] * x), (start, start + 1), xs)
        return a, b, ys


@case(lambda: [(torch.tensor(0), torch.randn(3)), (torch.tensor(7), torch.randn(3))])
class Looped(nn.Module):
    def forward(self, i, x):
        y = x + 1
        i, a, b = while_loop(lambda i, a, b: i < 5, lambda i, a, b: (i + 1, b + y, a * 2), (i, x, x + 0))
        return i, a, b, y


@case(lambda: [(torch.randn(3, 4), torch.randint(0, 9, (3,))), (torch.randn(3, 4), torch.randint(0, 9, (3,)))])
class Dtypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.register_buffer("halves", torch.arange(4, dtype=torch.float16))
        self.register_buffer("mask", torch.tensor([True, False, True, False]))

    def forward(self, x, i):
        e = self.embedding(i) + x
        return torch.where(self.mask, e, 0.0), i * 2, e.half() + self.halves, (e > 0).to(torch.int32)


@case(same_shapes((3, 4)), alloc_graph_input=False, alloc_graph_output=False)
class Unplanned(nn.Module):
    def forward(self, x):
        y = x * 2
        values, _ = torch.topk(y, 2)
        return x.view(12), y, y, values, y.unsqueeze(0)


@case(same_shapes((2, 3, 8, 8)))
class ChannelsLast(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    def forward(self, x):
        return self.conv(x.to(memory_format=torch.channels_last)).relu().contiguous()


@case(lambda: [(torch.randn(2, 6),), (torch.randn(3, 6),)], dynamic_shapes=({0: BATCH},))
class SymbolicArithmetic(nn.Module):
    def forward(self, x):
        n = x.shape[0]
        return torch.full((n * 2 + 1,), 1.5) * (n // 2), x.reshape(-1, 3).sum(1), x.new_zeros(max(n, 2)) + n % 2


@case(same_shapes((4,)))
class ConstantsFolded(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * (self.weight.exp() + torch.arange(4))


@case(lambda: [(torch.randn(2, 5), 3), (torch.randn(4, 5), 3)], dynamic_shapes=({0: BATCH}, None))
class PlainInput(nn.Module):
    def forward(self, x, times):
        return x * times, x.shape[0], times


@case(lambda: [(torch.tensor([[1.0, 0.0, 2.0]]),), (torch.tensor([[0.0, 0.0, 5.0]]),)])
class DataDependent(nn.Module):
    def forward(self, x):
        n = x.sum().to(torch.int64).item()
        torch._check(n >= 0)
        torch._check(n <= 8)
        return torch.ones(n), x * n


@case(same_shapes((3,), (3,)))
class InputMutation(nn.Module):
    """Its second argument is not used; the first is changed in place and returned."""

    def forward(self, x, unused):
        x.add_(1)
        return x * 2, x


# ---- running them ----------------------------------------------------------------------------------


def _prepared(name: str) -> tuple[nn.Module, list[tuple[Any, ...]]]:
    torch.manual_seed(0)
    return CASES[name].model().eval(), CASES[name].runs()


def _expected(model: nn.Module, runs: list[tuple[Any, ...]]) -> list[list[Any]]:
    fresh = [tuple(v.clone() if isinstance(v, torch.Tensor) else v for v in run) for run in runs]
    with torch.no_grad():
        return [tree_leaves(model(*run)) for run in fresh]


def _assert_equal(got: list[list[Any]], expected: list[list[Any]]) -> None:
    assert len(got) == len(expected)
    for one_got, one_expected in zip(got, expected, strict=True):
        for value, wanted in zip(one_got, one_expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(value), torch.as_tensor(wanted), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_runs_here_as_in_eager(name: str, lower_model: Any) -> None:
    model, runs = _prepared(name)
    program = lower_model(copy.deepcopy(model), runs[0], CASES[name].dynamic_shapes, **CASES[name].config)
    method = Runtime.get().load_program(program.buffer).load_method("forward")
    got = [list(method.execute([v.numpy().copy() if isinstance(v, torch.Tensor) else v for v in run])) for run in runs]
    _assert_equal(got, _expected(model, runs))


@pytest.mark.parametrize("name", CASES)
def test_memory_is_within_two_percent_of_the_lower_bound(name: str, lower_model: Any) -> None:
    model, runs = _prepared(name)
    memory = lower_model(model, runs[0], CASES[name].dynamic_shapes, **CASES[name].config).memory["forward"]
    assert memory.planned_bytes <= 1.02 * memory.lower_bound


_RUN_ON_EXECUTORCH = """
import pathlib, sys
import torch
from executorch.runtime import Runtime

folder = pathlib.Path(sys.argv[1])
results = {}
for pte in sorted(folder.glob("*.pte")):
    content = pte.read_bytes()  # the runtime reads it in place: it must outlive the method
    try:
        program = Runtime.get().load_program(content)
        method = program.load_method("forward")
        runs = torch.load(folder / (pte.stem + ".inputs"))
        results[pte.stem] = [
            [v.clone() if isinstance(v, torch.Tensor) else v for v in method.execute(run)] for run in runs
        ]
    except RuntimeError as error:
        results[pte.stem] = repr(error)
torch.save(results, folder / "results")
"""


@pytest.fixture(scope="module")
def executorch_results(executorch_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ExecuTorch's runtime gives for each case, or why it was not reached; one process runs them all."""
    folder = tmp_path_factory.mktemp("executorch")
    not_lowered = {name: fault for name in CASES if (fault := _write_case(name, folder))}
    command = [executorch_python, "-c", _RUN_ON_EXECUTORCH, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return torch.load(folder / "results") | not_lowered


def _write_case(name: str, folder: Path) -> str | None:
    """Write a case's program and inputs; the error if it cannot be lowered, so that the others still run."""
    model, runs = _prepared(name)
    try:
        exported = torch.export.export(model, runs[0], dynamic_shapes=CASES[name].dynamic_shapes)
        config = ExecutorchBackendConfig(check_kernels=False, **CASES[name].config)
        to_edge(exported).to_executorch(config).save(folder / f"{name}.pte")
    except Exception as error:  # it fails this case's test, by its text
        return repr(error)
    torch.save([list(run) for run in runs], folder / f"{name}.inputs")
    return None


@pytest.mark.executorch
@pytest.mark.parametrize("name", CASES)
def test_runs_on_executorch_as_in_eager(name: str, executorch_results: dict[str, Any]) -> None:
    model, runs = _prepared(name)
    got = executorch_results[name]
    assert not isinstance(got, str), got
    _assert_equal(got, _expected(model, runs))
