"""Quantizers, from their annotations to a program that runs without torch; torchao is underneath."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.test_tiny import without_torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.observer import MinMaxObserver
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, QuantizationSpec, Quantizer

import delegraph
from delegraph.errors import LoweringError, PluginError, PluginNotFound, UnknownOption
from delegraph.plugins import PluginRegistry

aten, decomposed = torch.ops.aten, torch.ops.quantized_decomposed

ANNOTATION = "quantization_annotation"
LAYERS = {"linear": aten.linear.default, "conv": aten.conv2d.default, "matmul": aten.matmul.default}


class Int8Quantizer(Quantizer):  # type: ignore[misc]  # torchao has no types
    """Per tensor, `layers` joined with "+"; takes no account of what is annotated already."""

    def __init__(self, *, layers: str = "linear+conv", bits: int = 8) -> None:
        self.targets = [LAYERS[layer] for layer in layers.split("+")]
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        self.value = QuantizationSpec(torch.int8, MinMaxObserver, low, high, torch.per_tensor_affine)
        self.weight = QuantizationSpec(torch.int8, MinMaxObserver, low + 1, high, torch.per_tensor_symmetric)

    def annotate(self, model: GraphModule) -> GraphModule:
        for node in model.graph.nodes:
            if node.target in self.targets:
                inputs = {node.args[0]: self.value, node.args[1]: self.weight}
                node.meta[ANNOTATION] = QuantizationAnnotation(inputs, self.value, _annotated=True)
        return model

    def validate(self, model: GraphModule) -> None:
        wanted = {node for node in model.graph.nodes if node.target in self.targets}
        assert {node for node in model.graph.nodes if ANNOTATION in node.meta} <= wanted


@pytest.fixture
def plugins() -> PluginRegistry:
    """What is installed, and the quantizer `int8`."""
    registry = PluginRegistry.discover()
    registry.register("quantizers", "int8", Int8Quantizer)
    return registry


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.linear = nn.Linear(4 * 64, 10)
        self.steps = nn.Buffer(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.steps += 1  # type: ignore[misc]
        return {"y": self.linear(self.norm(self.conv(x)).relu().flatten(1)) * self.steps}


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    net = Net().eval()
    nn.init.normal_(net.norm.running_mean)  # type: ignore[arg-type]
    return net


def batches(count: int = 4, *shape: int) -> list[tuple[torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(*(shape or (3, 1, 8, 8)), generator=generator),) for _ in range(count)]


def sqnr(wanted: np.ndarray, got: np.ndarray) -> float:
    """Signal to quantization noise, in dB."""
    return float(10 * np.log10((wanted**2).sum() / max(((wanted - got) ** 2).sum(), 1e-30)))


def quantized(model: Any, *args: Any, **kwargs: Any) -> ExportedProgram:
    return delegraph.quantize(model, *args, **kwargs).program


def calls(program: ExportedProgram, target: object) -> list[Node]:
    return [node for node in program.graph.nodes if node.target == target]


def ranges(program: ExportedProgram, layer: object) -> list[tuple[Any, ...]]:
    """(quant_min, quant_max) of the first two arguments of each call of `layer`; () where one is not quantized."""
    dequantize = decomposed.dequantize_per_tensor.default
    return [
        tuple(tuple(arg.args[3:5]) if arg.target == dequantize else () for arg in node.args[:2])  # type: ignore[union-attr]
        for node in calls(program, layer)
    ]


# ---- the whole way ---------------------------------------------------------------------------------

RUN = """
import sys
import numpy as np
import delegraph

run = delegraph.load("model.pte")
np.savez("outputs.npz", *[run(x)["y"] for x in np.load("inputs.npz").values()])
assert "torch" not in sys.modules
"""


def test_a_quantized_model_runs_without_torch(net: Net, plugins: PluginRegistry, tmp_path: Path) -> None:
    inputs = [x for (x,) in batches(3)] + [torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(2))]
    dynamic = ({0: Dim("batch", max=16)},)
    options = {"dynamic_shapes": dynamic, "quantizers": ["int8{bits=8}"], "plugins": plugins}
    lowered = delegraph.lower(net, (inputs[0],), calibration_data=batches(), **options)  # type: ignore[arg-type]
    lowered.save(tmp_path / "model.pte")
    np.savez(tmp_path / "inputs.npz", *[x.numpy() for x in inputs])
    (tmp_path / "run.py").write_text(RUN)
    without_torch("run.py", folder=tmp_path)
    got = list(np.load(tmp_path / "outputs.npz").values())

    program = quantized(net, batches(), (inputs[0],), **options)
    eager, floats = program.module(), copy.deepcopy(net)
    step: Any
    (step,) = [node.args[1] for node in calls(program, decomposed.dequantize_per_tensor.default)][-1:]
    with torch.no_grad():
        for number, (x, ours) in enumerate(zip(inputs, got, strict=True), 1):
            # the same numbers but where two orders of summation round to neighbours; `steps` scales the last one
            np.testing.assert_allclose(ours, eager(x)["y"].numpy(), atol=1.01 * number * float(step), rtol=0)
            assert sqnr(floats(x)["y"].numpy(), ours) > 25  # about 34 here; 8 bits give 6 dB each, less what adds up


def test_weights_are_stored_in_int8_alone(plugins: PluginRegistry) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
    data = batches(2, 4, 64)
    floats = delegraph.lower(model, data[0])
    ours = delegraph.lower(model, data[0], quantizers=["int8"], calibration_data=data, plugins=plugins)
    weights = 2 * 64 * 64
    assert len(bytes(floats)) > 4 * weights
    assert len(bytes(ours)) < 2 * weights
    assert {t.dtype for t in ours.edge.exported_program().state_dict.values() if t.ndim == 2} == {torch.int8}


def test_the_one_call_takes_its_example_from_the_data(plugins: PluginRegistry) -> None:
    program = quantized(nn.Linear(4, 4), batches(2, 3, 4), quantizers=["int8"], plugins=plugins)
    assert ranges(program, aten.linear.default) == [((-128, 127), (-127, 127))]
    assert delegraph.lower(program).program is not None


def test_only_the_methods_that_are_named(plugins: PluginRegistry) -> None:
    models = {"encode": nn.Linear(4, 4), "decode": nn.Linear(4, 4)}
    programs = delegraph.quantize(
        models,
        {"encode": batches(2, 3, 4)},
        dict.fromkeys(models, (torch.randn(3, 4),)),
        quantizers={"encode": ["int8"]},
        plugins=plugins,
    )
    assert isinstance(programs, Mapping)
    assert ranges(programs["encode"], aten.linear.default) == [((-128, 127), (-127, 127))]
    assert ranges(programs["decode"], aten.linear.default) == [((), ())]


def test_who_does_not_quantize_needs_no_torchao(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.quantization.pt2e", None)
    delegraph.lower(nn.ReLU(), (torch.randn(2),))
    with pytest.raises(LoweringError, match=r"needs torchao, which cannot be imported .*pip install 'torchao>=0.18'"):
        delegraph.lower(nn.ReLU(), (torch.randn(2),), quantizers=[Int8Quantizer()], calibration_data=batches(1, 2))


# ---- several quantizers ----------------------------------------------------------------------------


class Rude(Int8Quantizer):
    """Writes into what it finds, and takes away what it does not want."""

    def annotate(self, model: GraphModule) -> GraphModule:
        for node in model.graph.nodes:
            if ANNOTATION in node.meta:
                node.meta[ANNOTATION].input_qspec_map.clear()
                del node.meta[ANNOTATION]
        return model


@pytest.mark.parametrize("second", [Int8Quantizer(bits=4), Rude()], ids=["overwrites", "removes"])
def test_the_first_one_s_layers_keep_their_spec(net: Net, second: Int8Quantizer, plugins: PluginRegistry) -> None:
    program = quantized(net, batches(), quantizers=[("int8", {"layers": "linear"}), second], plugins=plugins)
    assert ranges(program, aten.linear.default) == [((-128, 127), (-127, 127))]
    conv = ((), ()) if isinstance(second, Rude) else ((-8, 7), (-7, 7))
    assert ranges(program, aten.conv2d.default) == [conv]


def test_the_optional_hooks_of_torchao_are_called(net: Net) -> None:
    class Hooked(Int8Quantizer):
        def transform_for_annotation(self, model: GraphModule) -> GraphModule:
            for node in model.graph.find_nodes(op="call_function", target=aten.relu.default):
                node.target = aten.relu6.default
            return model

        def prepare_obs_or_fq_callback(self, model: GraphModule, observers: dict[Any, Any]) -> None:
            self.observers = len(observers)

    class Bare:
        """Has what is asked for and nothing else."""

        def annotate(self, model: GraphModule) -> GraphModule:
            return model

        def validate(self, model: GraphModule) -> None:
            pass

    hooked = Hooked()
    program = quantized(net, batches(), quantizers=[Bare(), hooked])
    assert len(calls(program, aten.relu6.default)) == 1
    assert hooked.observers == 6  # value, weight and result of two layers


# ---- what stays as it was --------------------------------------------------------------------------


def test_dynamic_sizes_keep_their_limits_and_relations(plugins: PluginRegistry) -> None:
    class Related(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, y: torch.Tensor, *, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return self.linear(x), y + 1, z * 2

    batch = Dim("batch", min=1, max=16)
    shapes = {"x": {0: batch}, "y": {0: batch + 1}, "z": {0: 2 * batch}}
    args, kwargs = (torch.randn(3, 4), torch.randn(4, 4)), {"z": torch.randn(6)}
    exported = torch.export.export(Related(), args, kwargs, dynamic_shapes=shapes)
    data = [{"x": torch.randn(n, 4), "y": torch.randn(n + 1, 4), "z": torch.randn(2 * n)} for n in (1, 5)]
    program = quantized(exported, data, quantizers=["int8"], plugins=plugins)

    def sizes(of: ExportedProgram) -> list[tuple[int, int]]:
        user_inputs = [node.meta["val"] for node in of.graph.nodes if node.name in of.graph_signature.user_inputs]
        limits = [of.range_constraints[value.shape[0].node.expr] for value in user_inputs]
        return [(int(limit.lower), int(limit.upper)) for limit in limits]

    assert sizes(program) == sizes(exported) == [(1, 16), (2, 17), (2, 32)]
    run = program.module()
    assert run(torch.randn(1, 4), torch.randn(2, 4), z=torch.randn(2))[0].shape == (1, 4)
    with pytest.raises(AssertionError, match=r"y.size\(\)\[0\] == 1 \+ x.size\(\)\[0\]"):
        run(torch.randn(3, 4), torch.randn(5, 4), z=torch.randn(6))


def test_calibration_leaves_the_model_alone(net: Net, plugins: PluginRegistry) -> None:
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    program = quantized(net, batches(), quantizers=["int8"], plugins=plugins)
    torch.testing.assert_close(dict(net.state_dict()), before, rtol=0, atol=0)
    assert program.state_dict["steps"] == 0
    held = {"conv.bias", "linear.bias", "steps", "conv.weight_int8", "linear.weight_int8"}
    assert set(program.state_dict) == held


def test_a_buffer_that_changes_is_not_frozen(plugins: PluginRegistry) -> None:
    """torchao would put the observer before what is written into the buffer, and fold what it finds there."""

    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache = nn.Buffer(torch.ones(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.cache.mul_(2)
            self.cache[:2].add_(x.mean())
            return x @ self.cache

    x = torch.rand(4, 4, generator=torch.Generator().manual_seed(3))
    program = quantized(Cached(), [(x,)] * 3, quantizers=["int8{layers=matmul}"], plugins=plugins)
    run, model = delegraph.load(bytes(delegraph.lower(program))), Cached()
    for _ in range(3):
        assert sqnr(model(x).numpy(), run(x.numpy())) > 25  # the cache grows, so that the first of them is the coarsest


# ---- what is refused -------------------------------------------------------------------------------


def raising(hook: str) -> Int8Quantizer:
    def fail(*_args: Any) -> None:
        raise ZeroDivisionError("by zero")

    quantizer = Int8Quantizer()
    setattr(quantizer, hook, fail)
    return quantizer


def annotating(annotation: object) -> Int8Quantizer:
    def annotate(model: GraphModule) -> GraphModule:
        for node in model.graph.nodes:
            node.meta[ANNOTATION] = annotation
        return model

    quantizer = Int8Quantizer()
    quantizer.annotate = annotate  # type: ignore[method-assign]
    return quantizer


class AnnotatesNonsense(Int8Quantizer):
    def annotate(self, model: GraphModule) -> GraphModule:
        for node in model.graph.find_nodes(op="call_function", target=aten.linear.default):
            node.meta[ANNOTATION] = QuantizationAnnotation({}, "int8", _annotated=True)
        return model


def generated() -> Iterator[tuple[torch.Tensor]]:
    yield from batches(1, 3, 5)


X = (torch.zeros(3, 4),)
REFUSED: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("no data", {"quantizers": ["int8"]}, LoweringError, r"'forward' has quantizers \(int8\) but no calibration data"),
    ("no quantizers", {"calibration_data": [X]}, LoweringError, r"'forward' has calibration data but no quantizers"),
    ("empty", {"quantizers": ["int8"], "calibration_data": []}, LoweringError, "the calibration data is empty"),
    ("a string", {"quantizers": "int8", "calibration_data": [X]}, LoweringError, r"it takes a list: write \['int8'\]"),
    ("a name", {"quantizers": ["int"], "calibration_data": [X]}, PluginNotFound, "did you mean 'int8'"),
    ("an option", {"quantizers": ["int8{bit=4}"], "calibration_data": [X]}, UnknownOption, "did you mean 'bits'"),
    ("an object", {"quantizers": [3], "calibration_data": [X]}, LoweringError, "quantizers has 3; it takes names of"),
    ("a method", {"quantizers": {"forwad": ["int8"]}}, LoweringError, "entry for 'forwad'.*did you mean 'forward'"),
    (
        "data of a method",
        {"quantizers": ["int8"], "calibration_data": {"forwad": [X]}},
        LoweringError,
        "calibration_data has an entry for 'forwad'.*did you mean 'forward'",
    ),
    (
        "one string of a method",
        {"quantizers": {"forward": "int8"}, "calibration_data": [X]},
        LoweringError,
        r"quantizers\['forward'\] is 'int8', but it takes a list",
    ),
    (
        "a tensor",
        {"quantizers": ["int8"], "calibration_data": torch.zeros(2, 3, 4)},
        LoweringError,
        r"forward', calibration batch 0 is a Tensor; a batch is a tuple of arguments \(for one write \(x,\)\)",
    ),
    (
        "a shape",
        {"quantizers": ["int8"], "calibration_data": generated()},
        LoweringError,
        r"(?s)batch 0 does not run: Guard failed.*the inputs are input, and the batch has float32\[3, 5\]",
    ),
    (
        "a batch without a name",
        {"quantizers": ["int8"], "calibration_data": [{"x": X[0]}]},
        LoweringError,
        "calibration batch 0 has no input; the inputs are input",
    ),
    *(
        (
            hook,
            {"quantizers": [raising(hook)], "calibration_data": [X]},
            LoweringError,
            f"quantizer 'Int8Quantizer' failed in {hook} of method 'forward': ZeroDivisionError: by zero",
        )
        for hook in ("transform_for_annotation", "annotate", "validate", "prepare_obs_or_fq_callback")
    ),
    (
        "an annotation",
        {"quantizers": [annotating("int8")], "calibration_data": [X]},
        LoweringError,
        "quantizer 'Int8Quantizer' annotated .* with 'int8'; expected a QuantizationAnnotation",
    ),
    (
        "a spec",
        {"quantizers": [AnnotatesNonsense()], "calibration_data": [X]},
        LoweringError,
        "method 'forward': torchao could not follow the annotations of AnnotatesNonsense",
    ),
]


@pytest.mark.parametrize(("given", "kind", "message"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused(given: dict[str, Any], kind: type[Exception], message: str, plugins: PluginRegistry) -> None:
    with pytest.raises(kind, match=message):
        delegraph.lower(nn.Linear(4, 4), X, plugins=plugins, **given)


def test_a_list_of_batches_for_several_methods_is_refused() -> None:
    models = {"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)}
    with pytest.raises(LoweringError, match=r"there are several methods \(a, b\): write \{method"):
        delegraph.lower(models, {"a": X, "b": X}, quantizers=[Int8Quantizer()], calibration_data=[X])


def test_a_program_without_its_example_inputs_needs_batches() -> None:
    exported = torch.export.export(nn.Linear(4, 4), X)
    expected = delegraph.quantize(exported, [X], quantizers=[Int8Quantizer()]).program.module()(*X)
    exported.example_inputs = None
    quantized = delegraph.quantize(exported, [X], quantizers=[Int8Quantizer()])
    assert torch.equal(quantized.program.module()(*X), expected)
    with pytest.raises(LoweringError, match=r"without its example inputs, .* or give calibration"):
        delegraph.quantize(exported, recipe="int8_dynamic")


def test_a_factory_that_makes_something_else_is_refused(plugins: PluginRegistry) -> None:
    make: Callable[..., object] = lambda options: object()  # noqa: E731
    plugins.register("quantizers", "odd", make)
    with pytest.raises(PluginError, match=r"its factory made .*annotate"):
        delegraph.quantize(nn.Linear(4, 4), [X], X, quantizers=["odd"], plugins=plugins)
