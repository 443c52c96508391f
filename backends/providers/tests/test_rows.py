"""Rows of the table where their providers are not installed: each lowers by its table, and says what is missing."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from backends.providers.tests.models import Cache, KeywordNet, LittleLlama, model_of
from torch import nn

import delegraph
from delegraph.aot import to_edge
from delegraph.errors import BackendMissing, InvalidArgument, NotSupported, PreprocessError
from delegraph.interfaces import BackendInitContext
from delegraph.plugins import PluginWarning, default_registry
from delegraph_providers import engine
from delegraph_providers.aot import lowering
from delegraph_providers.aot.assigning import Assigned
from delegraph_providers.options import graph_options
from delegraph_providers.providers import PROVIDER, PROVIDERS, QNN, TENSORRT_RTX, WEBGPU, Provider
from delegraph_providers.runtime.graph_backend import AnyBackend, StateOnDevice, TensorRtRtxBackend

ROWS = [row for row in PROVIDERS if row != QNN and not (row.package and importlib.util.find_spec(row.package))]
README = Path(__file__).parents[1].joinpath("README.md").read_text("utf-8")

pytestmark = pytest.mark.filterwarnings("ignore::delegraph.plugins.PluginWarning")


@pytest.fixture(params=ROWS, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Provider:
    provider: Provider = request.param
    if engine.availability(provider):
        pytest.skip(f"{provider.name} has a device here")
    return provider


def test_it_lowers_by_its_table_and_its_absence_is_told(row: Provider) -> None:
    model, args = model_of(lambda: (KeywordNet(), (torch.randn(1, 1, 49, 10),)))
    with pytest.warns(PluginWarning) as told:
        lowered = delegraph.lower(model, args, backends=[row.name])
    method = lowered.report.methods["forward"]
    assert (len(method.delegates), method.leftovers) == (1, ())
    texts = [str(warning.message) for warning in told]
    assert any("is not installed" in text and row.install in text for text in texts)
    assert any("nobody has run" in text for text in texts) == (not row.run_on)
    with pytest.raises(BackendMissing, match="is not installed"):
        delegraph.load(bytes(lowered))


def test_it_says_that_it_was_not_run(row: Provider) -> None:
    there = default_registry().load("backends", row.backend_id).is_available()
    assert not there
    assert there.fix == row.install
    assert ("nobody has run" in there.reason) == (not row.run_on)
    line = next(line for line in README.splitlines() if line.startswith(f"| `{row.name}`"))
    assert ("nobody has run it" in line) == (not row.run_on)


def test_what_the_table_has_not_is_left_for_that_reason(row: Provider) -> None:
    lowered = delegraph.lower(nn.Sequential(nn.ReLU(), nn.LogSoftmax(-1)), (torch.randn(2, 4),), backends=[row.name])
    assert f"LogSoftmax is not in the table of {row.name}, of which no device here can be asked" in str(lowered.report)


def test_states_and_a_small_llama_by_the_table_of_shaders() -> None:
    if engine.availability(WEBGPU):
        pytest.skip("WebGPU is here, and asked")
    for model, args in (
        (Cache(), (torch.tensor(0), torch.randn(1, 4))),
        (LittleLlama(), (torch.tensor([[1]]), torch.tensor([0]))),
    ):
        lowered = delegraph.lower(model.eval(), args, backends=["webgpu"])
        method = lowered.report.methods["forward"]
        assert (len(method.delegates), method.leftovers) == (1, ())


def test_a_provider_without_a_row_is_named_by_its_package() -> None:
    lowered = delegraph.lower(nn.ReLU(), (torch.randn(4),), backends=["provider{package=onnxruntime_ep_someones}"])
    assert not lowered.report.methods["forward"].leftovers
    with pytest.raises(InvalidArgument, match="needs the name of the provider's package, which a file does not choose"):
        delegraph.load(bytes(lowered))
    chosen = {"provider": {"package": "onnxruntime_ep_someones"}}
    with pytest.raises(NotSupported, match="onnxruntime_ep_someones is not installed: pip install"):
        delegraph.load(bytes(lowered), backend_options=chosen)
    backend = AnyBackend()
    assert backend.is_available()
    backend.set_option({"package": "onnxruntime_ep_someones"})
    assert backend.is_available().reason.startswith("onnxruntime_ep_someones is not installed; nobody has run provider")


@pytest.mark.parametrize(
    ("name", "lacks"), [("provider", "needs the name of the provider's package"), ("qnn", QNN.install)]
)
def test_plugins_check_tells_what_a_trial_lacks(name: str, lacks: str) -> None:
    if name == "qnn" and importlib.util.find_spec(QNN.package):
        pytest.skip("QNN is here, and tried")
    command = [sys.executable, "-m", "delegraph", "plugins", "check", f"partitioners:{name}", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    loaded, trial = json.loads(done.stdout)
    assert (done.returncode, loaded["result"], trial["result"]) == (0, "ok", "unavailable"), done.stdout
    assert lacks in trial["detail"]


def test_a_file_imports_nothing() -> None:
    specs = graph_options(PROVIDER)(package="this").compile_specs()
    with pytest.raises(InvalidArgument, match="needs the name of the provider's package"):
        AnyBackend().init(BackendInitContext("forward"), _blob(), specs)
    assert "this" not in sys.modules


def _blob() -> bytes:
    from delegraph.interfaces import BlobTensor
    from delegraph_cpu.blob import pack
    from delegraph_providers.blob import format_of
    from delegraph_providers.context_model import one_node_model
    from delegraph_providers.graph_blob import GraphBlob

    x, y = BlobTensor("x", "float32", (4,)), BlobTensor("y", "float32", (4,))
    blob = GraphBlob("nobody", (x,), (y,), (), one_node_model("Relu", (), "", [x], [y]))
    return pack(blob, [], format_of(PROVIDER))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"precision": "f64"}, "precision is 'f64'; it may be f16 or f32"),
        ({"device": "TPU"}, "device is 'TPU'; it may be GPU, NPU, CPU or empty"),
        ({"states": "device"}, "states is 'device'; it may be host"),
        ({"package": "os.path"}, "package is 'os.path'; it may be the name of a module, for `provider` alone"),
    ],
)
def test_an_option_has_the_values_that_it_has(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidArgument, match=f"TensorRtRtxProvider: {told}"):
        TensorRtRtxBackend().set_option(options)  # type: ignore[arg-type]


class _Device:
    def __init__(self, kind: str) -> None:
        self.ep_name, self.device = TENSORRT_RTX.ep_name, types.SimpleNamespace(type=types.SimpleNamespace(name=kind))
        self.ep_metadata: dict[str, str] = {}


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> list[_Device]:
    """A plug-in for `tensorrt_rtx` that offers these devices."""
    import onnxruntime

    devices: list[_Device] = []
    package = types.ModuleType(TENSORRT_RTX.package)
    package.__spec__ = importlib.util.spec_from_loader(package.__name__, None)
    package.get_library_path = lambda: "library.so"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.setattr(engine, "_package", lambda name: package)
    monkeypatch.setattr(engine, "_registered", {})
    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", lambda name, path: None)
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: devices)
    return devices


def test_a_plug_in_without_a_device_says_what_it_needs(plugged: list[_Device]) -> None:
    there = TensorRtRtxBackend().is_available()
    assert "finds no device of its own on this machine; nobody has run tensorrt_rtx yet" in there.reason
    assert there.fix == f"see what it needs: {TENSORRT_RTX.promises}"


def test_a_kind_of_device_that_is_not_here(plugged: list[_Device]) -> None:
    plugged += [_Device("GPU")]
    assert TensorRtRtxBackend().is_available()
    with pytest.raises(NotSupported, match="offers no NPU on this machine; it offers GPU"):
        engine.session(TENSORRT_RTX, b"", {}, kind="NPU")


def test_a_library_that_does_not_load(plugged: list[_Device], monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    def fails(name: str, path: str) -> None:
        raise RuntimeError("libcuda.so.1 is missing")

    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", fails)
    assert "does not load onnxruntime_ep_nv_tensorrt_rtx: libcuda.so.1 is missing" in (
        TensorRtRtxBackend().is_available().reason
    )


def test_a_partition_that_the_provider_refuses_or_leaves_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    program = to_edge(torch.export.export(nn.ReLU(), (torch.randn(2),))).exported_program()

    def refuses(*_: object) -> tuple[Assigned, bool]:
        raise engine.ProviderFailed("no memory")

    monkeypatch.setattr(lowering, "answer_of", refuses)
    with pytest.raises(PreprocessError, match="tensorrt_rtx refuses the partition: no memory"):
        lowering.TensorRtRtxLowering.preprocess(program, [])
    monkeypatch.setattr(lowering, "answer_of", lambda *_: (Assigned({"y": "Relu"}, ()), False))
    with pytest.raises(PreprocessError, match="tensorrt_rtx does not take the partition whole: Relu are left"):
        lowering.TensorRtRtxLowering.preprocess(program, [])


def test_a_state_that_onnxruntime_does_not_read_back_from_the_device() -> None:
    class OnDevice:
        def numpy(self) -> None:
            raise RuntimeError("no data transfer")

    buffer = StateOnDevice(np.zeros(2, np.float32))
    buffer.take(OnDevice(), object())
    with pytest.raises(NotSupported, match=r"does not read a state back .*\(no data transfer\); load with states=host"):
        buffer.copy_to_host()
