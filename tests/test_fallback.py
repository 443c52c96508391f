"""`lower(…, fallback=…)`: where a backend cannot run, a delegate's own graph does, with the same results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import delegraph
from delegraph.aot import ExecutorchBackendConfig, to_edge_transform_and_lower
from delegraph.aot.lower import Lowered
from delegraph.errors import BackendMissing, FallbackWarning, LoweringError, PluginNotFound
from delegraph.interfaces import Availability, BackendInterface
from delegraph.program import deserialize_program
from delegraph.program.alternatives import AlternativeOf
from delegraph.runtime import Method, Runtime
from delegraph_partitioners import OperatorsPartitioner

ROOT = Path(__file__).parents[1]


class Gone(BackendInterface):
    """A backend whose device is not there: nothing else of it is called."""

    def is_available(self) -> Availability:
        return Availability(False, "the device was taken out")

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        raise AssertionError("it was initialised")

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        raise AssertionError("it was executed")


def lower(model: torch.nn.Module, args: Sequence[Any], fallback: Any = "kernels", **options: Any) -> Lowered:
    return delegraph.lower(
        model.eval(), tuple(args), backends=options.pop("backends", ["cpu"]), fallback=fallback, **options
    )


def load(lowered: Lowered, *gone: str, method: str = "forward", **options: Any) -> Method:
    """The method where the backends `gone` are not available."""
    runtime = Runtime(backends=dict.fromkeys(gone, Gone()), check=options.pop("check", None))
    return runtime.load_program(bytes(lowered), **options).load_method(method)


def both(lowered: Lowered, *calls: Sequence[Any], gone: str = "CpuBackend") -> Method:
    """Run it with the backend and without, one call behind the other, and compare; the method without."""
    there = load(lowered)
    with pytest.warns(FallbackWarning, match="the device was taken out"):
        without = load(lowered, gone)
    for inputs in calls:
        arrays = [np.asarray(value) for value in inputs]
        for ours, theirs in zip(without.execute(arrays), there.execute(arrays), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    with pytest.warns(FallbackWarning):
        watched = load(lowered, gone, check=True)
    for inputs in calls:
        watched.execute([np.asarray(value) for value in inputs])
    return without


class Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


X = torch.linspace(-1, 1, 3 * 64).reshape(3, 64)

# ---- what runs -------------------------------------------------------------------------------------


def test_the_smallest_case() -> None:
    lowered = lower(Linear(), [X])
    without = both(lowered, [X])
    (choice,) = without.delegate_choices
    assert choice.is_fallback and choice.backend == "CpuBackend"
    assert without.program.method_names == {"forward"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [choice.place for choice in load(lowered).delegate_choices] == [0]


def test_without_it_the_backend_is_missing_as_before() -> None:
    lowered = delegraph.lower(Linear().eval(), (X,), backends=["cpu"])
    with pytest.raises(BackendMissing, match="the device was taken out"):
        load(lowered, "CpuBackend")
    assert bytes(lowered) == bytes(lower(Linear(), [X], fallback=None))
    assert load(lowered).delegate_choices == ()


def test_weights_are_in_the_file_once_and_the_cost_is_told() -> None:
    plain, lowered = lower(Linear(), [X], fallback=None), lower(Linear(), [X])
    weights = sum(parameter.nbytes for parameter in Linear().parameters())
    (entry,) = lowered.report.fallbacks
    assert (entry.method, entry.delegate, entry.backend, entry.runner) == ("forward", 0, "CpuBackend", "kernels")
    grown = len(bytes(lowered)) - len(bytes(plain))
    assert entry.nbytes <= grown + 1024 < weights / 4
    assert f"kernels        {entry.nbytes:,}" in str(lowered.report)
    assert lowered.report.to_json()["fallbacks"][0]["nbytes"] == entry.nbytes  # type: ignore[index]


class Sequence3D(torch.nn.Module):
    """Linear layers on rows of rows, whose weights onnxruntime turns; one weight is read otherwise, too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = torch.nn.Linear(64, 96, bias=False), torch.nn.Linear(96, 64, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.down(torch.tanh(self.up(x))), self.down.weight.sum(0) * x[0, 0, 0]


def test_a_weight_that_the_backend_turned_is_in_the_file_once() -> None:
    x = torch.linspace(-1, 1, 2 * 3 * 64).reshape(2, 3, 64)
    plain, lowered = lower(Sequence3D(), [x], fallback=None), lower(Sequence3D(), [x])
    both(lowered, [x], [-x])
    (_, alternative) = lowered.program.executorch_program.execution_plan
    by_key = [value for value in alternative.values if getattr(value, "extra_tensor_info", None) is not None]
    assert [(value.sizes, value.dim_order) for value in by_key] == [((96, 64), (1, 0))]  # type: ignore[union-attr]
    assert len(bytes(lowered)) - len(bytes(plain)) < 1.5 * 64 * 96 * 4  # the other weight


def test_the_weights_of_convolutions_stay_as_they_are_in_front_of_batch_norms() -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 32, 3, bias=False), torch.nn.BatchNorm2d(32), torch.nn.ReLU()]
    layers += [torch.nn.ConvTranspose2d(32, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.Conv2d(16, 32, 3)]
    model, x = torch.nn.Sequential(*layers), torch.randn(2, 3, 8, 8)
    model(x)  # statistics that are not 0 and 1
    plain, lowered = lower(model, [x], fallback=None), lower(model, [x])
    both(lowered, [x], [-x])
    weights = sum(parameter.nbytes for parameter in model.parameters())
    assert len(bytes(lowered)) - len(bytes(plain)) < weights / 4
    ran, expected = load(lowered).execute([x.numpy()])[0], load(plain).execute([x.numpy()])[0]
    np.testing.assert_allclose(ran, expected, rtol=1e-6, atol=1e-6)


class Stateful(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((4, 8), 0.5))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.total.add_(x)
        self.count.add_(1)
        return torch.tanh(self.total), self.count * 2


def test_state_is_kept_from_run_to_run_reset_and_forked() -> None:
    lowered, x = lower(Stateful(), [torch.ones(4, 8)]), np.full((4, 8), 0.1, np.float32)
    assert "tanh" not in str(load(lowered)._loaded.kernels)  # the delegate has it
    without = both(lowered, [x], [x], [x])
    assert set(without.state) == {"total", "count"}
    np.testing.assert_allclose(without.state["count"], [3])
    without.state.reset()
    np.testing.assert_allclose(without.execute([x])[0], np.tanh(0.5 + x), rtol=1e-6)
    other = without.program.load_method("forward", like=without)
    np.testing.assert_allclose(other.execute([x])[1], [2])


class Sizes(torch.nn.Module):
    """A partition that takes sizes, and gives a result of another size."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(x).reshape(-1, 2 * y.shape[0]) + 1, x.sum(0) * y.shape[0]


def test_dynamic_shapes() -> None:
    rows, size = torch.export.Dim("rows", min=1, max=16), torch.export.Dim("size", min=2, max=8)
    shapes = {"x": {0: rows, 1: 2 * size}, "y": {0: size}}
    lowered = lower(Sizes(), [torch.randn(4, 6), torch.randn(3)], dynamic_shapes=shapes)
    calls = [(torch.randn(r, 2 * n), torch.randn(n)) for r, n in ((4, 3), (16, 8), (1, 2), (4, 3), (4, 3))]
    both(lowered, *calls)


class Loop(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        def step(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, torch.cond(y.sum() > 10, lambda y: y - 1, lambda y: y * 2 + 1, (y,))

        return torch._higher_order_ops.while_loop(lambda i, y: i < n, step, (torch.zeros(()), x))[1].exp()


@pytest.mark.parametrize("taken", ["the loop", "calls in its bodies"])
def test_control_flow(taken: str) -> None:
    inner = OperatorsPartitioner("CpuBackend", ["aten::mul", "aten::add", "aten::exp", "aten::sub"])
    backend: Any = "cpu" if taken == "the loop" else inner
    lowered = lower(Loop(), [torch.ones(3), torch.tensor(2.0)], backends=[backend])
    assert len(lowered.report.fallbacks) == (1 if taken == "the loop" else 4)
    both(lowered, *([torch.ones(3), torch.tensor(float(count))] for count in (0, 1, 5, 2)))


def test_several_methods_with_weights_in_common() -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Linear()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

        def twice(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * 2

    class Twice(torch.nn.Module):
        def __init__(self, inner: Linear) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * 2

    inner = Linear()
    models = {"once": inner.eval(), "twice": Twice(inner).eval()}
    lowered = delegraph.lower(models, {"once": (X,), "twice": (X,)}, backends=["cpu"], fallback="kernels")
    weights = sum(parameter.nbytes for parameter in inner.parameters())
    assert len(bytes(lowered)) < 1.5 * weights
    with pytest.warns(FallbackWarning):
        once, twice = (load(lowered, "CpuBackend", method=name).execute([X.numpy()])[0] for name in models)
    np.testing.assert_array_equal(once * 2, twice)


def test_external_weights(tmp_path: Path) -> None:
    config = ExecutorchBackendConfig(external_constants=True)
    plain = lower(Linear(), [X], fallback=None, config=config)
    lowered = lower(Linear(), [X], config=config)
    lowered.save(tmp_path / "m.pte")
    plain.save(tmp_path / "plain.pte")
    (ptd,) = tmp_path.glob("_default*.ptd")
    runtime = Runtime(backends={"CpuBackend": Gone()})
    with pytest.warns(FallbackWarning):
        method = runtime.load_program(tmp_path / "m.pte", data_path=ptd).load_method("forward")
    with torch.no_grad():
        np.testing.assert_allclose(method.execute([X.numpy()])[0], Linear()(X).numpy(), rtol=1e-5, atol=1e-6)
    assert os.path.getsize(tmp_path / "m.pte") < os.path.getsize(tmp_path / "plain.pte") + 8192


# ---- onto another backend --------------------------------------------------------------------------


class Image(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.avg_pool2d(torch.relu(self.conv(x)), 2)


@pytest.fixture(scope="module")
def quantized() -> tuple[Lowered, NDArray[Any]]:
    """A convolution for the simulated NPU, with a fall-back on onnxruntime and one on kernels."""
    x = torch.linspace(-1, 1, 3 * 64).reshape(1, 3, 8, 8)
    lowered = delegraph.lower(
        Image().eval(), (x,), backends=["npu", "cpu"], quantizers=["npu"], calibration_data=[(x,)],
        fallback=["cpu", "kernels"],
    )  # fmt: skip
    return lowered, x.numpy()


def test_the_first_fallback_whose_backend_is_there(quantized: tuple[Lowered, NDArray[Any]]) -> None:
    lowered, x = quantized
    there = load(lowered).execute([x])[0]
    step = np.unique(np.diff(np.unique(there))).min()
    for gone, runs_on in ((("NpuBackend",), ("CpuBackend",)), (("NpuBackend", "CpuBackend"), ())):
        with pytest.warns(FallbackWarning):
            method = load(lowered, *gone)
        choices = [choice for choice in method.delegate_choices if choice.backend == "NpuBackend"]
        assert [choice.fallback for choice in choices] == [runs_on] * len(choices)
        np.testing.assert_allclose(method.execute([x])[0], there, atol=1.01 * step)  # its rounding is another


def test_a_backend_is_no_fallback_of_its_own(quantized: tuple[Lowered, NDArray[Any]]) -> None:
    entries = {(entry.backend, entry.runner) for entry in quantized[0].report.fallbacks}
    assert ("NpuBackend", "cpu") in entries and ("CpuBackend", "cpu") not in entries


# ---- what cannot be kept ---------------------------------------------------------------------------


def test_what_no_kernel_can_run_is_left_out_with_its_reason() -> None:
    from delegraph.runtime import KernelLibrary

    library = KernelLibrary("few")
    library.kernel("aten::permute_copy.out")(lambda context, *args: None)
    config = ExecutorchBackendConfig(kernels=[library])
    with pytest.warns(FallbackWarning, match="left out the fall-back of delegate 0 of 'forward' on kernels"):
        lowered = lower(Linear(), [X], config=config)
    (entry,) = lowered.report.fallbacks
    assert "aten::" in entry.reason and entry.nbytes == 0
    assert "none: " in str(lowered.report)
    assert [plan.name for plan in lowered.program.executorch_program.execution_plan] == ["forward"]
    with torch.no_grad():
        np.testing.assert_allclose(load(lowered).execute([X.numpy()])[0], Linear()(X).numpy(), rtol=1e-5, atol=1e-6)


def test_state_that_methods_share_is_not_kept_twice() -> None:
    config = ExecutorchBackendConfig(share_mutable_buffers=True)
    models, args = {"a": Stateful().eval(), "b": Stateful().eval()}, (torch.ones(4, 8),)
    with pytest.warns(FallbackWarning, match="which methods share"):
        lowered = delegraph.lower(models, {"a": args, "b": args}, backends=["cpu"], fallback="kernels", config=config)
    assert {entry.reason[:8] for entry in lowered.report.fallbacks} == {"it keeps"}


@pytest.mark.parametrize(
    ("fallback", "error", "message"),
    [
        ("nobody", PluginNotFound, "nobody"),
        (["kernels", "kernels"], LoweringError, "fallback names kernels twice"),
        (["cpu{nonsense=1}"], delegraph.errors.PluginError, "nonsense"),
    ],
)
def test_what_is_named_is_checked_before_anything_else(fallback: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        lower(Linear(), [X], fallback=fallback)


def test_no_method_is_called_as_an_alternative() -> None:
    name = AlternativeOf("forward", 0, 1).plan_name
    with pytest.raises(LoweringError, match="cannot be called"):
        delegraph.lower({name: Linear().eval()}, {name: (X,)})


# ---- where users look ------------------------------------------------------------------------------

MODEL = """
import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()).eval(), (torch.randn(3, 8),)
"""


def test_the_command_line_and_a_device_without_torch_and_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from delegraph.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("fallback_model.py").write_text(MODEL)
    command = ["lower", "fallback_model.py:make", "--backends", "cpu", "--fallback", "kernels", "-o", "m.pte"]
    assert main(command) == 0
    assert "falls back on" in capsys.readouterr().out
    model, (x,) = sys.modules.pop("fallback_model").make()
    assert main(["inspect", "m.pte", "--json"]) == 0
    (method,) = json.loads(capsys.readouterr().out)["methods"]
    (other,) = method["delegates"][0]["alternatives"]
    assert other["fallback"] == [] and other["missing"] == [] and other["nbytes"] > 0
    assert main(["inspect", "m.pte"]) == 0
    assert "its graph, on kernels" in capsys.readouterr().out

    np.savez("inputs.npz", x=x.numpy())
    script = (
        "import numpy as np, delegraph\nx = np.load('inputs.npz')['x']\nnp.save('y.npy', delegraph.load('m.pte')(x))\n"
    )
    Path("run.py").write_text(script)
    environment = {**os.environ, "DELEGRAPH_DISABLE_PLUGINS": "delegraph-cpu"}
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "without_torch.py", "run.py"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "FallbackWarning: method 'forward': delegates 0, of CpuBackend, run their fall-backs" in done.stderr
    with torch.no_grad():
        np.testing.assert_allclose(np.load("y.npy"), model(x).numpy(), rtol=1e-5, atol=1e-6)


def test_from_edge_programs_too() -> None:
    edge = to_edge_transform_and_lower(torch.export.export(Linear().eval(), (X,)), partitioner=_cpu())
    finished = edge.to_executorch(ExecutorchBackendConfig(fallback="kernels"))
    assert [entry.runner for entry in finished.fallbacks] == ["kernels"]
    assert finished.config_methods == set()
    records = deserialize_program(finished.buffer)
    assert records == finished.executorch_program
    assert [plan.name for plan in records.execution_plan] == ["forward", AlternativeOf("forward", 0, 1).plan_name]


def _cpu() -> Any:
    from delegraph.plugins.registry import default_registry

    return [default_registry().create("partitioners", "cpu", {})]


def test_the_same_bytes_each_time() -> None:
    assert bytes(lower(Linear(), [X])) == bytes(lower(Linear(), [X]))


def test_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(lower(Linear(), [X]))
    monkeypatch.setenv("DELEGRAPH_DISABLE_PLUGINS", "delegraph-cpu")
    with delegraph.load(data, isolated=True) as module, torch.no_grad():
        np.testing.assert_allclose(module(X.numpy()), Linear()(X).numpy(), rtol=1e-5, atol=1e-6)
