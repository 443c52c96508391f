"""Layers that are written otherwise, and what they share grids with: what is quantized, and how far it is off."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim
from torch.nn.utils.parametrizations import weight_norm

import delegraph
from delegraph.aot import HistogramObserver
from delegraph.aot.quantize.measurement.measure import sqnr
from delegraph.errors import LoweringError

aten = torch.ops.aten
BACKENDS = ([], ["cpu"], ["npu"], ["dsp"], ["openvino"])


def off(model: nn.Module, quantized: delegraph.QuantizedModel, *args: torch.Tensor) -> float:
    with torch.no_grad():
        return sqnr((model(*args), quantized.program.module()(*args)))


class Joined(nn.Module):
    """Two branches, one `factor` times as large, of which one has another reader, which `first` gives."""

    def __init__(self, factor: float, pooled: bool) -> None:
        super().__init__()
        self.a, self.b, self.pooled = nn.Conv2d(3, 8, 3), nn.Conv2d(3, 8, 3), pooled
        self.c, self.d = nn.Conv2d(16, 4, 1), nn.Conv2d(8, 4, 1)
        with torch.no_grad():
            self.b.weight.mul_(factor)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = F.relu(self.a(x)), F.relu(self.b(x))
        first = self.d(a)
        if self.pooled:
            a, b = F.max_pool2d(a, 2), F.max_pool2d(b, 2)
        return first, self.c(torch.cat([a, b], 1))


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("backends", BACKENDS)
def test_what_is_joined_stays_as_exact_for_others(backends: list[str], pooled: bool) -> None:
    torch.manual_seed(0)
    model = Joined(100, pooled).eval()
    data = [(torch.randn(2, 3, 16, 16),) for _ in range(3)]
    quantized = delegraph.quantize(model, data, backends=backends)
    lowered = bytes(delegraph.lower(quantized, backends=backends))
    for got, wanted in zip(delegraph.load(lowered)(data[0][0].numpy()), model(*data[0]), strict=True):
        assert sqnr((wanted.detach(), torch.from_numpy(np.array(got)))) > 30
    assert backends != ["cpu"] or b"QLinearConcat" in lowered


def test_branches_that_nothing_else_reads_are_joined_as_they_are() -> None:
    class Alone(Joined):
        def forward(self, x: torch.Tensor) -> Any:
            return self.c(torch.cat([F.relu(self.a(x)), F.relu(self.b(x))], 1))

    data = [(torch.randn(2, 3, 16, 16),)]
    for backends in ([], ["cpu"], ["npu"], ["dsp"]):
        quantized = delegraph.quantize(Alone(1, False).eval(), data, backends=backends)
        (cat,) = (node for node in quantized.program.graph.nodes if node.target == aten.cat.default)
        (after,) = cat.users
        assert len({tuple(one.args[1:3]) for one in [*cat.args[0], after]}) == 1, backends  # type: ignore[union-attr]


class Weighing(nn.Module):
    """Its weight is an input."""

    def __init__(self, call: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self.call(x, weight)


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (F.conv2d, (4, 3, 3, 3)),
        (lambda x, w: F.conv2d(x, w.view(4, 3, 3, 3)), (12, 3, 3)),
        (F.conv_transpose2d, (3, 4, 3, 3)),
        (F.linear, (4, 8)),
        (lambda x, w: torch.addmm(torch.zeros(4), x[0, 0], w), (8, 4)),
    ],
)
def test_a_weight_that_is_an_input_has_no_range_of_the_data(
    call: Callable[..., torch.Tensor], shape: tuple[int, ...]
) -> None:
    model, x = Weighing(call).eval(), torch.randn(2, 3, 8, 8)
    weight = torch.randn(shape)
    for backends in BACKENDS:
        assert off(model, delegraph.quantize(model, [(x, weight)], backends=backends), x, weight * 5) > 100, backends


def test_a_weight_that_is_computed_from_parameters_is_one() -> None:
    torch.manual_seed(0)
    model, x = weight_norm(nn.Conv2d(3, 8, 3)).eval(), torch.randn(1, 3, 8, 8)
    for backends in ([], ["cpu"], ["openvino"]):
        quantized = delegraph.quantize(model, [(x,)], backends=backends)
        assert any(tensor.dtype == torch.int8 for tensor in quantized.program.state_dict.values())
        assert 30 < off(model, quantized, x) < 60


def test_a_buffer_that_a_run_writes_is_no_weight() -> None:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = nn.Buffer(torch.ones(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            given = F.linear(x, self.held * 2) + x @ self.held
            self.held.mul_(0.5)
            return given

    x = torch.randn(4, 8)
    for backends in ([], ["cpu"]):
        run = delegraph.load(bytes(delegraph.lower(delegraph.quantize(Cache(), [(x,)], backends=backends))))
        first, second = (np.array(run(x.numpy())) for _ in range(2))
        np.testing.assert_allclose(second, first / 2, atol=0.03 * float(np.abs(first).max()))


def test_a_parameter_that_is_only_copied_from_is_a_weight() -> None:
    class Copied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.held = nn.Parameter(torch.randn(8, 8)), nn.Buffer(torch.zeros(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            given = F.linear(x, self.weight)
            self.held.copy_(self.weight)
            return given

    program = delegraph.quantize(Copied().eval(), [(torch.randn(4, 8),)]).program
    (layer,) = (node for node in program.graph.nodes if node.target is aten.linear.default)
    assert "dequantize_per_channel" in str(layer.args[1].target)  # type: ignore[union-attr]


class Projections(nn.Module):
    """As GPT-2 has them: matrices of (inputs, outputs)."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(32, 64) / 6), nn.Parameter(torch.randn(64, 32) / 8)
        self.bias, self.norm = nn.Parameter(torch.randn(64)), nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.addmm(self.bias, self.norm(x).view(-1, 32), self.up)
        return F.gelu(hidden) @ self.down


@pytest.mark.parametrize(
    ("recipe", "decibels", "nbytes"),
    [
        ("int8", 33, 6000),
        ("int8_dynamic", 37, 6000),
        ("int16x8", 40, 6000),
        ("int8_weight_only", 40, 5000),
        ("int4_weight_only", 17, 3200),
        ("int8_dynamic_int4_weight", 17, 3200),
    ],
)
@pytest.mark.parametrize("backends", [[], ["cpu"]])
def test_projections_are_quantized_by_columns(backends: list[str], recipe: str, decibels: float, nbytes: int) -> None:
    torch.manual_seed(0)
    model, x = Projections().eval(), torch.randn(3, 5, 32)
    quantized = delegraph.quantize(model, [(x,)], recipe=recipe, backends=backends)
    done = quantized.report.methods["forward"]
    assert done.float_nbytes == 16896 and done.nbytes < nbytes
    lowered = bytes(delegraph.lower(quantized, backends=backends))
    with torch.no_grad():
        got = torch.from_numpy(np.array(delegraph.load(lowered)(x.numpy())))
        assert decibels < sqnr((model(x), got)) < 60
    if backends and recipe == "int8":
        assert b"QGemm" in lowered and not re.search(rb"FusedGemm|FusedMatMul|[^Q]Gemm", lowered)


@pytest.mark.parametrize("backends", [[], ["cpu"]])
def test_four_bits_and_ranges_found_as_it_runs_are_for_linear_layers(backends: list[str]) -> None:
    """A convolution has weights of eight bits by such a recipe, and what it takes is as exact as by weights alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 32)).eval()
    quantized = delegraph.quantize(
        model, [(torch.randn(1, 3, 6, 6),)], recipe="int8_dynamic_int4_weight", backends=backends
    )
    rounded = [
        next(iter(node.users)) for node in quantized.program.graph.nodes if "dequantize_per_tensor" in str(node.target)
    ]
    assert [str(node.target) for node in rounded] == ["aten.linear.default"]
    rows = {row.operator: row for row in quantized.report.methods["forward"].layers}
    assert rows["aten::conv2d"].sqnr > 38
    assert rows["aten::conv2d"].weight_nbytes < rows["aten::conv2d"].float_nbytes / 3


class Tied(nn.Module):
    """A table of tokens that scores the next one, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.between, self.head = nn.Embedding(2000, 64), nn.Linear(64, 64), nn.Linear(64, 2000, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(F.relu(self.between(self.table(tokens))))
        return scores


@pytest.mark.parametrize("recipe", ["int8", "int8_per_tensor", "int8_weight_only"])
@pytest.mark.parametrize("backends", [[], ["cpu"]])
def test_a_table_that_a_layer_has_too_is_stored_once(backends: list[str], recipe: str) -> None:
    torch.manual_seed(0)
    model, data = Tied().eval(), [(torch.randint(0, 2000, (1, 1)),) for _ in range(4)]
    quantized = delegraph.quantize(model, data, recipe=recipe, backends=backends)
    lowered = bytes(delegraph.lower(quantized, backends=backends))
    assert max(len(lowered), quantized.report.methods["forward"].nbytes) < 1.5 * 2000 * 64
    with torch.no_grad():
        got = torch.from_numpy(np.array(delegraph.load(lowered)(data[0][0].numpy())))
        assert sqnr((model(*data[0]), got)) > 30


class Product(nn.Module):
    """Of values and a matrix, which is said in many ways."""

    def __init__(self, call: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.columns, self.rows = nn.Parameter(torch.randn(64, 32) / 8), nn.Parameter(torch.randn(32, 64) / 8)
        self.bias, self.call = nn.Parameter(torch.randn(32)), call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(x, self.columns, self.rows, self.bias)


PRODUCTS: dict[str, Callable[..., torch.Tensor]] = {
    "matmul": lambda x, w, e, b: x @ w,
    "mm": lambda x, w, e, b: torch.mm(x[0], w),
    "numpy_T": lambda x, w, e, b: x @ e.T,
    "t": lambda x, w, e, b: x @ e.t(),
    "mT": lambda x, w, e, b: x @ e.mT,
    "linear of a transposed one": lambda x, w, e, b: F.linear(x, w.T, b),
    "addmm": lambda x, w, e, b: torch.addmm(b, x[0], w),
    "addmm of a sum": lambda x, w, e, b: torch.addmm(x[1, :, :32], x[0], w),
    "einsum by columns": lambda x, w, e, b: torch.einsum("bsd,dh->bsh", x, w),
    "einsum by rows": lambda x, w, e, b: torch.einsum("...d, hd -> ...h", x, e),
}


@pytest.mark.parametrize("call", PRODUCTS.values(), ids=PRODUCTS)
@pytest.mark.parametrize(
    ("recipe", "decibels", "stored", "backends"),
    [*(("int8", 36, 2560, names) for names in BACKENDS), ("int4_weight_only", 19, 1408, [])],
)
def test_a_product_with_a_matrix_is_a_layer_however_it_is_said(
    call: Callable[..., torch.Tensor], recipe: str, decibels: float, stored: int, backends: list[str]
) -> None:
    torch.manual_seed(0)
    model, x = Product(call).eval(), torch.randn(2, 8, 64)
    quantized = delegraph.quantize(model, [(x,)], recipe=recipe, backends=backends)
    assert quantized.report.methods["forward"].nbytes <= stored
    run = delegraph.load(bytes(delegraph.lower(quantized, backends=backends)))
    with torch.no_grad():
        assert decibels < sqnr((model(x), torch.from_numpy(np.array(run(x.numpy()))))) < 60


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w, e, b: torch.einsum("bsd,dh->bdh", x, w),
        lambda x, w, e, b: torch.einsum("bsd,hd->bs", x, e),
        lambda x, w, e, b: x[0, 0] @ w,
        lambda x, w, e, b: x[..., :1] @ b[None],
    ],
)
def test_other_products_with_a_matrix_stay_as_they_are(call: Callable[..., torch.Tensor]) -> None:
    model, x = Product(call).eval(), torch.randn(2, 8, 64)
    assert off(model, delegraph.quantize(model, [(x,)], recipe="int8_weight_only"), x) > 100


def test_what_is_trained_of_a_product_is_the_parameter() -> None:
    torch.manual_seed(0)
    model, x = Product(PRODUCTS["matmul"]), torch.randn(2, 8, 64)
    prepared = delegraph.prepare_qat(model, (x,))
    assert "columns" in dict(prepared.named_parameters())
    before = prepared.columns.detach().clone()
    prepared(x).square().mean().backward()
    torch.optim.SGD(prepared.parameters(), 0.5).step()
    assert not torch.equal(before, prepared.columns)
    quantized = delegraph.convert_qat(prepared)
    assert off(model.requires_grad_(False), quantized, x) < 30  # it has been trained
    with torch.no_grad():
        model.columns.copy_(prepared.columns)
    assert off(model, quantized, x) > 30
    assert any(tensor.dtype == torch.int8 for tensor in quantized.program.state_dict.values())


def test_a_matrix_that_is_read_by_rows_and_by_columns_is_stored_as_each() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(32, 32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, self.weight) + x @ self.weight

    model, x = Both(), torch.randn(3, 32)
    assert off(model, delegraph.quantize(model, [(x,)], recipe="int8_weight_only"), x) > 35


@pytest.mark.parametrize("backends", BACKENDS)
def test_double_precision_is_left_alone(backends: list[str]) -> None:
    class Doubles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head, self.lstm = nn.Conv2d(3, 8, 3), nn.Linear(8, 8), nn.LSTM(8, 8, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = F.relu(self.conv(x)).mean([2, 3])
            return self.lstm((self.head(y) + y).unsqueeze(1))[0]  # type: ignore[no-any-return]

    model, x = Doubles().double().eval(), torch.randn(2, 3, 8, 8).double()
    assert off(model, delegraph.quantize(model, [(x,)], backends=backends), x) > 200


def test_what_has_no_elements_stays_float() -> None:
    for recipe in ("int8", "int8_dynamic"):
        for backends in ([], ["cpu"], ["openvino"]):
            quantized = delegraph.quantize(
                nn.Linear(64, 64).eval(), [(torch.randn(0, 64),)], recipe=recipe, backends=backends
            )
            assert quantized.program.module()(torch.randn(0, 64)).shape == (0, 64)


@pytest.mark.parametrize("backends", BACKENDS)
def test_a_layer_kept_in_float_leaves_nothing_to_what_it_was_fused_with(backends: list[str]) -> None:
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).eval(), torch.randn(4, 64)
    quantized = delegraph.quantize(model, [(x,)], keep_float=5, backends=backends)
    assert off(model, quantized, x) == math.inf
    assert "quantize" not in str(quantized.program.graph)


def test_a_residual_sum_of_a_dynamic_size() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c, self.d = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.c(x)
            return y + self.d(y)  # type: ignore[no-any-return]

    torch.manual_seed(0)
    model, x = Residual().eval(), torch.randn(2, 3, 8, 8)
    shapes = ({0: Dim("batch")},)
    for backends in BACKENDS:
        assert off(model, delegraph.quantize(model, [(x,)], backends=backends, dynamic_shapes=shapes), x) > 30


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32, 8)).eval()


@pytest.mark.parametrize(
    ("backends", "recipe", "stored"),
    [
        (["npu", "cpu"], {"3": "int8_dynamic", "default": "int8"}, {"0": "int8", "3": "int8_dynamic"}),
        (["dsp", "cpu"], "int8_dynamic", {"3": "int8_dynamic"}),
        (["openvino", "cpu"], "int16x8", {"0": "int16x8", "3": "int16x8"}),
    ],
)
def test_what_one_backend_cannot_do_is_left_to_the_next(backends: list[str], recipe: Any, stored: Any) -> None:
    quantized = delegraph.quantize(small(), [(torch.randn(2, 3, 2, 2),)], backends=backends, recipe=recipe)
    assert {layer.module: layer.recipe for layer in quantized.report.methods["forward"].layers} == stored


def test_what_no_backend_can_do_is_refused_with_the_reasons_of_all() -> None:
    with pytest.raises(LoweringError, match=r"(?s)quantizer 'npu' annotates.*quantizer 'dsp' annotates"):
        delegraph.quantize(small(), [(torch.randn(2, 3, 2, 2),)], backends=["npu", "dsp"], recipe="int8_dynamic")


def test_a_rule_that_fits_no_module_is_refused() -> None:
    model = nn.Sequential()
    model.add_module("encoder", small())
    data = [(torch.randn(2, 3, 2, 2),)]
    exported = torch.export.export(model, data[0])
    for given, typical in ((model, data), (exported, {"forward": data})):
        for rule, message in (("encodr", "did you mean 'encoder'"), ("nosuch.*", "modules are encoder")):
            with pytest.raises(LoweringError, match=f"rule for '{re.escape(rule)}', but no module.*{message}"):
                delegraph.quantize(given, typical, recipe={rule: "float", "default": "int8"})
    with pytest.raises(LoweringError, match="no module of that name"):
        delegraph.prepare_qat(model, data[0], recipe={"nosuch": "float", "default": "int8"})
    delegraph.quantize(model, data, recipe={"encoder.*": "float", nn.LSTM: "float", "default": "int8"})
    delegraph.quantize({"a": model, "b": small()}, {"a": data, "b": data}, {"a": data[0], "b": data[0]},
                       recipe={"encoder": "float", "default": "int8"})  # fmt: skip


def test_ranges_of_the_largest_numbers_are_finite() -> None:
    observer, most = HistogramObserver(), torch.finfo(torch.float32).max
    for values in ([1.0, -2.0], [most, 0.0], [-most, 5.0]):
        observer(torch.tensor(values))
    assert all(map(torch.isfinite, [*observer.best_range(), observer.calculate_qparams()[0]]))


@pytest.mark.parametrize("recipe", ["int8_weight_only", "int4_weight_only"])
def test_a_product_with_a_stored_matrix_is_a_linear_layer(recipe: str) -> None:
    """Which backends multiply as it is stored: `cpu` without dequantizing it in each run."""

    class Projected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(64, 96)), nn.Parameter(torch.randn(96))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.addmm(self.bias, x, self.weight) + x @ self.weight

    x = torch.randn(4, 64)
    program = delegraph.quantize(Projected(), args=(x,), recipe=recipe).program
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert called.count("aten.linear.default") == 2
    assert not {"aten.addmm.default", "aten.matmul.default"} & {*called}
    run = delegraph.load(bytes(delegraph.lower(program, backends=["cpu"])))
    np.testing.assert_allclose(run(x.numpy()), program.module()(x).detach(), rtol=1e-4, atol=1e-4)
