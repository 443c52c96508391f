"""XNNPACK, lowered and run through the bridge, against ExecuTorch's own lowering and runtime."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

import delegraph
from delegraph.errors import DelegateInvalidCompatibility, FallbackWarning, PluginLoadError, RuntimeFault, UnknownOption
from delegraph.interfaces import Availability, BackendInterface
from delegraph.program import deserialize_program, serialize_flat_tensor
from delegraph.runtime import Runtime

from .models import conv_net, mlp, own_lowering, quantized, run_there

pytestmark = [
    pytest.mark.executorch,
    pytest.mark.filterwarnings("ignore"),  # those of ExecuTorch and torchao on themselves
]


@pytest.fixture
def xnnpack() -> Any:
    from executorch.backends.xnnpack.partition import xnnpack_partitioner

    return xnnpack_partitioner


def test_outputs_equal_those_of_executorchs_own_file_on_either_runtime(xnnpack: Any) -> None:
    model, args = conv_net()
    exported = torch.export.export(model, args)
    lowered = delegraph.lower(exported, backends=["executorch:xnnpack"])
    theirs = run_there(own_lowering(exported, xnnpack.XnnpackPartitioner()), *args)[0]
    torch.testing.assert_close(run_there(bytes(lowered), *args)[0], theirs)
    here = delegraph.load(bytes(lowered))
    np.testing.assert_allclose(here(args[0].numpy()), theirs, rtol=1e-5, atol=1e-6)
    other = torch.randn(1, 3, 8, 8)
    np.testing.assert_allclose(here(other.numpy()), model(other).detach(), rtol=1e-4, atol=1e-5)


def test_report_is_ours() -> None:
    model, args = conv_net()
    report = delegraph.lower(model, args, backends=["executorch:xnnpack"]).report.methods["forward"]
    assert {entry.backend for entry in report.delegates} == {"XnnpackBackend"}
    (erf,) = [entry for entry in report.leftovers if entry.operator == "aten::erf"]
    assert erf.reasons == {"executorch:xnnpack": "executorch's XnnpackPartitioner did not take it"}
    assert "torch.erf(y.mean((2, 3)))" in str(erf.location)


def test_what_its_constraints_say_is_the_reason() -> None:
    class Mixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.double().sigmoid()

    report = delegraph.lower(Mixed(), (torch.randn(4),), backends=["executorch:xnnpack"]).report.methods["forward"]
    said = {entry.operator: entry.reasons["executorch:xnnpack"] for entry in report.leftovers}
    assert said["aten::sigmoid"] == "invalid dtype"


def test_a_partitioner_of_executorch_as_it_is(xnnpack: Any) -> None:
    model, args = mlp()
    lowered = delegraph.lower(model, args, backends=[xnnpack.XnnpackFloatingPointPartitioner()])
    (entry,) = lowered.report.methods["forward"].delegates
    assert (entry.partitioner, entry.backend) == ("XnnpackFloatingPointPartitioner", "XnnpackBackend")
    np.testing.assert_allclose(delegraph.load(bytes(lowered))(args[0].numpy()), model(*args).detach(), rtol=1e-5)


@pytest.mark.parametrize("backends", [["executorch:xnnpack", "cpu"], ["cpu", "executorch:xnnpack"]])
def test_theirs_and_ours_in_one_program(backends: list[str]) -> None:
    model, args = conv_net()
    lowered = delegraph.lower(model, args, backends=backends)
    report = lowered.report.methods["forward"]
    assert not report.leftovers
    assert {entry.backend for entry in report.delegates} >= {"CpuBackend"}
    assert report.delegates[0].partitioner == backends[0]
    result = delegraph.load(bytes(lowered))(args[0].numpy())
    np.testing.assert_allclose(result, model(*args).detach(), rtol=1e-4, atol=1e-5)


def test_static_quantization(xnnpack: Any) -> None:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    torch.manual_seed(0)  # XNNPACK takes all of it: a kernel's last bit cannot move a value to the next step
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1)).eval()
    args = (torch.randn(1, 3, 8, 8),)
    exported = quantized(model, args, XNNPACKQuantizer().set_global(get_symmetric_quantization_config()))
    lowered = delegraph.lower(exported, backends=["executorch:xnnpack"])
    theirs = run_there(own_lowering(exported, xnnpack.XnnpackPartitioner()), *args)[0]
    np.testing.assert_allclose(delegraph.load(bytes(lowered))(args[0].numpy()), theirs, rtol=1e-5, atol=1e-6)
    mixed = delegate_and_run(exported, args, ["executorch:xnnpack", "cpu"])
    np.testing.assert_allclose(mixed, theirs, rtol=1e-5, atol=1e-6)
    operators = {op for entry in lowered.report.methods["forward"].delegates for op in entry.operators}
    assert {"aten::convolution", "quantized_decomposed::dequantize_per_tensor"} <= operators


def delegate_and_run(exported: Any, args: tuple[torch.Tensor, ...], backends: list[str]) -> Any:
    lowered = delegraph.lower(exported, backends=backends)
    return delegraph.load(bytes(lowered))(*(x.numpy() for x in args))


def test_dynamically_quantized_linear(xnnpack: Any) -> None:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    model, args = mlp()
    exported = quantized(model, args, XNNPACKQuantizer().set_global(config))
    lowered = delegraph.lower(exported, backends=["executorch:xnnpack"])
    assert not lowered.report.methods["forward"].leftovers
    theirs = run_there(own_lowering(exported, xnnpack.XnnpackPartitioner()), *args)[0]
    np.testing.assert_allclose(delegraph.load(bytes(lowered))(args[0].numpy()), theirs, rtol=1e-5, atol=1e-6)


def test_dynamic_shapes() -> None:
    model, args = mlp()
    lowered = delegraph.lower(model, args, dynamic_shapes=({0: Dim("batch", max=64)},), backends=["executorch:xnnpack"])
    run = delegraph.load(bytes(lowered))
    for batch in (3, 64, 1, 17):
        x = torch.randn(batch, 16)
        np.testing.assert_allclose(run(x.numpy()), model(x).detach(), rtol=1e-4, atol=1e-5)


def test_weights_of_two_methods_are_stored_once() -> None:
    layer = torch.nn.Linear(64, 64).eval()
    twice = torch.nn.Sequential(layer, torch.nn.ReLU()).eval()
    args = (torch.randn(2, 64),)
    lowered = delegraph.lower(
        {"once": layer, "relu": twice}, {"once": args, "relu": args}, backends=["executorch:xnnpack"]
    )
    assert len(bytes(lowered)) < 2 * 64 * 64 * 4
    run = delegraph.load(bytes(lowered), method="relu")
    np.testing.assert_allclose(run(args[0].numpy()), twice(*args).detach(), rtol=1e-4, atol=1e-5)


def test_options_arrive() -> None:
    model, args = mlp()
    lowered = delegraph.lower(model, args, backends=["executorch:xnnpack{per_op_mode=true}"])
    assert len(lowered.report.methods["forward"].delegates) == 2  # a linear layer with its activation, and another
    relu = torch.nn.ReLU()
    only = delegraph.lower(relu, args, backends=["executorch:xnnpack{config_precisions=DYNAMIC_QUANT}"])
    assert not only.report.methods["forward"].delegates
    assert delegraph.lower(relu, args, backends=["executorch:xnnpack"]).report.methods["forward"].delegates


def test_options_that_are_none_are_refused() -> None:
    model, args = mlp()
    with pytest.raises(UnknownOption, match=r"has no option 'per_op'; it has .*did you mean 'per_op_mode'"):
        delegraph.lower(model, args, backends=["executorch:xnnpack{per_op=true}"])
    with pytest.raises(PluginLoadError, match="config_precisions is 'FP8'; it takes FP32, STATIC_QUANT, DYNAMIC_QUANT"):
        delegraph.lower(model, args, backends=["executorch:xnnpack{config_precisions=FP8}"])


@pytest.mark.parametrize("example", [conv_net, mlp])
def test_quick_retracing_changes_no_blob(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from delegraph_executorch.bridge import lowerings

    exported = torch.export.export(*example())
    quick = deserialize_program(bytes(delegraph.lower(exported, backends=["executorch:xnnpack"])))
    monkeypatch.setattr(lowerings, "quick_retracing", lambda programs: nullcontext())
    slow = deserialize_program(bytes(delegraph.lower(exported, backends=["executorch:xnnpack"])))
    assert list(map(bytes, quick.delegate_data)) == list(map(bytes, slow.delegate_data))
    assert {key: bytes(data.data) for key, data in quick.named_data.items()} == {
        key: bytes(data.data) for key, data in slow.named_data.items()
    }


def test_a_filter_that_raises_keeps_nothing(xnnpack: Any) -> None:
    class Pool(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.max_pool2d(x, 2)

    class Raising(xnnpack.XnnpackPartitioner):  # type: ignore[misc, name-defined]
        def ops_to_not_decompose(self, ep: torch.export.ExportedProgram) -> Any:
            return [torch.ops.aten.max_pool2d.default], lambda node: node.args[7]  # as its own in 1.4

    args = (torch.randn(1, 2, 4, 4),)
    exported = torch.export.export(Pool(), args)
    with pytest.raises(IndexError):
        own_lowering(exported, Raising())
    lowered = delegraph.lower(exported, backends=[Raising()])
    np.testing.assert_allclose(delegraph.load(bytes(lowered))(args[0].numpy()), Pool()(*args))


TORCHAO = {
    "8da4w": ("Int8DynamicActivationIntxWeightConfig", "weight_", 4, 32, 1),
    "8da8w": ("Int8DynamicActivationIntxWeightConfig", "weight_", 8, 0, 1),
    "4w": ("IntxWeightOnlyConfig", "", 4, 32, 0),
    "8w": ("IntxWeightOnlyConfig", "", 8, 0, 0),
}
"""Form -> torchao's configuration, how it names what weights get, their bits, the size of a group, and how many of
XNNPACK's delegates have products with them: ExecuTorch's own lowering gives it those without quantized values, too, and
the results are off by thousands."""


@pytest.mark.parametrize("form", TORCHAO)
@pytest.mark.parametrize("others", [[], ["cpu"]], ids=["alone", "before cpu"])
def test_weights_that_torchao_quantized(form: str, others: list[str]) -> None:
    from torchao import quantization
    from torchao.quantization import granularity

    config, prefix, bits, group, delegates = TORCHAO[form]
    sizes = granularity.PerGroup(group) if group else granularity.PerAxis(0)
    settings = {f"{prefix}granularity": sizes, "weight_dtype": getattr(torch, f"int{bits}")}
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)]
    model, x = torch.nn.Sequential(*layers).eval(), torch.randn(4, 64)
    quantization.quantize_(model, getattr(quantization, config)(**settings))
    lowered = delegraph.lower(model, (x,), backends=["executorch:xnnpack", *others])
    products = [d for d in lowered.report.methods["forward"].delegates if "aten::linear" in d.operators]
    assert len([d for d in products if d.backend == "XnnpackBackend"]) == delegates
    np.testing.assert_allclose(delegraph.load(bytes(lowered))(x.numpy()), model(x).detach(), atol=0.01)


@pytest.mark.parametrize("recipe", ["int8_weight_only", "int4_weight_only", "int8_dynamic_int4_weight"])
def test_weights_that_our_recipes_stored(recipe: str) -> None:
    """XNNPACK takes none of them: it would compute with the codes, or fail."""
    model, args = mlp()
    quantized_model = delegraph.quantize(model, [args], recipe=recipe, backends=["executorch:xnnpack"])
    lowered = delegraph.lower(quantized_model, backends=["executorch:xnnpack"])
    leftovers = lowered.report.methods["forward"].leftovers
    assert {entry.operator for entry in leftovers} & {"aten::mm", "aten::addmm", "aten::linear"}
    np.testing.assert_allclose(delegraph.load(bytes(lowered))(args[0].numpy()), model(*args).detach(), atol=0.1)


def test_codes_that_are_restored_by_hand() -> None:
    """XNNPACK takes the conversion of integers, and reads their bytes as floats."""

    class Restored(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes = torch.nn.Buffer(torch.randint(-128, 127, (8, 16), dtype=torch.int8))
            self.scales = torch.nn.Buffer(torch.rand(8, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.linear(x.relu(), self.codes.view(8, 16).to(torch.float32) * self.scales)

    model, x = Restored(), torch.randn(4, 16)
    lowered = delegraph.lower(model, (x,), backends=["executorch:xnnpack"])
    assert lowered.report.methods["forward"].delegates
    np.testing.assert_allclose(delegraph.load(bytes(lowered))(x.numpy()), model(x), rtol=1e-5, atol=1e-3)


def test_the_model_is_left_as_it_was() -> None:
    model, args = conv_net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    delegraph.lower(model, args, backends=["executorch:xnnpack"])
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_a_damaged_blob_is_a_runtime_fault() -> None:
    from dataclasses import replace

    from delegraph.program import serialize_program

    model, args = mlp()
    program = deserialize_program(bytes(delegraph.lower(model, args, backends=["executorch:xnnpack"])))
    damaged = serialize_program(replace(program, delegate_data=(b"no blob of XNNPACK" * 4,)))
    with pytest.raises(RuntimeFault, match="XnnpackBackend cannot load a blob: Failed to load") as caught:
        delegraph.load(damaged)(args[0].numpy())
    assert isinstance(caught.value, DelegateInvalidCompatibility)


def test_external_weights_are_found_by_content_and_no_others_are_taken() -> None:
    """XNNPACK names what it stores by its content: another model's file has none of it."""
    model, args = mlp()
    config = delegraph.LoweringConfig(executorch=delegraph.ExecutorchBackendConfig(external_constants={"*": "w"}))
    torch.manual_seed(7)
    others = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    lowered, other = (
        delegraph.lower(one, given, backends=["executorch:xnnpack"], config=config)
        for one, given in ((model, args), (others, (torch.randn(1, 4),)))
    )
    data, wrong = (serialize_flat_tensor(made.program.tensor_data["w"]) for made in (lowered, other))
    assert len(bytes(lowered)) < len(data)
    here = delegraph.load(bytes(lowered), data_path=data)(*(x.numpy() for x in args))
    np.testing.assert_allclose(here, model(*args).detach(), rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeFault):
        delegraph.load(bytes(lowered), data_path=wrong)(*(x.numpy() for x in args))


class Gone(BackendInterface):
    """A backend that is not available: nothing else of it is called."""

    def is_available(self) -> Availability:
        return Availability(False, "it was taken out")

    def init(self, *arguments: Any) -> Any:
        raise AssertionError

    def execute(self, *arguments: Any) -> None:
        raise AssertionError


def test_a_file_with_a_fallback_runs_in_executorch_as_before_and_here_without_the_backend() -> None:
    model, args = conv_net()
    lowered = delegraph.lower(model, args, backends=["executorch:xnnpack"], fallback="kernels")
    assert {(entry.backend, entry.reason) for entry in lowered.report.fallbacks} == {("XnnpackBackend", "")}
    expected = model(*args).detach()
    torch.testing.assert_close(run_there(bytes(lowered), *args)[0], expected)
    program = Runtime(backends={"XnnpackBackend": Gone()}).load_program(bytes(lowered))
    with pytest.warns(FallbackWarning, match="it was taken out"):
        method = program.load_method("forward")
    np.testing.assert_allclose(method.execute([args[0].numpy()])[0], expected, rtol=1e-4, atol=1e-5)
