"""A recipe, from one call to a program that runs without torch: what is stored how, how far it is off, what is said."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from core.tests.aot.propagation import assert_values_are_what_operators_give
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

import delegraph
from delegraph.aot import Recipe, activation_spec, channel_dim, recipe_named, weight_spec
from delegraph.aot.authoring import operator_name
from delegraph.aot.quantize.measurement.report import QuantizationReport
from delegraph.aot.quantize.weights import packing
from delegraph.errors import DelegraphError, LoweringError, PluginNotFound, UnknownOption
from delegraph.plugins import PluginRegistry
from delegraph.program import serialize_flat_tensor

aten = torch.ops.aten

BATCH = Dim("batch", max=16)


class Net(nn.Module):
    """A bit of everything that is quantized: convolutions, a sum of two branches, pooling, linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.branch = nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.hidden, self.middle, self.head = nn.Linear(8 * 16, 64), nn.LayerNorm(64), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.stem(x)).relu()
        x = nn.functional.max_pool2d(x + self.branch(x), 2)
        return self.head(self.middle(self.hidden(x.flatten(1)).relu()))  # type: ignore[no-any-return]


def batches(count: int = 3) -> list[tuple[torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(4, 1, 8, 8, generator=generator),) for _ in range(count)]


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def float_program(net: Net) -> ExportedProgram:
    return torch.export.export(net, batches()[0], dynamic_shapes=({0: BATCH},))


def sqnr(wanted: np.ndarray, got: np.ndarray) -> float:
    return float(10 * np.log10((wanted**2).sum() / max(((wanted - got) ** 2).sum(), 1e-30)))


def operators(program: ExportedProgram) -> Counter[str]:
    return Counter(str(node.target) for node in program.graph.nodes if node.op == "call_function")


# ---- each recipe -----------------------------------------------------------------------------------

RECIPES = [  # at least so many dB, and at most so many bytes of constants where 4 bytes a weight are about 37,000
    ("int8", 28, 11_500),
    ("int8_per_tensor", 28, 11_000),
    ("int8{observer=percentile, percentile=99.9}", 20, 11_500),
    ("int8_dynamic", 28, 11_500),
    ("int8_weight_only{group_size=32}", 35, 12_000),
    ("int4_weight_only", 14, 8_000),
    ("int8_dynamic_int4_weight{group_size=16}", 14, 8_500),
    ("int16x8", 35, 11_500),
]


@pytest.mark.models
@pytest.mark.parametrize(("recipe", "decibels", "nbytes"), RECIPES, ids=[name for name, *_ in RECIPES])
def test_a_recipe_from_one_call_to_the_kernels(
    recipe: str, decibels: int, nbytes: int, net: Net, float_program: ExportedProgram
) -> None:
    quantized = delegraph.quantize(float_program, batches(), recipe=recipe)
    program = quantized.program
    assert_values_are_what_operators_give(program)  # of which only what follows a change was traced again
    constants = sum(tensor.nbytes for tensor in {**program.state_dict, **program.constants}.values())
    assert constants < nbytes
    lowered = bytes(delegraph.lower(quantized))
    assert len(lowered) < nbytes + 9_000
    eager = program.module()
    x = torch.randn(7, 1, 8, 8, generator=torch.Generator().manual_seed(2))  # another batch size, and unseen
    with torch.no_grad():
        reference, wanted = eager(x).numpy(), net(x).numpy()
    step = np.abs(reference).max() / 100  # a step of the output's int8, about
    runs = {library: delegraph.load(lowered, kernels=[library]) for library in ("portable", "aten")}
    runs["cpu"] = delegraph.load(bytes(delegraph.lower(quantized, backends=["cpu"])))
    for name, run in runs.items():
        got = np.asarray(run(x.numpy()))
        layers = 4 if name == "cpu" else 1  # where integers are multiplied, each may round a tie the other way
        assert np.abs(got - reference).max() <= layers * step, name
        assert sqnr(wanted, got) > decibels, name
    report = quantized.report.methods["forward"]
    assert report.nbytes == constants
    assert report.output_sqnr is not None
    assert report.output_sqnr > decibels


EXECUTORCH = """
import glob, sys, torch
import executorch.kernels.quantized
from executorch.extension.pybindings import portable_lib

x = torch.load("x.pt")
outputs = {}
for path in glob.glob("*.pte"):
    outputs[path] = portable_lib._load_for_executorch(path).run_method("forward", (x,))[0].clone()
torch.save(outputs, "outputs.pt")
"""


@pytest.mark.executorch
def test_the_same_files_on_executorch(executorch_python: str, float_program: ExportedProgram, tmp_path: Path) -> None:
    (x,) = batches(1)[0]
    torch.save(x, tmp_path / "x.pt")
    wanted = {}
    for number, (recipe, *_) in enumerate(RECIPES):
        lowered = delegraph.lower(delegraph.quantize(float_program, batches(), recipe=recipe))
        lowered.save(tmp_path / f"{number}.pte")
        wanted[f"{number}.pte"] = torch.from_numpy(np.array(delegraph.load(bytes(lowered))(x.numpy())))
    ran = subprocess.run(
        [executorch_python, "-c", EXECUTORCH], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    got = torch.load(tmp_path / "outputs.pt")
    assert set(got) == set(wanted)
    for name, output in got.items():
        step = float(wanted[name].abs().max()) / 100
        torch.testing.assert_close(output, wanted[name], atol=step, rtol=0)


def test_weight_only_and_dynamic_recipes_need_no_data(net: Net) -> None:
    for recipe in ("int8_weight_only", "int8_dynamic"):
        quantized = delegraph.quantize(net, args=batches()[0], recipe=recipe)
        assert quantized.report.methods["forward"].output_sqnr is None
        assert "not measured" in str(quantized.report)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "the calibration data is empty; give a few typical inputs"),
        (
            torch.zeros(2, 3),
            r"calibration batch 0 is a Tensor; a batch is a tuple of arguments \(for one write \(x,\)\)",
        ),
    ],
    ids=["none", "a tensor"],
)
def test_what_is_no_batch_is_told_before_anything_is_exported(net: Net, data: Any, message: str) -> None:
    with pytest.raises(LoweringError, match=message):
        delegraph.quantize(net, data)


class Tied(nn.Module):
    """Rows of a table, and the table as the head's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(200, 32), nn.Linear(32, 200, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(tokens))  # type: ignore[no-any-return]


def test_embeddings_are_gathered_before_they_are_dequantized() -> None:
    torch.manual_seed(0)
    model, tokens = Tied(), torch.arange(0, 200, 7)
    for recipe, decibels, nbytes in (("int8_weight_only", 35, 7_500), ("int4_weight_only{group_size=16}", 17, 5_000)):
        program = delegraph.quantize(model, [(tokens,)], recipe=recipe).program
        assert sum(tensor.nbytes for tensor in program.state_dict.values()) < nbytes  # once, though two read it
        got = np.asarray(delegraph.load(bytes(delegraph.lower(program)))(tokens.numpy()))
        assert sqnr(model(tokens).detach().numpy(), got) > decibels


TABLE = 200 * 32  # bytes, in 8 bits; the head's weight is the same tensor, and may be stored by itself
SCALES = {"int8_per_tensor": 1}
"""Of the table, by recipe: elsewhere one for each row."""


@pytest.mark.parametrize("recipe", ["int8", "int8_per_tensor", "int8_dynamic", "int16x8"])
def test_recipes_for_values_store_embeddings_in_8_bits(recipe: str) -> None:
    torch.manual_seed(0)
    model, tokens = Tied(), torch.arange(0, 200, 7)
    quantized = delegraph.quantize(model, [(tokens,)], recipe=recipe, backends=["cpu"])
    assert stored(quantized) == {"table": recipe, "head": recipe}
    table, _ = quantized.report.methods["forward"].layers
    assert (table.operator, table.weight_nbytes) == ("aten::embedding", TABLE + 4 * SCALES.get(recipe, 200))
    assert table.sqnr is not None and 35 < table.sqnr < 60
    wanted = model(tokens).detach().numpy()
    for backends in ([], ["cpu"]):
        lowered = bytes(delegraph.lower(quantized, backends=backends))
        assert len(lowered) < 2 * TABLE + 10_000  # of float, 4 * TABLE
        assert sqnr(wanted, np.asarray(delegraph.load(lowered)(tokens.numpy()))) > 30


class Bags(nn.Module):
    """Sums, means or maxima of some rows of a table, and what an LSTM makes of them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.table, self.head = nn.EmbeddingBag(ROWS, 32, **settings), nn.LSTM(32, 8)

    def forward(
        self, items: torch.Tensor, offsets: torch.Tensor | None = None, weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.head(self.table(items, offsets, weights))[0]  # type: ignore[no-any-return]


ROWS = 1000
ITEMS = torch.randint(0, ROWS, (4, 6), generator=torch.Generator().manual_seed(0))
BAGS: dict[str, tuple[dict[str, Any], tuple[torch.Tensor, ...]]] = {
    "sums": ({"mode": "sum"}, (ITEMS,)),
    "means": ({"mode": "mean"}, (ITEMS,)),
    "maxima": ({"mode": "max"}, (ITEMS,)),
    "offsets and weights": ({"mode": "sum"}, (ITEMS.view(-1), torch.tensor([0, 3, 20]), torch.linspace(0, 1, 24))),
    "the end told": ({"mode": "sum", "include_last_offset": True}, (ITEMS.view(-1), torch.tensor([0, 3, 24]))),
    "a row that does not count": ({"mode": "mean", "padding_idx": int(ITEMS[0, 0])}, (ITEMS,)),
    "the last row, which does not count": (
        {"mode": "sum", "padding_idx": -1},
        (torch.cat([ITEMS, ITEMS * 0 + ROWS - 1]),),
    ),
}


@pytest.mark.models
@pytest.mark.parametrize("name", BAGS)
def test_bags_of_embeddings_are_of_the_stored_rows(name: str) -> None:
    settings, args = BAGS[name]
    torch.manual_seed(0)
    model = Bags(**settings)
    for recipe, decibels, nbytes in (("int8_weight_only", 35, ROWS * 32), ("int4_weight_only", 15, ROWS * 16)):
        quantized = delegraph.quantize(model, [args], recipe=recipe)
        wanted = quantized.program.module()(*args).detach().numpy()
        table, lstm = quantized.report.methods["forward"].layers
        assert (table.operator, table.weight_nbytes) == ("aten::embedding_bag", nbytes + 4 * ROWS)
        assert table.sqnr is not None and decibels < table.sqnr < 60
        assert lstm.sqnr is not None and 35 < lstm.sqnr < 60  # of the first of its results
        for backends in ([], ["cpu"]):
            lowered = bytes(delegraph.lower(quantized, backends=backends))
            assert len(lowered) < nbytes + 30_000  # of float, 128,000
            assert sqnr(wanted, np.asarray(delegraph.load(lowered)(*(one.numpy() for one in args)))) > 60


class Experts(nn.Module):
    """Rows sorted by expert, each times its expert's matrix: as `transformers` has them, outputs first or last."""

    def __init__(self, outputs_last: bool, inner: int) -> None:
        super().__init__()
        self.matrices = nn.Parameter(torch.randn(EXPERTS, *((inner, 40) if outputs_last else (40, inner))))
        self.outputs_last = outputs_last

    def forward(self, rows: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        matrices = self.matrices if self.outputs_last else self.matrices.transpose(-2, -1)
        return torch.ops.transformers.grouped_mm_fallback(rows, matrices, ends)  # type: ignore[no-any-return]


EXPERTS = 4


@pytest.mark.parametrize("outputs_last", [False, True])
@pytest.mark.parametrize(
    ("recipe", "inner", "decibels", "nbytes"),
    [
        ("int8_weight_only", 64, 35, EXPERTS * 40 * (64 + 4)),
        ("int8_dynamic", 64, 35, EXPERTS * 40 * (64 + 4)),
        ("int4_weight_only", 64, 15, EXPERTS * 40 * (32 + 8)),
        ("int4_weight_only{group_size=8}", 24, 15, EXPERTS * 40 * (12 + 12)),
        ("int4_weight_only", 27, 35, EXPERTS * 40 * (27 + 4)),  # which groups of two codes don't divide
    ],
)
def test_the_matrices_of_experts_are_stored_by_row(
    recipe: str, inner: int, decibels: float, nbytes: int, outputs_last: bool
) -> None:
    pytest.importorskip("transformers.integrations.moe", reason="it has the operator")
    torch.manual_seed(0)
    model, rows = Experts(outputs_last, inner), torch.randn(20, inner)
    count = Dim("count", min=2, max=64)
    ends = torch.tensor([3, 3, 12, 18], dtype=torch.int32)  # the second has none; the last two rows are nobody's
    exported = torch.export.export(model, (rows, ends), dynamic_shapes=({0: count}, None))
    quantized = delegraph.quantize(exported, [(rows, ends)], recipe=recipe)
    (layer,) = quantized.report.methods["forward"].layers
    assert (layer.weight_nbytes, layer.float_nbytes) == (nbytes, EXPERTS * 40 * inner * 4)
    assert layer.sqnr is not None and decibels < layer.sqnr < 60
    wanted = quantized.program.module()(rows, ends).numpy()
    for backends in ([], ["cpu"]):
        lowered = bytes(delegraph.lower(quantized, backends=backends))
        assert len(lowered) < 2 * nbytes + 12_000
        got = np.asarray(delegraph.load(lowered)(rows.numpy(), ends.numpy()))
        assert sqnr(wanted, got) > 100
        assert not got[18:].any()
        apart = delegraph.ExecutorchBackendConfig(external_constants={"*": "weights"})
        outside = delegraph.lower(quantized, backends=backends, config=apart)
        data = [serialize_flat_tensor(held) for held in outside.program.tensor_data.values()]
        got = np.asarray(delegraph.load(bytes(outside), data_path=data)(rows.numpy(), ends.numpy()))
        assert sqnr(wanted, got) > 100


@pytest.mark.parametrize("recipe", ["int8", "int8_per_tensor", "int8_dynamic"])
def test_weights_of_a_reduced_range(recipe: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 32)
    for backends in ([], ["cpu"]):
        quantized = delegraph.quantize(
            nn.Linear(32, 16), [(x,)], recipe=f"{recipe}{{reduce_range=true}}", backends=backends
        )
        (weight,) = (t for t in quantized.program.state_dict.values() if t.dtype == torch.int8)
        assert int(weight.abs().max()) == 63
    with pytest.raises(LoweringError, match="reduce_range is true or false, not 7"):
        recipe_named(f"{recipe}{{reduce_range=7}}")


def test_embeddings_stay_float_where_a_rule_or_a_quantizer_of_the_users_says_so() -> None:
    from torchao.quantization.pt2e.quantizer import Quantizer as TorchaoQuantizer

    class Nothing(TorchaoQuantizer):
        def annotate(self, model: Any) -> Any:
            return model

        def validate(self, model: Any) -> None:
            pass

    torch.manual_seed(0)
    model, tokens = Tied(), torch.arange(0, 200, 7)
    ruled = delegraph.quantize(model, [(tokens,)], recipe={nn.Embedding: "float", "default": "int8"})
    named = delegraph.quantize(model, [(tokens,)], quantizers=[Nothing()])
    for quantized in (ruled, named):
        table = next(node for node in quantized.program.graph.nodes if node.target == aten.embedding.default)
        assert table.meta["val"].dtype == torch.float32


def test_embeddings_of_a_model_that_was_trained_to_be_quantized_are_stored_in_8_bits() -> None:
    torch.manual_seed(0)
    model, tokens = Tied(), torch.arange(0, 200, 7)
    prepared = delegraph.prepare_qat(model, (tokens,), recipe="int8")
    prepared(tokens)
    quantized = delegraph.convert_qat(prepared)
    assert not {tensor.shape for tensor in quantized.program.state_dict.values() if tensor.dtype == torch.float32} & {
        model.table.weight.shape
    }
    got = delegraph.load(bytes(delegraph.lower(quantized)))(tokens.numpy())
    assert sqnr(model(tokens).detach().numpy(), np.asarray(got)) > 30


def test_four_bits_are_stored_two_to_a_byte_as_documented() -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 2, bias=False)
    program = delegraph.quantize(model, args=(torch.eye(8),), recipe="int4_weight_only{group_size=4}").program
    constants = {name.rpartition("_")[2]: tensor for name, tensor in program.state_dict.items()}
    packed, scales = constants["packed"].numpy(), constants["scales"].numpy()
    assert packed.shape == (2, 4)
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(4, 4).astype(np.int64)
    weight = ((codes - 8) * scales[:, None]).reshape(2, 8)
    np.testing.assert_allclose(program.module()(torch.eye(8)).detach().numpy(), weight.T, rtol=1e-6)
    assert (np.abs(weight - model.weight.detach().numpy()) <= np.repeat(scales, 4).reshape(2, 8) * 1.6).all()


def test_a_row_that_groups_do_not_divide_is_stored_in_8_bits() -> None:
    program = delegraph.quantize(nn.Linear(33, 4), args=(torch.randn(1, 33),), recipe="int4_weight_only").program
    assert torch.int8 in {tensor.dtype for tensor in program.state_dict.values()}


class Padded(nn.Module):
    """A pool as timm's `MaxPool2dSame` is: what it pads with is no value of the model's."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.pad(self.stem(x).relu(), (0, 1, 0, 1), value=-math.inf)
        return self.head(nn.functional.max_pool2d(x, 3, 2))  # type: ignore[no-any-return]


@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=["kernels", "cpu"])
@pytest.mark.parametrize("recipe", ["int8{observer=minmax}", "int8{observer=moving_average}", "int8", "int16x8"])
def test_infinite_padding_is_passed_over(recipe: str, backends: list[str]) -> None:
    torch.manual_seed(0)
    model = Padded().eval()
    quantized = delegraph.quantize(model, batches(), recipe=recipe, backends=backends)
    (x,) = batches(1)[0]
    got = np.asarray(delegraph.load(bytes(delegraph.lower(quantized, backends=backends)))(x.numpy()))
    assert sqnr(model(x).detach().numpy(), got) > 30


def test_what_is_infinite_or_empty_in_every_batch_stays_float() -> None:
    """It has no range; what is computed with it is quantized as before."""

    class Blind(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.linear(x)
            nothing = y[:0] + y[:0]
            return y + torch.full_like(y, -math.inf), nothing.flatten()

    program = delegraph.quantize(Blind().eval(), [(torch.randn(4, 8),)]).program
    rounded = [node.args[0] for node in program.graph.nodes if "::quantize_per_tensor" in operator_name(node)]
    kinds = {operator_name(value) for value in rounded if value.op == "call_function"}
    assert kinds == {"aten::linear", "aten::slice.Tensor"}  # and not the sums, what is added, and what becomes of them


# ---- recipes for parts -----------------------------------------------------------------------------


def stored(quantized: Any) -> dict[str, str]:
    return {layer.module: layer.recipe for layer in quantized.report.methods["forward"].layers if layer.float_nbytes}


def test_recipes_by_module_name_and_type(net: Net) -> None:
    recipe = {"stem": "float", nn.Linear: "int8_weight_only", "h*": "int4_weight_only", "default": "int8"}
    quantized = delegraph.quantize(net, batches(), recipe=recipe)
    by_type = {"branch": "int8", "hidden": "int8_weight_only", "head": "int8_weight_only"}
    assert stored(quantized) == by_type  # the first rule that fits
    quantized = delegraph.quantize(net, batches(), recipe={"h*": "int4_weight_only", "default": "float"})
    assert stored(quantized) == {"hidden": "int4_weight_only", "head": "int4_weight_only"}
    assert not any("quantize_per_tensor" in name for name in operators(quantized.program))


@pytest.mark.parametrize("recipe", ["int8_dynamic", "int8_weight_only"])
def test_modules_of_a_model_whose_forward_was_replaced_have_their_own_names(recipe: str) -> None:
    """torch reaches them through the call, `inner.forward.func.__self__.head`: transformers is told so to give the last
    token's logits alone."""

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(32, 32), nn.Linear(32, 8)

        def forward(self, x: torch.Tensor, scale: int) -> torch.Tensor:
            return self.head(self.body(x).relu() * scale)  # type: ignore[no-any-return]

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)  # type: ignore[no-any-return]

    model, x = Outer().eval(), torch.randn(4, 32)
    model.inner.forward = partial(model.inner.forward, scale=3)  # type: ignore[method-assign]
    exported = torch.export.export(model, (x,), strict=True)
    quantized = delegraph.quantize(exported, recipe={"inner.head": "float", "default": recipe})
    assert stored(quantized) == {"inner.body": recipe}


def test_the_layers_that_lose_most_stay_float(net: Net) -> None:
    recipe = {"hidden": "int4_weight_only", "default": "int8"}
    all_of_it = delegraph.quantize(net, batches(), recipe=recipe)
    losses = {layer.name: layer.sqnr for layer in all_of_it.report.methods["forward"].layers}
    worst = min(losses, key=lambda name: losses[name] or math.inf)
    better = delegraph.quantize(net, iter(batches()), recipe=recipe, keep_float=1).report.methods["forward"]
    assert better.kept_float == (worst,)
    (kept,) = better.kept_layers
    row = next(layer for layer in all_of_it.report.methods["forward"].layers if layer.name == worst)
    assert (kept.operator, kept.module) == (row.operator, row.module)
    assert f"{row.sqnr:.1f} dB alone" in str(QuantizationReport({"forward": better}))
    assert worst not in {layer.name for layer in better.layers}
    assert better.output_sqnr > all_of_it.report.methods["forward"].output_sqnr + 5  # type: ignore[operator]
    limited = delegraph.quantize(net, batches(), recipe=recipe, min_sqnr=30.0).report.methods["forward"]
    assert set(limited.kept_float) == {name for name, loss in losses.items() if loss is not None and loss < 30}


@pytest.mark.parametrize("recipe", ["int8", "int8_per_tensor", "int8_dynamic", "int16x8"])
@pytest.mark.parametrize("of_weights", [False, True])
def test_what_is_small_is_as_exact_as_what_is_large(recipe: str, of_weights: bool) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(32, 32, bias=False), torch.randn(8, 32)
    (layer.weight.data if of_weights else x).mul_(1e-10)
    quantized = delegraph.quantize(layer, [(x,)], recipe=recipe)
    wanted, run = layer(x).detach(), delegraph.load(bytes(delegraph.lower(quantized)))
    for got in (quantized.program.module()(x), torch.from_numpy(np.array(run(x.numpy())))):
        assert sqnr(1e10 * wanted.numpy(), 1e10 * got.numpy()) > 35


@pytest.mark.parametrize("backends", [[], ["cpu"], ["npu"], ["dsp"]], ids=",".join)
def test_values_that_are_all_zero(backends: list[str]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.ReLU()).eval()
    x = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        model[0].bias.fill_(-100)  # type: ignore[union-attr, operator]
        model[2].bias.abs_()  # type: ignore[union-attr, operator]
        quantized = delegraph.quantize(model, [(x,)], backends=backends)
        got = np.array(delegraph.load(bytes(delegraph.lower(quantized, backends=backends)))(x.numpy()))
        assert sqnr(model(x).numpy(), got) > 40


def test_the_layers_that_lose_most_stay_float_whoever_annotates(net: Net, plugins: PluginRegistry) -> None:
    given: Any = {"quantizers": ["asic"], "plugins": plugins}
    losses = {
        layer.name: layer.sqnr for layer in delegraph.quantize(net, batches(), **given).report.methods["forward"].layers
    }
    assert len(losses) == 2
    one = delegraph.quantize(net, batches(), keep_float=1, **given).report.methods["forward"]
    assert one.kept_float == (min(losses, key=lambda name: losses[name] or math.inf),)
    none = delegraph.quantize(net, batches(), min_sqnr=200, **given)
    assert set(none.report.methods["forward"].kept_float) == set(losses)
    assert not any("quantize" in name for name in operators(none.program))


# ---- backends' own quantizers ----------------------------------------------------------------------


class LinearAlone:
    """A device that has integer kernels for linear layers."""

    def __init__(self, *, recipe: str = "int8") -> None:
        self.recipe: Recipe = recipe_named(recipe)

    def annotate(self, model: GraphModule) -> GraphModule:
        from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

        value = activation_spec(self.recipe)
        for node in model.graph.find_nodes(op="call_function", target=aten.linear.default):
            inputs = {node.args[0]: value, node.args[1]: weight_spec(self.recipe)}
            node.meta["quantization_annotation"] = QuantizationAnnotation(inputs, value, _annotated=True)
        return model

    def validate(self, model: GraphModule) -> None:
        pass


@pytest.fixture
def plugins() -> PluginRegistry:
    registry = PluginRegistry.discover()
    registry.register("quantizers", "asic", LinearAlone)
    registry.register("partitioners", "vpu", registry.load("partitioners", "cpu"))
    return registry


def test_a_backend_brings_its_quantizer(net: Net, plugins: PluginRegistry) -> None:
    alone = delegraph.quantize(net, batches(), backends=["asic"], plugins=plugins)
    assert stored(alone) == {"hidden": "int8", "head": "int8"}
    both = delegraph.quantize(net, batches(), backends=["asic{fast=true}", "vpu"], plugins=plugins)  # vpu has none
    assert set(stored(both)) == {"stem", "branch", "hidden", "head"}
    rules = {"head": "float", "stem": "int8_per_tensor", "default": "int8"}
    hybrid = delegraph.quantize(net, batches(), backends=["asic"], recipe=rules, plugins=plugins)
    assert stored(hybrid) == {"hidden": "int8"}


@pytest.mark.parametrize("recipe", ["int8", "int8_weight_only"])
@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("cpu{minimum_node=2}", "partitioner 'cpu' has no option 'minimum_node'.* did you mean 'minimum_nodes'"),
        (("cpu", {"minimum_node": 2}), "partitioner 'cpu' has no option 'minimum_node'"),
        (
            ["cpu", {}],
            r"backends has \['cpu', \{\}\]; it takes names of installed partitioners, \(name,",
        ),
        ({"cpu": {}}, r"backends has \{'cpu': \{\}\}; it takes names"),
        (b"cpu", "backends has b'cpu'; it takes names"),
        (None, "backends has None; it takes names"),
        ("cpu,npu", "character 4 is ','"),
        ("cqu", "no installed distribution offers 'cqu' in delegraph.partitioners; did you mean 'cpu'"),
    ],
)
def test_a_backend_that_lowering_would_not_take_is_refused(net: Net, recipe: str, backend: Any, message: str) -> None:
    """It had been quantized for, by the core's quantizer in place of the backend's own."""
    with pytest.raises(DelegraphError, match=message):
        delegraph.quantize(net, batches(), recipe=recipe, backends=[backend])
    with pytest.raises(DelegraphError, match=message):
        delegraph.prepare_qat(net, batches()[0], backends=[backend])


class Tagger(nn.Module):
    """A transposed convolution, an LSTM of two layers and a GRU in both directions, whose weights are all in them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(8, 16, 2, stride=2)
        self.first, self.second = nn.LSTM(16, 32, 2, batch_first=True), nn.GRU(32, 24, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.first(self.up(x).transpose(1, 2))
        return self.second(states)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("recipe", ["int8_weight_only", "int4_weight_only{group_size=8}"])
@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=["kernels", "cpu"])
def test_weights_of_recurrent_layers_and_transposed_convolutions_are_stored(recipe: str, backends: list[str]) -> None:
    """In 8 bits, as those of convolutions; biases stay, and the file has no weight in float."""
    torch.manual_seed(0)
    model, x = Tagger().eval(), torch.randn(2, 8, 5)
    quantized = delegraph.quantize(model, args=(x,), recipe=recipe)
    rows = quantized.report.methods["forward"].layers
    assert [row.operator for row in rows] == ["aten::conv_transpose1d", "aten::lstm.input", "aten::gru.input"]
    kept = {**quantized.program.state_dict, **quantized.program.constants}
    assert all(tensor.ndim == 1 or not tensor.is_floating_point() for tensor in kept.values())
    lowered = delegraph.lower(quantized, backends=backends)
    with torch.no_grad():
        wanted, exact = quantized.program.module()(x).numpy(), model(x).numpy()
    got = delegraph.load(bytes(lowered))(x.numpy())
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    assert sqnr(exact, got) > 35
    if backends:
        report = lowered.report.methods["forward"]
        assert (len(report.delegates), report.leftovers) == (1, ())


CONVOLUTIONS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "conv1d.padding": (nn.Conv1d(8, 16, 3, padding="same"), (2, 8, 12)),
    "conv2d.padding": (nn.Conv2d(8, 16, 3, padding="same"), (2, 8, 6, 6)),
    "conv3d.padding": (nn.Conv3d(8, 16, 3, padding="same"), (2, 8, 4, 4, 4)),
    "conv_transpose1d": (nn.ConvTranspose1d(8, 16, 3), (2, 8, 12)),
    "conv_transpose2d.input": (nn.ConvTranspose2d(8, 16, 3), (2, 8, 6, 6)),
    "conv_transpose3d.input": (nn.ConvTranspose3d(8, 16, 3), (2, 8, 4, 4, 4)),
}


@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=["kernels", "cpu"])
@pytest.mark.parametrize("recipe", ["int8", "int8_weight_only"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_all_forms(name: str, recipe: str, backends: list[str]) -> None:
    """Padding by a word, transposed ones, in one dim to three: no weight stays float."""
    model, shape = CONVOLUTIONS[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    quantized = delegraph.quantize(model, [(x,)], recipe=recipe)
    (row,) = quantized.report.methods["forward"].layers
    assert (row.operator, row.recipe) == (f"aten::{name}", recipe)
    kept = {**quantized.program.state_dict, **quantized.program.constants}
    assert all(tensor.ndim == 1 or not tensor.is_floating_point() for tensor in kept.values())
    run = delegraph.load(bytes(delegraph.lower(quantized, backends=backends)))
    assert sqnr(model(x).detach().numpy(), np.asarray(run(x.numpy()))) > 30


def test_what_a_transposed_convolution_s_channels_are() -> None:
    """A scale for each channel of the result lies along dim 1 of its weight, as a quantizer is told."""
    for name, (model, shape) in CONVOLUTIONS.items():
        program = delegraph.quantize(model, [(torch.randn(shape),)]).program
        (node,) = (node for node in program.graph.nodes if operator_name(node) == f"aten::{name}")
        (dequantize,) = (x for x in node.args[:2] if "per_channel" in operator_name(x))
        assert dequantize.args[3] == channel_dim(node) == ("transpose" in name), name
        assert dequantize.args[1].meta["val"].shape == (16,)


# ---- recipes of the user's own ---------------------------------------------------------------------

OWN = Recipe("mine", activation_bits=8, weight_bits=8, observer="minmax")


@pytest.mark.parametrize("backend", ["cpu", "npu", "dsp", ""])
def test_a_recipe_of_the_user_s_own_is_as_good_as_a_row(net: Net, backend: str) -> None:
    backends = [backend] if backend else []
    own, row = (
        delegraph.quantize(net, batches(), recipe=recipe, backends=backends)
        for recipe in (OWN, "int8{observer=minmax}")
    )
    assert operators(own.program) == operators(row.program)
    named = [delegraph.quantize(net, batches(), quantizers=[(one, {"recipe": OWN})]) for one in backends]
    assert [operators(one.program) for one in named] == [operators(row.program) for _ in named]
    assert {layer.recipe for layer in own.report.methods["forward"].layers} == {"mine"}


def test_a_quantizer_is_told_a_recipe_in_words_where_there_are_some(net: Net, plugins: PluginRegistry) -> None:
    told: list[object] = []

    def made(*, recipe: Any) -> LinearAlone:
        told.append(recipe)
        return LinearAlone(recipe=recipe)

    plugins.register("quantizers", "words", made)
    in_words = recipe_named("int8{observer=percentile, percentile=99.5}")
    by_tensor = Recipe("int8", 8, 8, weight_axis="tensor")
    for recipe in ("int8{reduce_range=true}", in_words, OWN, by_tensor):
        delegraph.quantize(net, batches(1), recipe=recipe, backends=["words"], plugins=plugins)
    assert told == ["int8{reduce_range=true}", in_words.text, OWN, by_tensor]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": 8}, "recipe 8: name is a text, not 8"),
        ({"activation_bits": 4}, "recipe 'mine': activation_bits is 8, 16 or None, not 4"),
        ({"weight_bits": 16}, "weight_bits is 8, 4 or None, not 16"),
        ({"dynamic": "yes"}, "dynamic is true or false, not 'yes'"),
        ({"activation_bits": 16, "dynamic": True}, "dynamic is for values of 8 bits, not True"),
        ({"weight_axis": "tensr"}, "weight_axis is one of channel, tensor, not 'tensr'; did you mean 'tensor'"),
        ({"observer": "nope"}, "observer is one of histogram, minmax, moving_average, percentile, not 'nope'"),
        ({"group_size": True}, "group_size is a number, or 0 for whole rows, not True"),
        ({"weight_bits": 4, "group_size": 3}, "group_size is an even number, two weights to a byte"),
        ({"percentile": "99"}, "percentile is above 50 and at most 100, not '99'"),
        ({"reduce_range": None}, "reduce_range is true or false, not None"),
    ],
    ids=str,
)
def test_a_recipe_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(LoweringError, match=re.escape(message)):
        replace(OWN, **fields)


def test_a_recipe_reads_as_it_was_written() -> None:
    for text in ("int8", "int8{observer=percentile, percentile=99.9}", "int4_weight_only{group_size=64}", "float"):
        assert recipe_named(text).text == text
        assert recipe_named(recipe_named(text)) == recipe_named(text)
    assert OWN.text == "mine{activation_bits=8, weight_bits=8, observer=minmax}"


# ---- what it gives ---------------------------------------------------------------------------------


def test_several_methods(net: Net) -> None:
    models = {"encode": nn.Linear(4, 4), "decode": nn.Linear(4, 2)}
    x = (torch.randn(3, 4),)
    quantized = delegraph.quantize(models, {"encode": [x], "decode": [x]}, dict.fromkeys(models, x))
    assert set(quantized) == set(models)
    assert len(quantized) == 2
    assert set(delegraph.lower(quantized).program.methods) == set(models)
    assert set(quantized.report.methods) == set(models)
    with pytest.raises(LoweringError, match="several methods, encode, decode: take one by its name"):
        _ = quantized.program
    assert repr(quantized) == "QuantizedModel(encode, decode)"


def test_methods_of_different_recipes(net: Net) -> None:
    """Each quantized by itself, beside one that is not; those that have several methods are to be taken apart."""
    x = batches()[0]
    full, quick = (delegraph.quantize(net, None, x, recipe=recipe) for recipe in ("int8_weight_only", "int8_dynamic"))
    models = {"full": full, "quick": quick, "float": torch.export.export(net, x)}
    lowered = delegraph.lower(models)
    for method in models:
        given = delegraph.load(bytes(lowered), method=method)(x[0].numpy())
        np.testing.assert_allclose(given, net(*x).detach().numpy(), atol=0.1)
    assert [len(p.graph.nodes) for p in map(delegraph.aot.to_edge(models).exported_program, models)]
    both = delegraph.quantize({"a": net, "b": net}, None, {"a": x, "b": x}, recipe="int8_weight_only")
    with pytest.raises(LoweringError, match=r"method 'c': expected an nn\.Module or .* not QuantizedModel"):
        delegraph.lower({"c": both})


def test_the_report_as_text_json_and_picture(net: Net, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    quantized = delegraph.quantize(net, batches())
    (layer,) = [one for one in quantized.report.methods["forward"].layers if one.module == "hidden"]
    assert layer.float_nbytes == 4 * 64 * 128 == 32_768
    assert layer.weight_nbytes == 64 * 128 + 64 * (4 + 8)  # codes, scales and torchao's zero points
    assert layer.low is not None
    assert layer.high is not None
    assert layer.low < 0 < layer.high
    quantized.report.print()
    printed = capsys.readouterr().out
    assert "hidden" in printed
    assert f"{layer.sqnr:.1f} dB" in printed
    assert str(quantized) == str(quantized.report)
    data = json.loads(json.dumps(quantized.report.to_json(), allow_nan=False))
    assert [row["name"] for row in data["methods"]["forward"]["layers"] if row["module"] == "hidden"] == [layer.name]
    picture = ElementTree.fromstring(quantized.report.to_svg())
    texts = [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert any("hidden" in text for text in texts)
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}rect"))) == 1 + len(data["methods"]["forward"]["layers"])
    assert texts[:5] == ["0 dB", "10", "20", "30", "40"]
    quantized.save(tmp_path / "q.pt2")
    assert set(torch.export.load(tmp_path / "q.pt2").state_dict) == set(quantized.program.state_dict)


# ---- what is refused -------------------------------------------------------------------------------

DATA = batches(1)
REFUSED: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("a name", {"recipe": "int9"}, LoweringError, "no recipe 'int9'; recipes are float, int8,"),
    ("a thing", {"recipe": 8}, LoweringError, "a recipe is a name, such as 'int8', not 8"),
    ("an option", {"recipe": "int4_weight_only{group=64}"}, UnknownOption, "takes group_size, not 'group'"),
    ("no options", {"recipe": "float{group_size=64}"}, UnknownOption, "takes no options, not 'group_size'"),
    ("odd groups", {"recipe": "int4_weight_only{group_size=3}"}, LoweringError, "an even number, two weights to"),
    ("a group", {"recipe": "int8_weight_only{group_size=-1}"}, LoweringError, "a number, or 0 for whole rows, not -1"),
    ("an observer", {"recipe": "int8{observer=histo}"}, LoweringError, "observer is one of .*did you mean 'histogram'"),
    ("a share", {"recipe": "int8{observer=percentile, percentile=2}"}, LoweringError, "above 50 and at most 100"),
    ("a share of none", {"recipe": "int8{percentile=60}"}, LoweringError, "write observer=percentile too"),
    ("no rules", {"recipe": {}}, LoweringError, 'none for the rest of the model: add "default"'),
    ("no rest", {"recipe": {"stem": "float"}}, LoweringError, 'none for the rest of the model: add "default"'),
    ("a rule", {"recipe": {3: "float", "default": "int8"}}, LoweringError, "a pattern or a type, not for 3"),
    ("backends", {"backends": "npu"}, LoweringError, r"it takes a list: write \['npu'\]"),
    ("a slip", {"backends": ["cup"]}, PluginNotFound, "offers 'cup' in delegraph.partitioners; did you mean 'cpu'"),
    ("both", {"recipe": "int8", "quantizers": []}, LoweringError, "two ways to say the same: give one of them"),
    ("backends of none", {"backends": [], "quantizers": []}, LoweringError, "whose quantizers a recipe goes to, which"),
    *(
        ("layers to keep", {"keep_float": given}, LoweringError, f"layers stay float, 0 or more, not {given}")
        for given in (-1, 1.5, True)
    ),
    *(
        ("a limit", {"min_sqnr": given}, LoweringError, f"a number of dB, such as 20.0, or None, not {given!r}")
        for given in ("20", True, math.nan)
    ),
    ("no data", {"data": None, "args": DATA[0]}, LoweringError, "which 'int8' needs: .*--data calib.npz"),
    (
        "nothing to measure on",
        {"data": None, "args": DATA[0], "recipe": "int8_weight_only", "keep_float": 1},
        LoweringError,
        "no calibration data, which 'keep_float' needs",
    ),
]


@pytest.mark.parametrize(("given", "error", "message"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED])
def test_what_is_refused(net: Net, given: dict[str, Any], error: type[Exception], message: str) -> None:
    data = given.pop("data", DATA) if "data" in given else DATA
    with pytest.raises(error, match=message):
        delegraph.quantize(net, data, **given)


def test_a_weight_of_several_methods_is_stored_once_and_lies_in_memory_once() -> None:
    """Prefill and decode of a language model read the same matrices: the second is quantized for nothing."""
    torch.manual_seed(0)
    layer = nn.Linear(64, 64)
    programs = {name: torch.export.export(layer, (torch.randn(n, 64),)) for name, n in (("decode", 1), ("prefill", 8))}
    quantized = delegraph.quantize(programs, recipe="int4_weight_only")
    constants = [{**program.state_dict, **program.constants} for program in quantized.values()]
    for name in ("weight_packed", "weight_packed_scales"):
        assert constants[0][name].data_ptr() == constants[1][name].data_ptr(), name
    assert torch.equal(programs["prefill"].state_dict["weight"], layer.weight)


def test_weights_of_one_name_in_different_methods_are_not_taken_for_each_other() -> None:
    torch.manual_seed(0)
    programs = {name: torch.export.export(nn.Linear(64, 64), (torch.randn(1, 64),)) for name in ("one", "other")}
    run = delegraph.load(bytes(delegraph.lower(delegraph.quantize(programs, recipe="int8_weight_only"))), method="one")
    x = torch.randn(1, 64)
    for name, program in programs.items():
        np.testing.assert_allclose(getattr(run, name)(x.numpy()), program.module()(x).detach(), atol=0.02)


@pytest.mark.parametrize("bits", [4, 8])
def test_large_matrices_are_rounded_block_by_block_as_they_are_at_once(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = torch.randn(100, 32, generator=torch.Generator().manual_seed(0))
    at_once = packing.quantize_rows(rows, bits)
    monkeypatch.setattr(packing, "_BLOCK", 3 * 32)
    for parts, whole in zip(packing.quantize_rows(rows, bits), at_once, strict=True):
        assert torch.equal(parts, whole)
