"""Which nodes the partitioner leaves, and why: a row for each reason. Graphs are quantized by hand here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed
import torch.nn.functional as F
from backends.npu.tests.compiled import Of, exported, weight
from torch import nn
from torch.export import ExportedProgram

import delegraph
from delegraph import ExecutorchBackendConfig, LoweringConfig
from delegraph.errors import InvalidArgument
from delegraph_npu.aot.calls import operator_name
from delegraph_npu.aot.partitioner import npu_partitioner, reason_to_leave
from delegraph_npu.device import device_text
from delegraph_partitioners import CapabilityBasedPartitioner

quantized = torch.ops.quantized_decomposed


def q(x: torch.Tensor, scale: float = 0.05, zero: int = 3, dtype: torch.dtype = torch.int8) -> torch.Tensor:
    bounds = torch.iinfo(dtype)
    integers = quantized.quantize_per_tensor.default(x, scale, zero, bounds.min, bounds.max, dtype)
    real: torch.Tensor = quantized.dequantize_per_tensor.default(integers, scale, zero, bounds.min, bounds.max, dtype)
    return real


def q16(x: torch.Tensor, zero: int = 0) -> torch.Tensor:
    return q(x, 0.01, zero, torch.int16)


def twice(x: torch.Tensor) -> torch.Tensor:
    return q(x) + q(x, 0.1)


def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return q(torch.tanh(x)), q(torch.cumsum(x, 1))


IMAGE = (1, 4, 8, 8)

REASONS: dict[str, tuple[Callable[..., Any], Sequence[tuple[int, ...]], str, str]] = {
    "an operator that it has not": (lambda x: q(torch.cumsum(q(x), 1)), [IMAGE], "cumsum", "the NPU has no cumsum"),
    "a float operand": (lambda x: q(torch.tanh(x)), [IMAGE], "tanh", "its operand inputs_0 is not quantized"),
    "a float result": (lambda x: torch.tanh(q(x)), [IMAGE], "tanh", "its result is not quantized"),
    "two grids": (
        lambda x: twice(torch.tanh(q(x))),
        [IMAGE],
        "tanh",
        "its result is quantized in several ways, or in one that is not known ahead of time",
    ),
    "an operand that others read": (
        lambda x: both(q(x)),
        [IMAGE],
        "tanh",
        "its operand dequantize_per_tensor is dequantized for cumsum too, which is left",
    ),
    "uint8": (
        lambda x: q(torch.tanh(q(x, 0.1, 128, torch.uint8))),
        [IMAGE],
        "tanh",
        "integers of torch.uint8: here the NPU has torch.int16 and torch.int8",
    ),
    "int16 in a layer": (
        lambda x: q16(F.conv2d(q16(x), weight(4, 4, 3, 3))),
        [IMAGE],
        "conv2d",
        "integers of torch.int16: here the NPU has torch.int8",
    ),
    "int16 with a zero point": (
        lambda x: q16(torch.tanh(q16(x, 5))),
        [IMAGE],
        "tanh",
        "int16 with zero point 5: the NPU's are about zero",
    ),
    "int16 that jumps": (
        lambda x: q16(torch.floor(q16(x))),
        [IMAGE],
        "floor",
        "integers of torch.int16: here the NPU has torch.int8; an int16 table has lines between each 128th value, and"
        " floor jumps there",
    ),
    "int16 with a pole": (
        lambda x: q16(torch.rsqrt(q16(x))),
        [IMAGE],
        "rsqrt",
        "integers of torch.int16: here the NPU has torch.int8; an int16 table has lines between each 128th value, and"
        " rsqrt has a pole at 0",
    ),
    "int16 with a pole elsewhere": (
        lambda x: q16(torch.log1p(q16(x))),
        [IMAGE],
        "log1p",
        "an int16 table has lines between each 128th value, and log1p has a pole at -1",
    ),
    "a negative power of int16": (
        lambda x: q16(q16(x) ** -1.5),
        [IMAGE],
        "pow",
        "an int16 table has lines between each 128th value, and pow has a pole at 0",
    ),
    "two widths": (
        lambda x: q(torch.tanh(q16(x))),
        [IMAGE],
        "tanh",
        "integers of torch.int16 and torch.int8: the NPU's operators have one width",
    ),
    "five dims": (
        lambda x: q(torch.tanh(q(x))),
        [(1, 2, 2, 2, 2)],
        "tanh",
        "a tensor of 5 dims: the NPU's have up to four",
    ),
    "no elements": (lambda x: q(torch.tanh(q(x))), [(0, 3)], "tanh", "a tensor without elements"),
    "no dims": (lambda x: q(torch.sum(q(x))), [()], "sum", "a tensor without dims: there is nothing to reduce"),
    "a computed weight": (
        lambda x, w: q(F.conv2d(q(x), q(w))),
        [IMAGE, (4, 4, 3, 3)],
        "conv2d",
        "its weight is computed: the NPU's are compressed ahead of time",
    ),
    "a large kernel": (
        lambda x: q(F.conv2d(q(x), weight(1, 1, 1, 65))),
        [(1, 1, 1, 70)],
        "conv2d",
        "a kernel of (1, 65): the NPU's have up to 64 rows and columns",
    ),
    "three dims of places": (
        lambda x: q(F.conv3d(q(x), weight(4, 4, 1, 1, 1))),
        [(4, 2, 2, 2)],
        "conv3d",
        "the NPU has no conv3d",
    ),
    "much padding": (
        lambda x: q(F.conv2d(q(x), weight(4, 4, 1, 1), padding=1)),
        [IMAGE],
        "conv2d",
        "a padding of as many rows as its window has",
    ),
    "gaps": (
        lambda x: q(F.conv_transpose2d(q(x), weight(4, 4, 2, 2, axis=1), stride=3)),
        [IMAGE],
        "conv_transpose2d",
        "a transposed convolution that leaves rows which no weight reaches",
    ),
    "alpha": (lambda a, b: q(torch.add(q(a), q(b), alpha=2)), [IMAGE] * 2, "add", "alpha is 2: the NPU adds"),
    "infinity": (
        lambda a: q(q(a) + float("inf")),
        [IMAGE],
        "add",
        "of inf: the NPU computes tensors, with finite numbers",
    ),
    "times 0": (lambda a: q(q(a) * 0.0), [IMAGE], "mul", "times 0: there is nothing to compute"),
    "a divisor": (lambda a, b: q(q(a) / q(b)), [IMAGE] * 2, "div", "division by a tensor: the NPU divides by a number"),
    "divided by 0": (lambda a: q(q(a) / 0.0), [IMAGE], "div", "division by 0.0"),
    "a whole quotient": (
        lambda a: q(torch.div(q(a), 2.0, rounding_mode="floor")),
        [IMAGE],
        "div",
        "a quotient that is rounded (floor): the NPU's are real",
    ),
    "a factor of a bias": (
        lambda x: q(torch.addmm(torch.ones(4), q(x), weight(6, 4, axis=1), beta=0.5)),
        [(3, 6)],
        "addmm",
        "beta is 0.5, alpha is 1: the NPU adds a bias to products without factors",
    ),
    "a bias of rows": (
        lambda x, b: q(torch.addmm(b, q(x), weight(6, 4, axis=1))),
        [(3, 6), (3, 4)],
        "addmm",
        "a bias of (3, 4): the NPU's are one for each column",
    ),
    "a computed bias": (
        lambda x, b: q(torch.addmm(torch.tanh(b), q(x), weight(6, 4, axis=1))),
        [(3, 6), (4,)],
        "addmm",
        "its bias is computed: the NPU's are constants",
    ),
    "batches that differ": (
        lambda a, b: q(q(a) @ q(b)),
        [(2, 3, 4), (4, 5)],
        "matmul",
        "matrices of (2, 3, 4) and (4, 5): the NPU's batches are equal",
    ),
    "ceil_mode": (
        lambda x: q(F.max_pool2d(q(x), 3, 2, ceil_mode=True)),
        [IMAGE],
        "max_pool2d",
        "a last window that is not full (ceil_mode)",
    ),
    "a dilated pool": (
        lambda x: q(F.max_pool2d(q(x), 2, 1, dilation=2)),
        [IMAGE],
        "max_pool2d",
        "a dilated pool: the NPU's windows of pools have no gaps",
    ),
    "uneven windows": (
        lambda x: q(F.adaptive_avg_pool2d(q(x), 3)),
        [IMAGE],
        "adaptive_avg_pool2d",
        "windows of different sizes: 8 is not a multiple of what it becomes",
    ),
    "limits that are tensors": (
        lambda x, y: q(torch.clamp(q(x), q(y))),
        [IMAGE] * 2,
        "clamp",
        "its limits are tensors, or not numbers",
    ),
    "rows that float32 rounds": (
        lambda x: q(F.interpolate(q(x), size=(14, 46))),
        [(1, 2, 14, 14)],
        "upsample_nearest2d",
        "from 14 to 46: torch rounds which rows it reads, and the NPU's steps are exact",
    ),
    "reflection": (
        lambda x: q(F.pad(q(x), (1, 1, 1, 1), mode="reflect")),
        [IMAGE],
        "pad",
        "padding by reflect: the NPU's is a constant",
    ),
    "negative padding": (lambda x: q(F.pad(q(x), (-1, 0))), [IMAGE], "pad", "padding that cuts off"),
    "two numbers that make one": (
        lambda x, y: q(torch.atan2(q(x), q(y))),
        [IMAGE] * 2,
        "atan2",
        "the NPU has no atan2",
    ),
}


def said(program: ExportedProgram, operator: str) -> str:
    """What is said of the first call of an operator, before edge lowering takes it apart."""
    found = next(node for node in program.graph.nodes if operator_name(node) == operator)
    return reason_to_leave(found) or "taken"


@pytest.mark.parametrize("case", REASONS)
def test_a_node_is_left_for_a_reason(case: str) -> None:
    function, shapes, operator, reason = REASONS[case]
    program = exported(function, *(torch.randn(shape) for shape in shapes))
    assert said(program, operator).startswith(reason)


def test_a_function_of_int16_whose_pole_is_beyond_its_grid_is_taken() -> None:
    program = exported(lambda x: q(torch.log1p(q(x, 2e-5, 0, torch.int16)), 2e-5, 0, torch.int16), torch.randn(3, 4))
    assert said(program, "log1p") == "taken"


def test_jumps_are_exact_with_int16() -> None:
    """Neither annotated nor taken: as the table of int16 they were off by up to a step of the function."""
    x = torch.linspace(-3.9, 3.9, 4001)[None]
    model = Of(lambda x: torch.floor(torch.tanh(x) * 4) + torch.sign(x))
    quantized_model = delegraph.quantize(model, [(x,)], recipe="int16x8", backends=["npu"])
    lowered = delegraph.lower(quantized_model, backends=[("npu", {"take_all": True})])
    assert lowered.report.methods["forward"].delegates
    got, wanted = delegraph.load(bytes(lowered))(x.numpy()), quantized_model.program.module()(x).detach()
    # 4 tanh(x), off by a few steps of int16, is seldom that near a whole number
    assert (torch.from_numpy(got) - wanted).abs().gt(0.01).float().mean() < 2e-3


class OfConstants(nn.Module):
    """A quantized weight that is permuted in float and quantized again, beside something of the run."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-100, 100, (16, 32)).to(torch.int8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        real = quantized.dequantize_per_tensor.default(self.weight, 0.05, 3, -128, 127, torch.int8)
        return q(real.permute(1, 0)), q(torch.tanh(q(x)))


def test_what_reads_nothing_of_the_run_is_left() -> None:
    model, x = OfConstants(), torch.randn(IMAGE)
    lowered = delegraph.lower(model, (x,), backends=[("npu", {"take_all": True})])
    report = lowered.report.methods["forward"]
    assert [delegate.operators.get("aten::tanh") for delegate in report.delegates] == [1]
    said_of = {entry.operator: entry.reasons["npu"] for entry in report.leftovers}
    assert said_of["aten::permute_copy"] == "reads nothing of the run: what it gives is there ahead of time"
    for got, wanted in zip(delegraph.load(bytes(lowered))(x.numpy()), model(x), strict=True):
        torch.testing.assert_close(torch.from_numpy(got), wanted, rtol=0, atol=0.051)  # a step


def test_a_dynamic_shape_is_left() -> None:
    batch = torch.export.Dim("batch", max=8)
    shapes = ((({0: batch},)),)
    program = exported(lambda x: q(torch.tanh(q(x))), torch.randn(3, 4), dynamic_shapes=shapes)
    expected = "a dynamic shape: addresses are fixed when the NPU's commands are made"
    assert said(program, "tanh") == expected


def test_quantize_in_front_and_dequantize_behind_are_left() -> None:
    program = exported(lambda x: q(torch.tanh(q(x))), torch.randn(IMAGE))
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    reasons = [reason_to_leave(node) for node in calls]
    assert reasons[0] == "quantizes what is float: stays in front of the NPU"
    assert reasons[1:-1] == [None] * (len(calls) - 2)
    assert reasons[-1] == "dequantizes what leaves the NPU's integers: stays behind them"


def lower(model: nn.Module, inputs: Sequence[torch.Tensor], **options: Any) -> Any:
    lowered = delegraph.lower(model.eval(), tuple(inputs), backends=[("npu", options)])
    return lowered.report.methods["forward"]


def test_a_partition_that_would_not_pay_is_left() -> None:
    small = Of(lambda x: q(torch.tanh(q(x))))
    reasons = [entry.reasons["npu"] for entry in lower(small, [torch.randn(2, 2)]).leftovers]
    assert any(r.startswith("its partition would take about ") and "cycles on the NPU, and " in r for r in reasons)
    images, kernels = torch.randn(1, 4, 32, 32), weight(16, 4, 3, 3)
    large = lower(Of(lambda x: q(F.conv2d(q(x), weight(16, 4, 3, 3)))), [images])
    assert len(kernels) == 16 and any(delegate.backend == "NpuBackend" for delegate in large.delegates)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimize": "speed"}, "npu: optimize is 'speed'; it is one of performance, size"),
        ({"rounding": "up"}, "npu: rounding is 'up'; it is one of single, double"),
        ({"device": "ethos-u55"}, "there is no device 'ethos-u55'"),
    ],
)
def test_an_option_that_there_is_not_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        npu_partitioner(**options)  # type: ignore[arg-type]


def test_what_a_partitioner_of_the_users_takes_and_the_npu_does_not_is_left() -> None:
    everything = CapabilityBasedPartitioner("NpuBackend", lambda node: None)
    lowered = delegraph.lower(Of(lambda x: x + 1), (torch.randn(3),), backends=[everything])
    (refusal,) = lowered.report.refusals
    assert "NpuBackend cannot compile aten.add.Tensor: its result is not quantized" in str(refusal)


def test_no_path_of_the_author_is_in_the_file(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(device_text("ethos-u55-256")[0])
    model, image = Of(lambda x: q(torch.tanh(q(x)))), torch.randn(IMAGE)
    lowered = delegraph.lower(model, (image,), backends=[("npu", {"device": str(own), "take_all": True})])
    assert [one.backend for one in lowered.report.methods["forward"].delegates] == ["NpuBackend"]
    assert str(tmp_path).encode() not in bytes(lowered)
    assert b"ethos-u55-256" in bytes(lowered)


@pytest.mark.parametrize("constants", ["*bias", "*"])
def test_a_layer_with_a_constant_in_a_file_of_its_own_is_left(constants: str, tmp_path: Path) -> None:
    layer, x = Of(lambda held, x: q(F.linear(q(x), weight(8, 8), held.bias)), held=nn.Linear(8, 8)), torch.randn(2, 8)
    expected = layer(x)  # and the weight is a constant from here on
    config = LoweringConfig(executorch=ExecutorchBackendConfig(external_constants={constants: "own"}))
    lowered = delegraph.lower(layer, (x,), backends=[("npu", {"take_all": True})], config=config)
    report = lowered.report.methods["forward"]
    assert not report.delegates and all(entry.reasons["npu"] for entry in report.leftovers)
    lowered.save(tmp_path / "layer.pte")
    loaded = delegraph.load(tmp_path / "layer.pte", data_path=tmp_path / "own.ptd")
    assert torch.equal(torch.from_numpy(loaded(x.numpy())), expected)


FAR_APART: dict[str, Callable[..., torch.Tensor]] = {
    "copy": lambda x: q(q(x, 1.0), 1e-9, 0),
    "clamp": lambda x: q(F.relu(q(x, 1.0)), 1e-9, 0),
    "sum of two": lambda x: q(q(x, 1.0) + q(x, 1.0), 1e-15, 0),
    "product": lambda x: q(q(x, 1e5) * q(x, 1e5), 1.0, 0),
    "number": lambda x: q(q(x, 1.0) * 1e12, 1.0, 0),
    "matmul": lambda x: q(q(x, 1e5) @ q(x, 1e5), 1.0, 0),
    "convolution": lambda x: q(F.conv2d(q(x, 1e8), weight(4, 4, 3, 3)), 1e-6, 0),
    "linear": lambda x: q(F.linear(q(x, 1e8), weight(4, 8)), 1e-6, 0),
    "sum": lambda x: q(q(x, 1.0).sum((2, 3)), 1e-10, 0),
    "pool": lambda x: q(F.avg_pool2d(q(x, 1.0), 2), 1e-10, 0),
    "resize": lambda x: q(F.interpolate(q(x, 1.0), scale_factor=2.0), 1e-10, 0),
    "softmax": lambda x: q(q(x).softmax(1), 1e-15, 0),
}


@pytest.mark.parametrize("case", FAR_APART)
def test_what_cannot_be_rescaled_is_left(case: str) -> None:
    """It was taken, and then `preprocess` failed."""
    model, x = Of(FAR_APART[case]), torch.randn(1, 4, 8, 8)
    model(x)
    report = lower(model, [x], take_all=True)
    reasons = [entry.reasons["npu"] for entry in report.leftovers]
    assert any("its scales are too far apart: scale" in reason for reason in reasons), reasons


LIMITS: dict[str, Callable[..., torch.Tensor]] = {
    "crossing": lambda x: x.clamp(0.7, 0.3),
    "again": lambda x: x.clamp(0.5, 0.9).clamp(0.1, 0.3),
    "behind a sum": lambda x: F.relu(x + x).clamp(max=-0.5),
    "crossing behind a sum": lambda x: (x + x).clamp(0.7, 0.3),
}


@pytest.mark.parametrize("case", LIMITS)
def test_of_limits_the_last_and_the_upper_count(case: str) -> None:
    model, x = Of(lambda x: q(LIMITS[case](q(x)))), torch.randn(2, 8)
    lowered = delegraph.lower(model, (x,), backends=[("npu", {"take_all": True})])
    assert lowered.report.methods["forward"].delegates
    assert torch.equal(torch.from_numpy(delegraph.load(bytes(lowered))(x.numpy())), model(x))


TOO_LARGE: dict[str, Callable[..., torch.Tensor]] = {
    "largest": lambda x: q(q(x).amax((1, 2, 3))),
    "mean": lambda x: q(q(x).mean((1, 2, 3))),
    "matmul": lambda x: q(q(x) @ q(q(x).transpose(-1, -2))),
    "softmax": lambda x: q(q(x).softmax(-1)),
    "layer": lambda x: q(F.linear(q(x), weight(4, 2048))),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_what_does_not_fit_the_sram_is_left(case: str, tmp_path: Path) -> None:
    """It was taken, and then `preprocess` failed. What is beside it is on the NPU."""

    def model(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return TOO_LARGE[case](x), q(torch.tanh(q(y)))

    text = device_text("ethos-u55-128")[0].replace('nbytes = "2 MiB"', 'nbytes = "3 KiB"')
    (tmp_path / "small.toml").write_text(text)
    inputs = torch.randn(1, 2, 2, 2048), torch.randn(2, 8)
    Of(model)(*inputs)
    report = lower(Of(model), inputs, take_all=True, device=str(tmp_path / "small.toml"))
    reasons = [entry.reasons["npu"] for entry in report.leftovers]
    assert any("does not fit into" in reason and "bytes of SRAM" in reason for reason in reasons), reasons
    (delegate,) = report.delegates
    assert "aten::tanh" in delegate.operators


def test_an_operand_is_shared_within_a_partition_alone() -> None:
    def within(x: torch.Tensor) -> torch.Tensor:
        y = q(x)
        return q(q(torch.tanh(y)) * y)

    def across(x: torch.Tensor) -> torch.Tensor:
        y = q(x)
        return q(q(torch.cumsum(q(torch.tanh(y)), 1)) * y)

    (delegate,) = lower(Of(within), [torch.randn(IMAGE)], take_all=True).delegates
    assert {"aten::tanh", "aten::mul.Tensor"} <= set(delegate.operators)
    report = lower(Of(across), [torch.randn(IMAGE)], take_all=True)
    assert not report.delegates
    reasons = {entry.operator: entry.reasons["npu"] for entry in report.leftovers}
    assert reasons["aten::mul.Tensor"].endswith("too, not on the NPU with it")
