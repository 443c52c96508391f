"""What `prepare_qat` gives: it keeps the numbers of the model's calls, trains and stops, becomes what it computed."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.fx import GraphModule

import delegraph
from delegraph.aot.graph.operator_names import operator_name
from delegraph.errors import LoweringError

pytestmark = [pytest.mark.models, pytest.mark.long]


def sqnr(wanted: torch.Tensor, got: torch.Tensor) -> float:
    wanted, got = wanted.detach(), got.detach()
    return float(10 * torch.log10((wanted**2).sum() / ((wanted - got) ** 2).sum()))


def literals(graph: torch.fx.Graph, operator: str, start: int) -> list[tuple[Any, ...]]:
    """What the calls of an operator have behind their first `start` arguments, in order."""
    return [tuple(node.args[start:]) for node in graph.nodes if operator_name(node) == operator]


class Numbers(nn.Module):
    """Batch norms behind a convolution of each kind, one convolution with two, and elsewhere: no two with one eps."""

    def __init__(self) -> None:
        super().__init__()
        self.lifted, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8, eps=1e-3, momentum=0.3)
        self.grown = nn.ConvTranspose2d(8, 8, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(8, eps=1e-2, momentum=0.2), nn.BatchNorm2d(8, eps=1e-1)])
        self.line, self.normed_line = nn.Conv1d(8, 8, 3, groups=8), nn.BatchNorm1d(8, eps=1e-4)
        self.first, self.second = nn.Dropout(0.1), nn.Dropout(0.3)
        self.head, self.last = nn.Linear(8 * 34, 8), nn.BatchNorm1d(8, eps=3e-2, momentum=0.4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(self.norm(self.lifted(x)).relu())
        x = self.norms[0](self.grown(x)) + self.norms[1](self.grown(x)).relu()
        x = self.normed_line(self.line(x.flatten(2))).relu()
        return self.last(self.head(self.second(x).flatten(1)))  # type: ignore[no-any-return]


NORMS = {
    "norm": (0.3, 1e-3),
    "norms.0": (0.2, 1e-2),
    "norms.1": (0.1, 1e-1),
    "normed_line": (0.1, 1e-4),
    "last": (0.4, 3e-2),
}
RATES = [0.1, 0.3]


def trained_numbers() -> tuple[Numbers, torch.Tensor]:
    """With small variances, beside which each eps counts."""
    torch.manual_seed(0)
    model, x = Numbers(), torch.randn(16, 3, 6, 6)
    for _ in range(60):
        model(0.1 * x)
    return model, 0.1 * x


def check_numbers(prepared: GraphModule, trains: bool) -> None:
    norms = prepared.graph.find_nodes(op="call_function", target=torch.ops.aten.batch_norm.default)
    numbers = {str(node.args[3].target).removesuffix(".running_mean"): node.args[5:] for node in norms}
    assert numbers == {name: (trains, *own, False) for name, own in NORMS.items()}
    assert literals(prepared.graph, "aten::dropout", 1) == [(rate, trains) for rate in RATES]


def test_each_batch_norm_and_dropout_keeps_its_numbers() -> None:
    model, x = trained_numbers()
    prepared = delegraph.prepare_qat(model, (x,))
    check_numbers(prepared, trains=True)
    for module in (prepared, copy.deepcopy(prepared)):
        for mode in (True, False, False, True):
            assert module.train(mode) is module
            assert module.training is mode
            check_numbers(module, mode)
    assert prepared.eval() is prepared
    check_numbers(copy.deepcopy(prepared).train(), trains=True)
    check_numbers(prepared, trains=False)


@pytest.mark.parametrize(("backend", "floats"), [(None, 0), ("npu", 0), ("cpu", 0), ("openvino", 0), ("dsp", 4)])
def test_what_is_converted_computes_what_the_model_did(backend: str | None, floats: int) -> None:
    """`floats` matrices stay float: the DSP has no convolution of integers."""
    if backend == "openvino":
        pytest.importorskip("openvino", reason="its backend is not installed")
    backends = [backend] if backend else None
    model, x = trained_numbers()
    wanted = model.eval()(x)
    prepared = delegraph.prepare_qat(model, (x,), backends=backends).eval()
    prepared(x)  # ranges are found without dropping, and statistics stay
    rounded, of_copy = prepared(x), delegraph.convert_qat(copy.deepcopy(prepared))
    quantized = delegraph.convert_qat(prepared)
    assert sqnr(wanted, rounded) > 25
    for program in (of_copy.program, quantized.program):
        graph, got = program.graph, program.module()(x)
        assert sqnr(rounded, got) > 40
        assert literals(graph, "aten::batch_norm", 5) == [(False, *NORMS["last"], False)]
        assert literals(graph, "aten::dropout", 1) == [(rate, False) for rate in RATES]
        matrices = [name for name, t in program.state_dict.items() if t.is_floating_point() and t.ndim > 1]
        assert len(matrices) == floats  # the others are stored in 8 bits, and none twice
    got = delegraph.load(bytes(delegraph.lower(quantized, backends=backends)))(x.numpy())
    assert sqnr(rounded, torch.from_numpy(np.array(got))) > 30


def test_a_convolution_that_a_rule_keeps_in_float_is_folded_too() -> None:
    model, x = trained_numbers()
    wanted = model.eval()(x)
    prepared = delegraph.prepare_qat(model, (x,), recipe={nn.Conv2d: "float", nn.Conv1d: "float", "default": "int8"})
    prepared.eval()(x)
    program = delegraph.convert_qat(prepared).program
    assert literals(program.graph, "aten::batch_norm", 5) == [(False, *NORMS["last"], False)]
    assert sqnr(wanted, program.module()(x)) > 25


def test_training_with_a_large_eps_costs_no_more_than_quantizing_afterwards() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8, eps=1e-3)).eval()
    model[1].running_var.fill_(1e-3)  # type: ignore[union-attr, operator]
    x = 0.05 * torch.randn(4, 3, 8, 8)
    prepared = delegraph.prepare_qat(model, (x,))
    prepared(x)
    assert sqnr(model(x), delegraph.convert_qat(prepared).program.module()(x)) > 34


def test_converting_does_not_export_patterns_to_look_for_batch_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchao.quantization.pt2e import qat_utils

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("torchao looks for batch norm")

    model, x = trained_numbers()
    prepared = delegraph.prepare_qat(model, (x,))
    prepared(x)
    monkeypatch.setattr(qat_utils, "_get_aten_graph_module_for_pattern", refuse)
    delegraph.convert_qat(prepared)


class Dropping(nn.Module):
    """Everything else that does otherwise in training."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(8, 8, 2, dropout=0.3), nn.GRU(8, 8, 2, dropout=0.4)
        self.elman = nn.ModuleList([nn.RNN(8, 8, 2, nonlinearity=kind, dropout=0.2) for kind in ("tanh", "relu")])
        self.tracking, self.plain = nn.InstanceNorm1d(4, track_running_stats=True), nn.InstanceNorm1d(4)
        self.untracked = nn.BatchNorm1d(4, track_running_stats=False)
        self.dropouts = nn.Sequential(nn.Dropout1d(0.1), nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.3))
        self.in_place = nn.Sequential(nn.Dropout(0.4, inplace=True), nn.AlphaDropout(0.5, inplace=True))
        self.leaky = nn.Sequential(nn.RReLU(), nn.RReLU(inplace=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for cell in (self.lstm, self.gru, *self.elman):
            x = cell(x)[0]
        x = nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.25 if self.training else 0)
        x = self.untracked(self.plain(self.tracking(x)))
        return self.leaky(self.in_place(self.dropouts(x)))  # type: ignore[no-any-return]


def test_all_that_trains_stops_in_eval_mode() -> None:
    torch.manual_seed(0)
    model, x = Dropping(), torch.randn(2, 4, 8)
    model(x)
    prepared = delegraph.prepare_qat(model, (x,), recipe="float")
    in_training = str(prepared.graph)
    for module in (prepared.eval(), copy.deepcopy(prepared)):
        torch.testing.assert_close(module(x), model.eval()(x))
        module.train()
        assert str(module.graph) == in_training
        module.eval()
    torch.testing.assert_close(delegraph.convert_qat(prepared).program.module()(x), model(x))


def test_a_program_that_does_not_train_stays_so_until_it_is_told_to() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.2)).eval()
    x = torch.randn(4, 3, 8, 8)
    prepared = delegraph.prepare_qat(torch.export.export(model, (x,)))
    assert literals(prepared.graph, "aten::batch_norm", 5) == [(False, 0.1, 1e-5, False)]
    prepared.train()
    assert literals(prepared.graph, "aten::batch_norm", 5) == [(True, 0.1, 1e-5, False)]
    assert literals(prepared.graph, "aten::dropout", 1) == [(0.2, True)]


class Misjudged(nn.Module):
    """Batch norms that torchao would take for another one's numbers, each behind a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, affine=False))
        self.of_batch = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8, track_running_stats=False))
        self.grouped = nn.Sequential(nn.ConvTranspose2d(8, 8, 3, groups=2), nn.BatchNorm2d(8))
        self.silent = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
        self.narrow = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)).bfloat16()
        nn.init.zeros_(self.silent[1].weight[:4])  # type: ignore[index, arg-type]
        nn.init.ones_(self.silent[1].bias)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.silent(self.grouped(self.of_batch(self.plain(x))).relu())
        return self.narrow(x.bfloat16()).float()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def misjudged() -> GraphModule:
    torch.manual_seed(0)
    return delegraph.prepare_qat(Misjudged(), (torch.randn(4, 3, 10, 10),))


def test_without_a_batch_there_is_nothing_to_convert(misjudged: GraphModule) -> None:
    with pytest.raises(LoweringError, match=r"has seen no values, .* run it on a few batches"):
        delegraph.convert_qat(copy.deepcopy(misjudged))


def test_what_torchao_would_scale_wrongly_trains_and_is_converted_each_epoch(misjudged: GraphModule) -> None:
    torch.manual_seed(0)
    prepared, x = copy.deepcopy(misjudged), torch.randn(4, 3, 10, 10)
    optimizer = torch.optim.SGD(prepared.parameters(), 1e-2)
    for _ in range(2):
        prepared.train()
        optimizer.zero_grad()
        (prepared(x) - 1).square().mean().backward()
        optimizer.step()
        rounded = prepared.eval()(x)
        before = {name: tensor.clone() for name, tensor in prepared.state_dict().items()}
        program = delegraph.convert_qat(prepared).program
        assert sqnr(rounded, program.module()(x)) > 40
        torch.testing.assert_close(prepared.state_dict(), before)


def test_ranges_stand_still_in_eval_mode(misjudged: GraphModule) -> None:
    torch.manual_seed(0)
    prepared, x = copy.deepcopy(misjudged), torch.randn(4, 3, 10, 10)
    prepared.eval()(x)  # the first ones are found all the same

    def ranges() -> dict[str, torch.Tensor]:
        state = prepared.state_dict().items()
        return {name: tensor.clone() for name, tensor in state if name.endswith(("min_val", "max_val", "scale"))}

    before = ranges()
    prepared(10 * x)
    torch.testing.assert_close(ranges(), before)
    prepared.train()(10 * x)
    assert any(not torch.equal(tensor, before[name]) for name, tensor in ranges().items())


def test_a_table_that_a_layer_has_too_is_stored_once() -> None:
    torch.manual_seed(0)
    model, tokens = nn.Sequential(nn.Embedding(500, 32), nn.ReLU(), nn.Linear(32, 500, bias=False)), torch.arange(20)
    model[2].weight = model[0].weight
    prepared = delegraph.prepare_qat(model, (tokens,))
    optimizer = torch.optim.SGD(prepared.parameters(), 0.1)
    for _ in range(3):  # which leaves the range that was found behind the weight
        prepared(tokens).square().mean().backward()
        optimizer.step()
    wanted = prepared.eval()(tokens)
    quantized = delegraph.convert_qat(prepared)
    assert quantized.report.methods["forward"].nbytes < 1.5 * 500 * 32
    assert sqnr(wanted, quantized.program.module()(tokens)) > 30  # rows of the table are float in training
