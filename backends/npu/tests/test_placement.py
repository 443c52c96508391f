"""What calls are said to take, by which partitions are placed: the NPU's cycles against those that its machine counts,
the host's against reads and writes that are counted; of all families of operators."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from backends.npu.tests.compiled import Of
from torch import nn

import delegraph
from delegraph.devtools import event_counters
from delegraph_npu.aot.partitioner import NpuPartitioner
from delegraph_npu.aot.work import HOST_ACCESS, HOST_MULTIPLY_ADDS, Work

pytestmark = pytest.mark.long

IMAGE, ROWS = (1, 32, 32, 32), (64, 128)

FAMILIES: dict[str, tuple[nn.Module, Sequence[tuple[int, ...]]]] = {
    "add": (Of(lambda a, b: a + b), [IMAGE] * 2),
    "mul by a number": (Of(lambda a: a * 3), [IMAGE]),
    "sub, broadcast": (Of(lambda a, b: a - b), [IMAGE, (1, 32, 1, 1)]),
    "a table": (Of(F.gelu), [IMAGE]),
    "a limit": (Of(lambda x: F.relu(x * 2)), [IMAGE]),
    "mean": (Of(lambda x: x.mean((2, 3))), [IMAGE]),
    "mean of rows": (Of(lambda x: x.mean(-1)), [ROWS]),
    "sum of channels": (Of(lambda x: x.sum(1)), [IMAGE]),
    "amax": (Of(lambda x: torch.sigmoid(x).amax((2, 3))), [IMAGE]),
    "adaptive average": (Of(lambda x: F.adaptive_avg_pool2d(x, 1)), [IMAGE]),
    "adaptive windows": (Of(lambda x: F.adaptive_avg_pool2d(x, 4)), [IMAGE]),
    "max pool": (Of(lambda x: F.max_pool2d(torch.sigmoid(x), 2)), [IMAGE]),
    "average pool": (Of(lambda x: F.avg_pool2d(torch.sigmoid(x), 3, 1, 1)), [IMAGE]),
    "softmax": (Of(lambda x: x.softmax(-1)), [ROWS]),
    "cat": (Of(lambda a, b: torch.cat([torch.sigmoid(a), torch.tanh(b)], 1)), [IMAGE] * 2),
    "pad": (Of(lambda x: F.pad(torch.sigmoid(x), (1, 1, 1, 1))), [IMAGE]),
    "slice": (Of(lambda x: torch.sigmoid(x)[:, 4:20]), [IMAGE]),
    "permute": (Of(lambda x: torch.sigmoid(x).permute(0, 2, 3, 1).reshape(1, -1)), [IMAGE]),
    "nearest": (Of(lambda x: F.interpolate(torch.sigmoid(x), scale_factor=2.0)), [IMAGE]),
    "bilinear": (Of(lambda x: F.interpolate(torch.sigmoid(x), scale_factor=2.0, mode="bilinear")), [IMAGE]),
    "matmul": (Of(lambda a, b: a @ b), [(4, 32, 64), (4, 64, 32)]),
    "convolution": (nn.Conv2d(32, 64, 3, padding=1), [IMAGE]),
    "depthwise": (nn.Conv2d(32, 32, 3, groups=32), [IMAGE]),
    "in groups": (nn.Conv2d(32, 32, 3, groups=4), [IMAGE]),
    "transposed": (nn.ConvTranspose2d(32, 16, 2, 2), [IMAGE]),
    "linear": (nn.Linear(128, 256), [ROWS]),
    "many weights": (nn.Linear(1024, 1024), [(1, 1024)]),
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Work]:
    """The work of each partition, as the partitioner finds it while a model is lowered."""
    works: list[Work] = []
    groups = NpuPartitioner.groups

    def noted(partitioner: NpuPartitioner, graph: torch.fx.Graph) -> Any:
        found, reasons = groups(partitioner, graph)
        works.extend(map(partitioner.work, found))
        return found, reasons

    monkeypatch.setattr(NpuPartitioner, "groups", noted)
    return works


def lowered(model: nn.Module, inputs: Sequence[torch.Tensor], **options: Any) -> Any:
    quantized = delegraph.quantize(model.eval(), [tuple(inputs)], backends=["npu"])
    return delegraph.lower(quantized, backends=[("npu", {"take_all": True, **options})])


@pytest.mark.parametrize("device", ["ethos-u55-128", "ethos-u85-512", "array-32x32"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_npu_takes_about_what_its_machine_counts(family: str, device: str, told: list[Work]) -> None:
    """Transfers are said to run beside the commands, those of a single layer come first: at most twice as long."""
    model, shapes = FAMILIES[family]
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in shapes]
    program, tracer = bytes(lowered(model, inputs, device=device)), delegraph.EventTracer()
    delegraph.load(program, event_tracer=tracer)(*[value.numpy() for value in inputs])
    events = [event for block in tracer.blocks for event in block.profile_events]
    counted = sum(event_counters(event.metadata).get("cycles", 0) for event in events)
    (work,) = told
    assert 0.5 < max(work.commands, work.weights) / counted < 1.1


# ---- the host -------------------------------------------------------------------------------------------------------


class Counted:
    """Elements that count how often they are read and written."""

    touched = 0

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values

    def __getitem__(self, index: Any) -> Any:
        type(self).touched += 1
        return self.values[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        type(self).touched += 1
        self.values[index] = value


SMALL = (1, 4, 8, 8)


def loops(kernel: Callable[..., None], *shapes: tuple[int, ...]) -> int:
    """How many elements a kernel of plain loops touches; the last shape is that of its result."""
    Counted.touched = 0
    kernel(*(Counted(np.zeros(shape)) for shape in shapes))
    return Counted.touched


def places(x: Counted) -> itertools.product[tuple[int, ...]]:
    return itertools.product(*map(range, x.values.shape))


def each(*operands: Counted) -> None:
    *inputs, out = operands
    for place in places(out):
        out[place] = sum(x[place] for x in inputs)


def sums(x: Counted, out: Counted) -> None:
    for place in places(out):
        out[place] = sum(x[(*place, *rest)] for rest in np.ndindex(*x.values.shape[len(place) :]))


def windows(x: Counted, out: Counted) -> None:
    size = x.values.shape[2] // out.values.shape[2]
    for n, c, h, w in places(out):
        out[n, c, h, w] = max(x[n, c, h * size + i, w * size + j] for i in range(size) for j in range(size))


def mixed(x: Counted, out: Counted) -> None:
    for n, c, h, w in places(out):
        out[n, c, h, w] = sum(x[n, c, (h // 2 + i) % 8, (w // 2 + j) % 8] for i in (0, 1) for j in (0, 1))


def part(x: Counted, out: Counted) -> None:
    for place in places(out):
        out[place] = x[place]


def exponentials(x: Counted, out: Counted) -> None:
    for row in range(len(x.values)):
        columns = range(x.values.shape[1])
        largest = max(x[row, column] for column in columns)
        for column in columns:
            out[row, column] = np.exp(x[row, column] - largest)
        total = sum(out[row, column] for column in columns)
        for column in columns:
            out[row, column] = out[row, column] / total


HOST: dict[str, tuple[Callable[..., Any], Callable[..., None], Sequence[tuple[int, ...]], float]] = {
    "add": (lambda a, b: a + b, each, [SMALL, SMALL, SMALL], 1),
    "a table": (F.gelu, each, [SMALL, SMALL], 1),
    "mean": (lambda x: x.mean((2, 3)), sums, [SMALL, (1, 4)], 1),
    "adaptive average": (lambda x: F.adaptive_avg_pool2d(x, 1), windows, [SMALL, (1, 4, 1, 1)], 1),
    "adaptive windows": (lambda x: F.adaptive_avg_pool2d(x, 2), windows, [SMALL, (1, 4, 2, 2)], 1),
    "max pool": (lambda x: F.max_pool2d(x, 2), windows, [SMALL, (1, 4, 4, 4)], 1),
    "amax": (lambda x: x.amax((2, 3)), sums, [SMALL, (1, 4)], 1),
    "slice": (lambda x: x[:, :, :4], part, [SMALL, (1, 4, 4, 8)], 1),
    "nearest": (
        lambda x: F.interpolate(x, scale_factor=2.0), lambda _, out: each(out, out), [SMALL, (1, 4, 16, 16)], 1
    ),
    "bilinear": (
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), mixed, [SMALL, (1, 4, 16, 16)], 1
    ),
    # the NPU's parts, of which the host could pass over some at once; it computes exponentials by a table or a series
    "softmax": (lambda x: x.softmax(-1), exponentials, [(8, 32), (8, 32)], 3),
}  # fmt: skip


@pytest.mark.parametrize("family", HOST)
def test_the_host_takes_what_it_reads_and_writes(family: str, told: list[Work]) -> None:
    """What only moves is taken by the NPU behind what computes: a table, which the host touches twice an element."""
    function, kernel, shapes, most = HOST[family]
    inputs = [torch.rand(shape) for shape in shapes[:-1]]
    behind = family in ("max pool", "amax", "slice", "nearest", "bilinear")
    lowered(Of(lambda *x: function(torch.sigmoid(x[0])) if behind else function(*x)), inputs)
    counted = loops(kernel, *shapes) + 2 * inputs[0].numel() * behind
    touched = told[0].kernels / HOST_ACCESS
    assert 1 <= touched / counted <= most


def test_the_host_multiplies_and_writes(told: list[Work]) -> None:
    lowered(nn.Conv2d(8, 16, 3), [torch.rand(1, 8, 10, 10)])
    (work,) = told
    written, products = 16 * 8 * 8, 8 * 3 * 3
    assert work.kernels == written * (products / HOST_MULTIPLY_ADDS + HOST_ACCESS)


@pytest.mark.parametrize("shape", [(1, 64, 32, 32), (1, 16, 64, 64)])
def test_an_average_of_all_pays(shape: tuple[int, ...]) -> None:
    """By its results alone it was 512 cycles on the host, which reads 65536 values for them."""
    model = delegraph.quantize(nn.AdaptiveAvgPool2d(1), [(torch.randn(shape),)], backends=["npu"])
    report = delegraph.lower(model, backends=["npu"]).report.methods["forward"]
    assert [delegate.backend for delegate in report.delegates] == ["NpuBackend"]
