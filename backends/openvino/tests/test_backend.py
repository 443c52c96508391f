"""Dynamic shapes, state, sharing, options, int64: what a delegate does as a whole."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from backends.openvino.tests.harness import check, compare, declined, load, lower

import delegraph
from delegraph.aot.authoring import as_array
from delegraph.errors import InvalidArgument, NotSupported, PluginError
from delegraph.interfaces import BlobStamp, CompilationCache, CompileSpec, Verdict
from delegraph_openvino.aot.partitioner import openvino_partitioner
from delegraph_openvino.blob import BACKEND_ID, BLOB_VERSION
from delegraph_openvino.options import OpenVinoOptions
from delegraph_openvino.runtime.backend import OpenVinoBackend
from delegraph_partitioners import CapabilityBasedPartitioner

BATCH = {0: torch.export.Dim("batch", min=1, max=16)}


class Net(torch.nn.Module):
    """A convolution, a dynamic flatten, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.linear = torch.nn.Linear(4 * 36, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(torch.flatten(self.norm(self.conv(x)).relu(), 1))
        return result


@pytest.fixture(scope="module")
def net() -> tuple[torch.nn.Module, torch.Tensor, bytes]:
    """A model, its input and the program."""
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(2, 3, 8, 8)
    return model, x, bytes(delegraph.lower(model, (x,), backends=["openvino"]))


# ---- shapes -------------------------------------------------------------------------------------------------------


def test_the_same_model_is_the_same_file(net: tuple[torch.nn.Module, torch.Tensor, bytes]) -> None:
    """Also where OpenVINO has made other graphs between."""
    model, x, program = net
    assert bytes(delegraph.lower(model, (x,), backends=["openvino"])) == program


def test_outputs_that_are_inputs_or_each_other() -> None:
    def twice(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = x + y
        return x.expand(2, 3), total, total.reshape(2, 3), y.to(torch.float32)

    args = (torch.randn(2, 3), torch.randn(2, 3))
    check(twice, *args)
    assert bytes(lower(twice, args)) == bytes(lower(twice, args))


def test_an_output_that_is_an_input_is_written() -> None:
    check(lambda x: (x.sum(), x.amax()), torch.tensor(3.0))
    check(lambda x: (torch.any(x), ~x), torch.tensor(True))


def test_a_dynamic_batch() -> None:
    others = [(torch.randn(n, 3, 8, 8),) for n in (1, 16, 4)]
    check(Net(), torch.randn(2, 3, 8, 8), dynamic_shapes=(BATCH,), others=others, atol=1e-5)


def test_two_dynamic_dims() -> None:
    length = torch.export.Dim("length", min=2, max=32)
    model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    with torch.no_grad():
        check(
            model, torch.randn(2, 5, 8), dynamic_shapes=({0: torch.export.Dim("b", min=1, max=8), 1: length},),
            others=[(torch.randn(3, 9, 8),), (torch.randn(1, 2, 8),)], atol=1e-4,
        )  # fmt: skip


def test_shapes_that_are_computed() -> None:
    n = torch.export.Dim("n", min=3, max=20)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return torch.cat([x, x[1:]]), x.repeat(2, 3), torch.arange(x.shape[0]).to(x.dtype) + x[:, 0]

    check(function, torch.randn(5, 3), dynamic_shapes=({0: n},), others=[(torch.randn(3, 3),), (torch.randn(20, 3),)])


def test_an_output_whose_shape_is_its_own() -> None:
    """Four outputs of which two are the same, one is an input and one is a constant."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.arange(200.0))

        def forward(self, x: torch.Tensor) -> Any:
            y = x.relu()
            return y, y, self.held * 2, x.transpose(0, 1)

    check(Model(), torch.randn(3, 4))


def test_inputs_stay_as_they_are(net: tuple[torch.nn.Module, torch.Tensor, bytes]) -> None:
    model, x, program = net
    given = x.numpy().copy()
    given.flags.writeable = False
    compare(load(program)(given), model(x))
    np.testing.assert_array_equal(given, x.numpy())


# ---- what 32 bits hold --------------------------------------------------------------------------------------------


def test_int64_arithmetic_is_left() -> None:
    tokens = torch.tensor([1, 2**40])
    lowered = lower(lambda t, x: (t * 3 + 1, x.relu()), (tokens, torch.randn(2)))
    reasons = set(declined(lowered).values())
    assert any("OpenVINO computes int64 in 32 bits" in reason for reason in reasons)
    wide, _ = load(lowered)(tokens.numpy(), np.ones(2, np.float32))
    assert wide.tolist() == [4, 3 * 2**40 + 1]


def test_int64_positions_are_taken() -> None:
    check(lambda x: x.masked_fill(torch.arange(5)[:, None] - 2 < torch.arange(7), 0.0), torch.randn(5, 7))


def test_what_is_known_of_an_int64_outlasts_its_partition() -> None:
    """The remainder of what may be wide is left, and so is outside of the partition that compares it."""
    turn = torch.tensor(2**40 + 1)
    lowered = lower(lambda t, x: torch.where((t + 1) % 2 == 0, x.relu(), -x), (turn, torch.randn(3)))
    assert set(declined(lowered)) == {"aten_add_tensor", "aten_remainder_scalar"}
    for turn in (2**40 + 1, 2**40 + 2):
        given = np.array(turn), np.array([-1, 2, 3], np.float32)
        expected = [0, 2, 3] if turn % 2 else [1, -2, -3]
        np.testing.assert_array_equal(load(lowered)(*given), np.array(expected, np.float32))


# ---- weights ------------------------------------------------------------------------------------------------------


def test_methods_share_weights() -> None:
    linear = torch.nn.Linear(64, 64)

    class Two(torch.nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.linear, self.scale = linear, scale

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.linear(x) * self.scale
            return result

    x = torch.randn(2, 64)
    exported = {name: torch.export.export(Two(s).eval(), (x,)) for name, s in (("one", 1.0), ("two", 2.0))}
    both = bytes(delegraph.lower(exported, backends=["openvino"]))
    alone = bytes(delegraph.lower(Two(1.0).eval(), (x,), backends=["openvino"]))
    assert len(both) - len(alone) < linear.weight.nbytes
    for name, scale in (("one", 1.0), ("two", 2.0)):
        compare(delegraph.load(both, method=name)(x.numpy()), Two(scale)(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    model = torch.nn.Linear(40, 30).to(dtype)
    x = torch.randn(2, 40).to(dtype)
    lowered = lower(model, (x,))
    assert declined(lowered) == {}
    result = load(lowered)(as_array(x))
    np.testing.assert_allclose(result.astype(np.float32), model(x).float().detach().numpy(), rtol=2e-2, atol=2e-2)


class Residual(torch.nn.Module):
    """Blocks of layers with normalizations, as of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(64) for _ in range(4))
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + torch.nn.functional.silu(layer(norm(x)))
        return x


def test_bfloat16_is_no_less_exact_than_in_torch() -> None:
    torch.manual_seed(0)
    model, x = Residual().eval(), torch.randn(32, 64)
    wanted = model(x).detach().numpy()
    narrow, given = model.to(torch.bfloat16), x.to(torch.bfloat16)
    lowered = lower(narrow, (given,))
    assert declined(lowered) == {}
    errors = [
        np.square(result.astype(np.float32) - wanted).sum()
        for result in (load(lowered)(as_array(given)), as_array(narrow(given)))
    ]
    assert errors[0] < 1.5 * errors[1]


def test_a_bfloat16_input_and_weight_that_are_outputs_too() -> None:
    class Same(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(200).to(torch.bfloat16))

        def forward(self, x: torch.Tensor) -> Any:
            return x.view(10, 20), x.relu(), self.weight.view(20, 10)

    model, x = Same().eval(), torch.randn(200).to(torch.bfloat16)
    results = load(lower(model, (x,)))(as_array(x))
    for result, wanted in zip(results, model(x), strict=True):
        np.testing.assert_array_equal(result.astype(np.float32), wanted.float().detach().numpy())


# ---- options ------------------------------------------------------------------------------------------------------


def test_options_at_lowering_and_load(net: tuple[torch.nn.Module, torch.Tensor, bytes]) -> None:
    model, x, program = net
    for options in (
        {"performance_hint": "throughput"},
        {"precision": "device"},
    ):
        run = delegraph.load(program, backend_options={"openvino": options})
        compare(run(x.numpy()), model(x), rtol=0.05, atol=0.05)
    lowered = delegraph.lower(model, (x,), backends=["openvino{num_threads=1, performance_hint=throughput}"])
    compare(delegraph.load(bytes(lowered))(x.numpy()), model(x))


def test_a_model_is_compiled_once(net: tuple[torch.nn.Module, torch.Tensor, bytes], tmp_path: Path) -> None:
    model, x, program = net
    compare(delegraph.load(program, cache=tmp_path)(x.numpy()), model(x))
    with pytest.warns(FutureWarning, match="option cache of OpenVinoIR is deprecated"):
        run = delegraph.load(program, backend_options={"openvino": {"cache": str(tmp_path)}})
    compare(run(x.numpy()), model(x))
    (entry,) = CompilationCache(tmp_path).entries()
    code = entry.path / "compiled.blob"
    code.write_bytes(b"")  # what OpenVINO does not take, with a digest that is right
    record = json.loads((entry.path / "entry.json").read_text())
    record["files"][code.name] = [0, hashlib.sha256().hexdigest()]
    (entry.path / "entry.json").write_text(json.dumps(record))
    compare(delegraph.load(program, cache=tmp_path)(x.numpy()), model(x))
    assert CompilationCache(tmp_path).entries() == []


def test_options_go_into_compile_specs() -> None:
    partitioner = openvino_partitioner(num_threads=1, performance_hint="throughput", int8_products=True)
    assert isinstance(partitioner, CapabilityBasedPartitioner)
    specs = partitioner.delegation_spec.compile_specs
    values = {"num_threads": b"1", "performance_hint": b"throughput", "int8_products": b"True"}
    assert {spec.key: spec.value for spec in specs} == values
    options = OpenVinoOptions.of_compile_specs(specs)
    assert options == OpenVinoOptions(num_threads=1, performance_hint="throughput", int8_products=True)


def test_options_become_properties() -> None:
    rounds = "DYNAMIC_QUANTIZATION_GROUP_SIZE"
    options = OpenVinoOptions("CPU", 3, "throughput", "device", True, "/c")
    assert options.properties(int8_products=False) == {
        "PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_NUM_THREADS": "3", rounds: "32",
    }  # fmt: skip
    usual = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    assert OpenVinoOptions().properties(int8_products=False) == usual | {rounds: "0"}
    assert OpenVinoOptions().properties(int8_products=True) == usual | {rounds: "32"}
    assert rounds not in OpenVinoOptions("GPU").properties(int8_products=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "TPU"}, "device is 'TPU'; it may be CPU, GPU, NPU (GPU.1 where there are several) or AUTO"),
        ({"device": "HETERO:GPU,CPU"}, "device is 'HETERO:GPU,CPU'"),
        ({"num_threads": -1}, "num_threads is -1; it may be 0 to 1024"),
        ({"performance_hint": "fast"}, "performance_hint is 'fast'; it may be latency or throughput"),
        ({"int8_products": 1}, "int8_products is 1; it may be true or false"),
        ({"precision": "int4"}, "precision is 'int4'; it may be f32 or f16 or bf16 or device"),
    ],
)
def test_values_that_options_do_not_take(
    net: tuple[torch.nn.Module, torch.Tensor, bytes], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        delegraph.load(net[2], backend_options={"openvino": options})
    assert message in str(caught.value)


def test_options_that_do_not_exist(net: tuple[torch.nn.Module, torch.Tensor, bytes]) -> None:
    with pytest.raises((InvalidArgument, PluginError), match="thread"):
        delegraph.load(net[2], backend_options={"openvino": {"threads": 2}})
    with pytest.raises(
        InvalidArgument, match=f"{BACKEND_ID} has no option threads; it has cache, device, int8_products"
    ):
        OpenVinoBackend().set_option({"threads": 2})
    with pytest.raises(InvalidArgument, match="has no option threads"):
        OpenVinoBackend().get_option(["threads"])


def test_options_of_the_backend() -> None:
    backend = OpenVinoBackend()
    backend.set_option({"num_threads": 1})
    assert backend.get_option(["num_threads", "device"]) == {"num_threads": 1, "device": "CPU"}


def test_a_device_that_is_not_here(net: tuple[torch.nn.Module, torch.Tensor, bytes]) -> None:
    with pytest.raises(NotSupported) as caught:
        delegraph.load(net[2], backend_options={"openvino": {"device": "GPU.7"}})
    assert "has no device GPU.7 here; it has CPU" in str(caught.value)
    assert 'backend_options={"openvino": {"device": "CPU"}}' in str(caught.value)


def test_a_file_names_no_cache() -> None:
    """A folder that a stranger's file chooses would be written to."""
    assert OpenVinoOptions.of_compile_specs([CompileSpec("cache", b"/etc")]).cache == ""


# ---- stamps -------------------------------------------------------------------------------------------------------


def test_stamps() -> None:
    backend = OpenVinoBackend()
    versions = (BLOB_VERSION - 1, BLOB_VERSION, BLOB_VERSION + 1)
    verdicts = [backend.check(BlobStamp(BACKEND_ID, "delegraph-openvino", "9", v)).verdict for v in versions]
    assert verdicts == [Verdict.RECOMPILE, Verdict.OK, Verdict.REFUSE]
    assert backend.check(None).verdict is Verdict.OK


def test_a_fork_has_a_request_of_its_own(net: tuple[torch.nn.Module, torch.Tensor, bytes]) -> None:
    model, x, program = net
    first = load(program)
    second = first.fork()
    for module in (first, second, first):
        compare(module(x.numpy()), model(x))


def test_loads_of_the_same_bytes_share_a_compiled_model(net: tuple[torch.nn.Module, torch.Tensor, bytes]) -> None:
    model, x, program = net
    first, second, other = load(program), load(program), load(program, num_threads=2)
    opened = [run.forward.method._loaded.delegates.all[0].handle.opened for run in (first, second, other)]
    assert opened[0] is opened[1]
    assert opened[0] is not opened[2]
    del opened
    compare(first(x.numpy()), model(x))
    del first
    compare(second(x.numpy()), model(x))


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    available = OpenVinoBackend().is_available()
    assert not available
    assert (available.reason, available.fix) == ("openvino is not installed", "pip install openvino")
