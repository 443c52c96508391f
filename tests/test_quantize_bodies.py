"""Layers in bodies of control flow: every recipe reaches them, and the report has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim
from torch.nn.utils.parametrizations import weight_norm

import delegraph
from delegraph.aot.quantize.measurement.measure import sqnr

pytestmark = [pytest.mark.models, pytest.mark.long]

Batch = tuple[torch.Tensor, ...]

WEIGHTED = {"aten::linear", "aten::conv1d", "aten::conv2d", "aten::embedding"}
"""Operators with weights."""


class Chosen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: self.a(x) * 2, lambda x: self.b(x).relu(), (x,))


class Looped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> Any:
        step = lambda i, x: (i + 1, self.a(x).tanh())  # noqa: E731
        return while_loop(lambda i, x: i < 2, step, (torch.tensor(0), x))[1]


class Mapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> Any:
        return map_rows(lambda row: self.a(row).relu(), x)


class Scanned(nn.Module):
    """With a layer outside, too."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.first = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> Any:
        def step(state: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            new = (self.a(row) + state).tanh()
            return new, new.clone()

        return scan(step, torch.zeros(64), self.first(x))[1]


MODELS = [Chosen, Looped, Mapped, Scanned]

DECIBELS = {"int8_weight_only": 40, "int4_weight_only": 16, "int8": 24, "int8_dynamic": 34}
KERNELS = {
    "int8": (b"QGemm",),
    "int8_weight_only": (b"DequantizeLinear", b"MatMulNBits"),  # of four rows, and of one, as bodies get them
    "int4_weight_only": (b"MatMulNBits",),
}
"""Of onnxruntime's, what computes the layers: one of these."""


def made(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval().requires_grad_(False)  # torch warns of what it scans otherwise


def data() -> list[Batch]:
    """Sums above 0 and below, in turns."""
    values = [torch.randn(4, 64, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]
    return [(value * sign + sign,) for value in values for sign in (1, -1)]


def off(
    model: nn.Module, quantized: delegraph.QuantizedModel, batch: Batch, backends: list[str]
) -> tuple[float, bytes]:
    """How far what is lowered is off, and its file."""
    lowered = bytes(delegraph.lower(quantized, backends=backends))
    with torch.no_grad():
        wanted = model(*batch)
    got = delegraph.load(lowered)(*(value.numpy() for value in batch))
    return sqnr((wanted, torch.from_numpy(np.array(got)))), lowered


@pytest.mark.parametrize("backends", [[], ["cpu"]])
@pytest.mark.parametrize("recipe", DECIBELS)
@pytest.mark.parametrize("kind", MODELS)
def test_layers_in_bodies_are_quantized(kind: type[nn.Module], recipe: str, backends: list[str]) -> None:
    model = made(kind)
    quantized = delegraph.quantize(model, data(), recipe=recipe, backends=backends)
    done = quantized.report.methods["forward"]
    assert {"a"} <= {layer.module for layer in done.layers} and not WEIGHTED & {
        left.operator for left in done.left_float
    }
    assert done.nbytes < done.float_nbytes * 0.32  # a quarter, scales, and zero points of 8 bytes
    for batch in data()[:2]:
        decibels, lowered = off(model, quantized, batch, backends)
        assert decibels > DECIBELS[recipe]
    assert done.output_sqnr is not None and done.output_sqnr > DECIBELS[recipe]
    assert all(layer.sqnr is not None and layer.sqnr_in_all is not None for layer in done.layers if layer.module == "a")
    kernels = KERNELS.get(recipe, ())
    assert not backends or not kernels or any(kernel in lowered for kernel in kernels)


@pytest.mark.parametrize("backend", ["npu", "dsp", "openvino"])
@pytest.mark.parametrize("kind", [Chosen, Scanned])
def test_backends_run_what_they_take_of_bodies(kind: type[nn.Module], backend: str) -> None:
    model = made(kind)
    for recipe in ("int8", "int4_weight_only"):
        quantized = delegraph.quantize(model, data(), recipe=recipe, backends=[backend])
        assert off(model, quantized, data()[0], [backend])[0] > DECIBELS[recipe]


def test_an_npu_does_not_take_layers_whose_weights_it_cannot_compress() -> None:
    quantized = delegraph.quantize(made(Chosen), data(), backends=["npu"])
    lowered = delegraph.lower(quantized, backends=["npu"])
    assert "its weight is given to a body of control flow" in str(lowered.report)


def test_a_report_has_the_layers_outside_of_bodies_too() -> None:
    for recipe in ("int8", "int8_dynamic", "int8_weight_only"):
        layers = delegraph.quantize(made(Scanned), data(), recipe=recipe).report.methods["forward"].layers
        assert {"a", "first"} <= {layer.module for layer in layers}
        assert len({layer.name for layer in layers}) == len(layers)


class Nested(nn.Module):
    """Bodies in bodies, entered twice, with an embedding, batch norm, a computed weight, a matrix of its own, and a
    buffer that is written outside."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.computed = nn.Linear(64, 64), weight_norm(nn.Linear(64, 64))
        self.table, self.conv, self.norm = nn.Embedding(100, 64), nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.norm.running_mean.normal_()  # type: ignore[union-attr]
        self.norm.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
        self.matrix, self.count = torch.randn(64, 64) / 8, nn.Buffer(torch.zeros(64))

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        def image(x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.conv(x.view(-1, 1, 8, 8))).mean(1).flatten(1)  # type: ignore[no-any-return]

        def yes(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            return self.a(x) @ self.matrix + self.count + self.table(index)

        def no(x: torch.Tensor, index: torch.Tensor) -> Any:
            return torch.cond(x.mean() > 0, lambda x: self.computed(x) * 2, lambda x: image(x) + self.a(x), (x,))

        y = torch.cond(x.sum() > 0, yes, no, (x, index))
        y = y + torch.cond(y.sum() > 0, yes, no, (y, index)) + self.a(x)
        self.count.add_(1)
        return y


@pytest.mark.parametrize(
    ("recipe", "decibels", "backends"),
    [("int8_weight_only", 40, []), ("int8_dynamic", 36, ["cpu"]), ("int8", 20, []), ("int8", 20, ["cpu"])],
)
def test_nested_bodies(recipe: str, decibels: int, backends: list[str]) -> None:
    model, index = made(Nested), torch.arange(4)
    batches = [(x, index) for (x,) in data()]
    quantized = delegraph.quantize(model, batches, recipe=recipe, backends=backends)
    for batch in batches:
        model.get_buffer("count").zero_()  # as each run of a new program begins
        assert off(model, quantized, batch, backends)[0] > decibels
    done = quantized.report.methods["forward"]
    convolutions = [] if (recipe, backends) == ("int8_dynamic", ["cpu"]) else ["conv"]  # which onnxruntime has not
    assert {"a", "computed", "table", *convolutions} <= {layer.module for layer in done.layers}
    assert sum(left.operator in WEIGHTED for left in done.left_float) == (0 if convolutions else 2)
    assert done.output_sqnr is not None and done.output_sqnr > decibels
    constants = [name for name in quantized.program.state_dict if name.startswith("table")]
    assert sorted(constants) == ["table.weight_int8", "table.weight_int8_scales"]


def test_a_weight_that_bodies_share_is_stored_once() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> Any:
            x = self.a(x)
            return torch.cond(x.sum() > 0, lambda x: self.a(x).relu(), lambda x: self.a(x).tanh(), (x,))

    for recipe, nbytes in (("int8_weight_only", 4608), ("int4_weight_only", 2816)):
        quantized = delegraph.quantize(made(Shared), data(), recipe=recipe)
        assert sum(tensor.nbytes for tensor in quantized.program.state_dict.values()) == nbytes
        assert quantized.report.methods["forward"].nbytes == nbytes


@pytest.mark.parametrize("recipe", ["int8", "int16x8", "int8_dynamic"])
def test_of_a_branch_that_no_batch_takes_weights_are_stored(recipe: str) -> None:
    model, (taken, other, *_) = made(Chosen), data()
    quantized = delegraph.quantize(model, [taken], recipe=recipe)
    done = quantized.report.methods["forward"]
    losses = {layer.module: layer.sqnr for layer in done.layers}
    assert losses["b"] is None and losses["a"] is not None
    assert done.nbytes < done.float_nbytes * 0.32
    assert off(model, quantized, other, [])[0] > 38


@pytest.mark.parametrize("rule", ["a", nn.Linear])
def test_rules_reach_into_bodies(rule: Any) -> None:
    for recipe in ("int8", "int8_weight_only"):
        quantized = delegraph.quantize(made(Chosen), data(), recipe={rule: "float", "default": recipe})
        modules = {layer.module for layer in quantized.report.methods["forward"].layers}
        assert modules == ({"b"} if rule == "a" else set())
        assert "a.weight" in quantized.program.state_dict


def test_the_layers_that_lose_most_are_found_in_bodies() -> None:
    quantized = delegraph.quantize(made(Looped), data(), keep_float=1)
    assert quantized.report.methods["forward"].kept_float == ("while_loop_body_graph_0_linear_default",)
    assert "a.weight" in quantized.program.state_dict


def test_bodies_of_dynamic_sizes() -> None:
    model, rows = made(Chosen), Dim("rows", min=1, max=9)
    for recipe in ("int8", "int4_weight_only"):
        quantized = delegraph.quantize(model, data(), recipe=recipe, dynamic_shapes=({0: rows},))
        for batch in data()[:2]:
            assert off(model, quantized, (batch[0][:3],), [])[0] > DECIBELS[recipe]


def test_named_quantizers_annotate_in_bodies() -> None:
    model = made(Chosen)
    quantized = delegraph.quantize(model, data(), quantizers=["cpu"])
    decibels, lowered = off(model, quantized, data()[0], ["cpu"])
    assert decibels > 35 and b"QGemm" in lowered


# ---- what stays float, and says so ------------------------------------------------------------------


class Stacked(nn.Module):
    """Weights of layers in one tensor, scanned."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(3, 64, 64) / 8)

    def forward(self, x: torch.Tensor) -> Any:
        def step(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = F.linear(x, weight).tanh()
            return y, y.clone()

        return scan(step, x, self.weights)[0]


class Written(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.randn(64, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, self.weight)
        self.weight.mul_(0.5)
        return y


@pytest.mark.parametrize(
    ("kind", "recipe", "operator", "reason"),
    [
        (Stacked, "int8_weight_only", "aten::linear", "a body of control flow is given its weight"),
        (Stacked, "int8", "aten::linear", "a body of control flow is given its weight"),
        (Written, "int8", "aten::linear", "may be another one in each run"),
        (lambda: nn.LSTM(64, 64), "int8", "aten::lstm.input", "no quantizer annotates it"),
    ],
)
def test_layers_that_are_left_in_float_are_named(
    kind: Callable[[], nn.Module], recipe: str, operator: str, reason: str
) -> None:
    report = delegraph.quantize(kind().eval().requires_grad_(False), data(), recipe=recipe).report
    (left,) = report.methods["forward"].left_float
    assert left.operator == operator and reason in left.reason
    (written,) = report.to_json()["methods"]["forward"]["left_float"]
    assert written == {"name": left.name, "operator": operator, "module": left.module, "reason": left.reason}
    assert "layers left in float" in str(report) and reason in str(report)


def test_a_layer_that_is_meant_to_be_float_is_not_named() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).eval()
    for how in ({"recipe": {"0": "float", "default": "int8"}}, {"recipe": "float"}, {"keep_float": 1}):
        report = delegraph.quantize(model, data(), **how).report  # type: ignore[arg-type]
        assert not report.methods["forward"].left_float and "left in float" not in str(report)


def test_weights_that_are_values_are_no_layers() -> None:
    class Values(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, x)

    assert not delegraph.quantize(Values(), data()).report.methods["forward"].left_float


def test_training_leaves_bodies_in_float_but_for_their_tables() -> None:
    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.table, self.last = nn.Linear(64, 64), nn.Embedding(100, 64), nn.Linear(64, 8)

        def forward(self, x: torch.Tensor, index: torch.Tensor) -> Any:
            chosen = torch.cond(x.sum() > 0, lambda x, i: self.a(x), lambda x, i: x + self.table(i), (x, index))
            return self.last(chosen)

    torch.manual_seed(0)
    x, index = data()[0][0], torch.arange(4)
    prepared = delegraph.prepare_qat(Trained(), (x, index))
    prepared.train()
    prepared(x, index).sum().backward()
    assert all(parameter.grad is not None for name, parameter in prepared.named_parameters() if "weight" in name)
    trained = delegraph.convert_qat(prepared)
    done = trained.report.methods["forward"]
    assert [left.module for left in done.left_float] == ["a"]
    assert {"table", "last"} <= {layer.module for layer in done.layers}
    assert "table.weight" not in trained.program.state_dict
    assert delegraph.load(bytes(delegraph.lower(trained)))(x.numpy(), index.numpy()).shape == (4, 8)


def test_what_a_model_counts_is_counted_once_when_it_is_measured() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.count = nn.Linear(64, 64), nn.Buffer(torch.zeros(64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.a(x) + self.count
            self.count.add_(10)
            return y

    measured = delegraph.quantize(made(Counting), data(), recipe="int8_weight_only").report.methods["forward"]
    assert measured.output_sqnr is not None and measured.output_sqnr > 40


def test_a_buffer_that_another_method_writes_is_no_weight_of_a_body() -> None:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held, self.a = nn.Buffer(torch.ones(64, 64)), nn.Linear(64, 64)

    class Fill(Cache):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.held.copy_(x.t() @ x)
            return self.a(x)  # type: ignore[no-any-return]

    class Read(Cache):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.cond(x.sum() > 0, lambda x: F.linear(self.a(x), self.held), lambda x: x * 2.0, (x,))

    x, *_ = data()[0]
    models = {"fill": Fill().eval(), "read": Read().eval()}
    for recipe in ("int8", "int8_weight_only"):
        quantized = delegraph.quantize(
            models, dict.fromkeys(models, data()), dict.fromkeys(models, (x,)), recipe=recipe
        )
        (left,) = quantized.report.methods["read"].left_float
        assert "a body of control flow is given its weight" in left.reason
        assert quantized["read"].state_dict["held"].dtype == torch.float32


def test_a_body_that_several_calls_enter_is_quantized_for_each() -> None:
    model = made(Chosen)
    program = torch.export.export(model, data()[0])
    first, other = program.graph.find_nodes(op="get_attr")
    other.replace_all_uses_with(first)
    program.graph.eliminate_dead_code()
    for recipe in ("int8", "int8_weight_only"):
        quantized = delegraph.quantize(program, data(), recipe=recipe)
        layers = quantized.report.methods["forward"].layers
        assert [layer.module for layer in layers] == ["a", "a"]
        for batch in data()[:2]:
            wanted = model.get_submodule("a")(*batch) * 2
            assert sqnr((wanted, quantized.program.module()(*batch))) > 35
