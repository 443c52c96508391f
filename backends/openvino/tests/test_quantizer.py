"""What the quantizer "openvino" has rounded, and what of it runs on integer kernels; dynamic quantization."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import openvino
import pytest
import torch
from backends.openvino.tests.harness import declined, load
from backends.openvino.tests.test_models import Convolutions, quantized

import delegraph
from delegraph.errors import LoweringError
from delegraph.runtime import EventTracer, Program
from delegraph_openvino.aot.quantizer import openvino_quantizer
from delegraph_openvino.blob import BACKEND_ID
from delegraph_openvino.runtime.profiling import NodeTimes
from delegraph_openvino.runtime.saturation import products_saturate


class Block(torch.nn.Module):
    """Layers with something that has no integers between them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(16), torch.nn.Linear(16, 64), torch.nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grown: torch.Tensor = self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return x + grown


def rounded(program: Any) -> list[str]:
    """Who reads rounded values, in order."""
    return [
        user.name
        for node in program.program.graph.nodes
        if str(node.target).startswith("quantized_decomposed.dequantize_per_tensor")
        for user in node.users
    ]


def test_what_layers_read_is_rounded_and_what_they_give_is_not() -> None:
    torch.manual_seed(0)
    assert rounded(quantized(Block().eval(), (torch.randn(2, 16),), backends=["openvino"])) == ["linear", "linear_1"]
    names = rounded(quantized(Convolutions().eval(), (torch.randn(2, 3, 8, 8),), backends=["openvino"]))
    assert sorted(names) == sorted(["conv2d", "conv2d_1", "conv2d_2", "add", "add", "mean", "linear"])


@pytest.mark.parametrize("biases", [True, False])
def test_layers_run_on_integer_kernels(biases: bool) -> None:
    """OpenVINO says so of each that it runs: the precision is the end of a kernel's name. None does where integer
    kernels saturate."""
    core = openvino.Core()
    if "INT8" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("OpenVINO has no kernels for int8 on this processor")
    torch.manual_seed(0)
    model, x = Convolutions().eval(), torch.randn(2, 3, 16, 16)
    if not biases:
        for layer in model.children():
            layer.register_parameter("bias", None)
    lowered = delegraph.lower(quantized(model, (x,), backends=["openvino"]), backends=["openvino"])
    kernels = {str(event.delegate_debug_id): event.metadata.decode() for event in profile(lowered, x.numpy())}
    layers = {name: kind for name, kind in kernels.items() if "conv2d" in name or "linear" in name}
    assert len(layers) == 4
    on_integers = {name for name, kind in layers.items() if kind.lower().endswith("i8")}
    assert on_integers == (set() if products_saturate(core) else set(layers))


class Upsampling(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.last = torch.nn.Conv2d(3, 16, 3, 2, 1), torch.nn.Conv2d(16, 4, 3, 1, 1)
        self.up = torch.nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.grouped = torch.nn.ConvTranspose2d(16, 16, 3, padding=1, groups=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.grouped(self.up(torch.relu(self.down(x))))))  # type: ignore[no-any-return]


def test_transposed_convolutions_are_rounded_by_channel_of_the_result() -> None:
    """On integer kernels; those of several groups stay in float."""
    torch.manual_seed(0)
    model, x = Upsampling().eval(), torch.randn(1, 3, 16, 16)
    program = quantized(model, (x,), backends=["openvino"])
    assert sorted(rounded(program)) == ["conv2d", "conv2d_1", "conv_transpose2d"]
    lowered = delegraph.lower(program, backends=["openvino"])
    kernels = {str(event.delegate_debug_id): event.metadata.decode() for event in profile(lowered, x.numpy())}
    core = openvino.Core()
    on_integers = "INT8" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES") and not products_saturate(core)
    assert kernels["aten_conv_transpose2d_input"].lower().endswith("i8") == on_integers
    with torch.no_grad():
        wanted, given = model(x).numpy(), np.asarray(load(lowered)(x.numpy()))
    assert 10 * np.log10((wanted**2).sum() / ((wanted - given) ** 2).sum()) > 30


class Heads(torch.nn.Module):
    """Attention of two heads over 32 places, and one that others wrote in its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.values = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, v = (layer(x).unflatten(-1, (2, 16)).transpose(1, 2) for layer in (self.queries, self.values))
        y = torch.nn.functional.scaled_dot_product_attention(q, v, v)
        parts: torch.Tensor = torch.softmax(y @ v.transpose(-1, -2) / 4, -1) @ v
        return parts


def test_attention_is_rounded_in_front_of_its_products() -> None:
    """On grids about zero, of which alone the device has kernels, and on one of the weights' own."""
    torch.manual_seed(0)
    model, x = Heads().eval(), torch.randn(1, 32, 32)
    program = quantized(model, (x,), backends=["openvino"])
    assert Counter(name.partition("_")[0] for name in rounded(program)) == {"linear": 2, "matmul": 8}
    zeros = [
        node.args[2]
        for node in program.program.graph.nodes
        if str(node.target).startswith("quantized_decomposed.dequantize_per_tensor")
        and any("matmul" in user.name for user in node.users)
    ]
    assert sorted(set(zeros)) == [-128, 0] and zeros.count(-128) == 2  # of two softmaxes
    wanted = program.program.module()(x).detach().numpy()
    given = np.asarray(load(delegraph.lower(program, backends=["openvino"]))(x.numpy()))
    assert 10 * np.log10((wanted**2).sum() / ((wanted - given) ** 2).sum()) > 30


class Padded(torch.nn.Module):
    """As much behind as in front and one more, as convolutions of TensorFlow's are padded."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            torch.nn.Conv2d(3, 16, 3),
            torch.nn.Conv2d(16, 16, 3, stride=2, padding=(1, 0), groups=4),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(torch.nn.functional.pad(x, (1, 2, 3, 0))))
        padded: torch.Tensor = self.second(torch.nn.functional.pad(x, (0, 1)))
        return padded


def test_zeros_around_what_is_convolved_are_its_padding() -> None:
    """Where they stand in front of the rounding, too: they would be a copy of floats."""
    torch.manual_seed(0)
    model, x = Padded().eval(), torch.randn(2, 3, 13, 16)
    program = quantized(model, (x,), backends=["openvino"])
    lowered = delegraph.lower(program, backends=["openvino"])
    assert not [event for event in profile(lowered, x.numpy()) if "pad" in str(event.delegate_debug_id)]
    kernels, given = delegraph.load(bytes(delegraph.lower(program)))(x.numpy()), load(lowered)(x.numpy())
    assert np.abs(given - kernels).max() <= np.abs(kernels).max() / 100


@pytest.mark.parametrize(
    ("amounts", "mode", "value"),
    [
        ((1, 1, 1, 1), "constant", 2.0),
        ((-1, 1), "constant", None),
        ((1, 1, 1, 1), "reflect", None),
        ((0, 0, 0, 0, 1, 0), "constant", 0.0),
    ],
)
def test_other_padding_stays(amounts: tuple[int, ...], mode: str, value: float | None) -> None:
    class Other(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Conv2d(4, 8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.layer(torch.nn.functional.pad(x, amounts, mode, value))
            return result

    torch.manual_seed(0)
    x = torch.randn(2, 4 - (len(amounts) == 6), 8, 8)
    program = quantized(Other().eval(), (x,), backends=["openvino"])
    lowered = delegraph.lower(program, backends=["openvino"])
    kernels, given = delegraph.load(bytes(delegraph.lower(program)))(x.numpy()), load(lowered)(x.numpy())
    assert np.abs(given - kernels).max() <= np.abs(kernels).max() / 100


def test_zeros_that_rounding_makes_something_else_of_stay() -> None:
    """A zero point outside of the integers: no code stands for zero."""
    ops = torch.ops.quantized_decomposed

    class Above(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Conv2d(2, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
            codes = ops.quantize_per_tensor(padded, 0.05, -20, 0, 127, torch.uint8)
            result: torch.Tensor = self.layer(ops.dequantize_per_tensor(codes, 0.05, -20, 0, 127, torch.uint8))
            return result

    torch.manual_seed(0)
    model, x = Above().eval(), torch.rand(1, 2, 6, 6) * 4 + 1
    lowered = delegraph.lower(model, (x,), backends=["openvino"])
    np.testing.assert_allclose(load(lowered)(x.numpy()), model(x).detach().numpy(), atol=0.05)


def profile(lowered: Any, *args: Any) -> list[Any]:
    """The events of a run whose delegate tells of its nodes."""
    tracer = EventTracer()
    method = Program.load(bytes(lowered)).load_method(
        "forward", event_tracer=tracer, backend_options={BACKEND_ID: {"profiling": True, "num_threads": 1}}
    )
    method.execute(list(args))
    return [event for event in tracer.blocks[-1].profile_events if event.delegate_debug_id is not None]


def test_events_lead_back_to_the_models_nodes() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Softmax(-1)).eval(), torch.randn(32, 64)
    lowered = delegraph.lower(model, (x,), backends=["openvino"])
    events = profile(lowered, x.numpy())
    (delegate,) = lowered.program.delegate_map["forward"].values()
    assert {event.delegate_debug_id for event in events} == delegate["delegate_map"].keys()
    assert sorted(handle for handles in delegate["delegate_map"].values() for handle in handles) == [1, 2]
    spans = [(event.start, event.end) for event in events]
    assert all(start < end for start, end in spans)
    assert [end for _, end in spans[:-1]] == [start for start, _ in spans[1:]]
    assert profile(lowered, x.numpy())  # and again, on a request of its own


def test_the_first_run_in_which_kernels_are_made_is_in_no_other() -> None:
    """OpenVINO tells the average of all runs; the times here are the microseconds of each, one after the other."""

    def node(microseconds: float) -> Any:
        status = SimpleNamespace(EXECUTED=1)
        return SimpleNamespace(node_name="a/0", real_time=timedelta(microseconds=microseconds), status=1, Status=status)

    times = NodeTimes()
    averages = [2009, 1008, 674, 507]
    requests: list[Any] = [SimpleNamespace(profiling_info=[node(average)]) for average in averages]
    told = [elapsed for request in requests for _, elapsed in times.read(request)]
    assert told == [2_009_000, 7_000, 6_500, round(19_000 / 3)]


@pytest.mark.parametrize("recipe", ["int4_weight_only", "int16x8", "int8_weight_only"])
def test_recipes_of_others(recipe: str) -> None:
    with pytest.raises(LoweringError, match=f"8 bits, and recipe '{recipe}' has others"):
        openvino_quantizer(recipe=recipe)


def test_dynamic_quantization_is_one_delegate() -> None:
    """Scales that are found in the run: as kernels compute them, but for ties."""
    torch.manual_seed(0)
    model, x = Block().eval(), torch.randn(4, 16)
    program = delegraph.quantize(model, None, (x,), recipe="int8_dynamic", backends=["openvino"])
    assert rounded(program) == ["linear", "linear_1"]
    lowered = delegraph.lower(program, backends=["openvino"])
    assert declined(lowered) == {} and len(lowered.report.methods["forward"].delegates) == 1
    kernels = delegraph.load(bytes(delegraph.lower(program)))
    for scale in (1.0, 1e-6, 0.0, -30.0):
        given = x.numpy() * np.float32(scale)
        wanted = kernels(given)
        step = max(float(np.ptp(wanted)) / 127, 1e-6)
        assert np.abs(load(lowered)(given) - wanted).max() <= 2 * step


@pytest.mark.parametrize("biases", [True, False])
def test_layers_of_a_vector(biases: bool) -> None:
    """Also where products of integers, which give a row, end a model."""
    torch.manual_seed(0)
    model, x = torch.nn.Linear(16, 4, biases).eval(), torch.randn(16)
    lowered = delegraph.lower(quantized(model, (x,), backends=["openvino"]), backends=["openvino"])
    assert declined(lowered) == {}
    given = load(lowered)(x.numpy())
    assert given.shape == (4,)
    np.testing.assert_allclose(given, model(x).detach().numpy(), atol=0.05)


@pytest.mark.parametrize("recipe", ["int8", "int8_dynamic", "int8_weight_only"])
def test_a_table_that_the_head_reads_too_is_stored_once(recipe: str) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = torch.nn.Embedding(1024, 128), torch.nn.Linear(128, 1024)
            self.head.weight = self.table.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(torch.tanh(self.table(tokens)))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    model, tokens = Tied().eval(), torch.arange(0, 1024, 99)
    quantized = delegraph.quantize(model, [(tokens,)], recipe=recipe, backends=["openvino"])
    lowered = delegraph.lower(quantized, backends=["openvino"])
    assert len(bytes(lowered)) < 1.5 * 1024 * 128
    wanted, given = model(tokens).detach().numpy(), load(lowered)(tokens.numpy())
    assert 10 * np.log10((wanted**2).sum() / ((wanted - given) ** 2).sum()) > 30


STEPS = {
    "negative": lambda x: -x,
    "scale": lambda x: x * 0.5,
    "quotient": lambda x: x / 2,
    "sum": lambda x: x + 0.25,
    "difference": lambda x: 0.25 - x,
    "scale by channel": lambda x: x * torch.tensor([0.5, 0.75, 1.0, 0.25]),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("times", [2, 3])
def test_steps_between_roundings_are_not_lost(name: str, times: int) -> None:
    class Steps(torch.nn.Module):
        """Steps with a rounding behind each, all of one range."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = _rounded(x)
            for _ in range(times):
                x = _rounded(STEPS[name](x))
            return x

    x = (torch.arange(-16, 16).reshape(8, 4) / 8).to(torch.float32)
    lowered = delegraph.lower(Steps(), (x,), backends=["openvino"])
    assert lowered.report.methods["forward"].delegates
    np.testing.assert_allclose(load(lowered)(x.numpy()), Steps()(x).numpy(), atol=1e-6)


def _rounded(x: torch.Tensor) -> torch.Tensor:
    arguments = (1 / 64, 0, -128, 127, torch.int8)
    codes = torch.ops.quantized_decomposed.quantize_per_tensor.default(x, *arguments)
    return torch.ops.quantized_decomposed.dequantize_per_tensor.default(codes, *arguments)
