"""Models on WebGPU: what it takes, states on the host and on the device, and what is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from backends.providers.tests.models import Cache, KeywordNet, LittleLlama, model_of
from torch import nn
from torch.export import Dim

import delegraph
from delegraph.aot import to_edge
from delegraph.errors import DelegateInvalidCompatibility, InvalidArgument, NotSupported
from delegraph.interfaces import BackendInitContext
from delegraph_cpu.blob import pack
from delegraph_providers.aot.lowering import WebGpuLowering
from delegraph_providers.blob import format_of
from delegraph_providers.engine import require_precision
from delegraph_providers.graph_blob import unpack_graph
from delegraph_providers.options import graph_options
from delegraph_providers.providers import WEBGPU
from delegraph_providers.runtime.graph_backend import WebGpuBackend

pytestmark = pytest.mark.accelerators

Made = Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]


class Pictures(nn.Module):
    """A residual block, an inverted one, a head, as ResNet-18 and MobileNetV2 have them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1))
        self.wide, self.depthwise, self.narrow = (
            nn.Conv2d(8, 16, 1),
            nn.Conv2d(16, 16, 3, 1, 1, groups=16),
            nn.Conv2d(16, 8, 1),
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(self.norm(self.stem(x)).relu(), 2)
        x = (x + self.block(x)).relu()
        x = x + self.narrow(nn.functional.relu6(self.depthwise(self.wide(x))))
        return self.head(x.mean((2, 3))).softmax(-1)  # type: ignore[no-any-return]


class Sentences(nn.Module):
    """Tokens and a mask of them, as MiniLM has them."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        bias = (1.0 - mask.to(torch.float32)) * -1e9
        x = self.encoder(self.norm(self.table(tokens)), src_mask=bias.unsqueeze(1).expand(2, 6, 6))
        return x.mean(1)  # type: ignore[no-any-return]


WHOLE: dict[str, Made] = {
    "pictures": lambda: (Pictures(), (torch.randn(1, 3, 16, 16),)),
    "encoder": lambda: (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (torch.randn(1, 8, 16),)),
    "keywords": lambda: (KeywordNet(), (torch.randn(1, 1, 49, 10),)),
    "sentences": lambda: (Sentences(), (torch.tensor([[3, 1, 4, 1, 5, 9]] * 1), torch.ones(1, 6, dtype=torch.int64))),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_model_is_one_delegate(name: str) -> None:
    model, args = model_of(WHOLE[name])
    lowered = delegraph.lower(model, args, backends=["webgpu"])
    method = lowered.report.methods["forward"]
    assert (len(method.delegates), method.leftovers) == (1, ())
    run = delegraph.load(bytes(lowered))
    for _ in range(2):
        torch.testing.assert_close(run(*args), model(*args), rtol=1e-4, atol=1e-5)


def test_sizes_may_be_dynamic() -> None:
    model, _ = model_of(WHOLE["encoder"])
    dims = ({0: Dim("batch", max=4), 1: Dim("rows", max=16)},)
    lowered = delegraph.lower(model, (torch.randn(2, 8, 16),), backends=["webgpu"], dynamic_shapes=dims)
    method = lowered.report.methods["forward"]
    assert (len(method.delegates), method.leftovers) == (1, ())
    run = delegraph.load(bytes(lowered))
    for shape in ((2, 8, 16), (1, 3, 16), (4, 16, 16)):
        x = torch.randn(shape)
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("states", ["host", "device"])
def test_a_state_is_kept(states: str) -> None:
    lowered = delegraph.lower(Cache().eval(), (torch.tensor(0), torch.randn(1, 4)), backends=["webgpu"])
    method = lowered.report.methods["forward"]
    assert (len(method.delegates), method.leftovers) == (1, ())
    run = delegraph.load(bytes(lowered), backend_options={"webgpu": {"states": states}})
    model = Cache().eval()
    for place in (0, 5, 2):
        rows = torch.randn(1, 4)
        torch.testing.assert_close(run(torch.tensor(place), rows), model(torch.tensor(place), rows))
    with pytest.raises(InvalidArgument, match="holds 8"):
        run(torch.tensor(8), torch.randn(1, 4))


def test_a_state_on_the_device_is_read_set_saved_reset_and_forked(tmp_path: Path) -> None:
    lowered = delegraph.lower(Cache().eval(), (torch.tensor(0), torch.randn(1, 4)), backends=["webgpu"])
    run = delegraph.load(bytes(lowered), backend_options={"webgpu": {"states": "device"}})
    ones, rows = torch.ones(1, 4), np.zeros((8, 4), np.float32)
    for place in (0, 5):
        run(torch.tensor(place), ones)
        rows[place] = 1
    np.testing.assert_array_equal(run.state["rows"], rows)
    run.state.save(tmp_path / "rows.ptd")
    other = run.fork()
    assert run(torch.tensor(5), 2 * ones).tolist() == [3 * 1.125] * 4
    assert other(torch.tensor(1), ones).tolist() == [3 * 1.125] * 4
    run.state["rows"][...] = 1
    assert run(torch.tensor(0), ones).tolist() == [9.0] * 4
    run.state.reset()
    assert run(torch.tensor(2), ones).tolist() == [1.125] * 4
    run.state.load(tmp_path / "rows.ptd")
    np.testing.assert_array_equal(run.state["rows"], rows)
    assert run(torch.tensor(2), ones).tolist() == [3 * 1.125] * 4


@pytest.mark.parametrize("states", ["host", "device"])
def test_a_small_llama_decodes_with_its_cache(states: str) -> None:
    torch.manual_seed(0)
    model = LittleLlama().eval().requires_grad_(False)
    args = (torch.tensor([[1]]), torch.tensor([0]))
    lowered = delegraph.lower(model, args, backends=["webgpu"])
    method = lowered.report.methods["forward"]
    assert (len(method.delegates), method.leftovers) == (1, ())
    run, eager = delegraph.load(bytes(lowered), backend_options={"webgpu": {"states": states}}), model
    token = 1
    for place in range(5):
        step = (torch.tensor([[token]]), torch.tensor([place]))
        logits, expected = run(*step), eager(*step)
        torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-4)
        token = int(expected.argmax())


def test_methods_share_what_is_on_the_device() -> None:
    class Writes(nn.Module):
        def __init__(self, buffer: torch.Tensor) -> None:
            super().__init__()
            self.register_buffer("kept", buffer)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.kept.add_(x)  # type: ignore[operator]
            return self.kept * 2  # type: ignore[operator]

    kept = torch.zeros(4)
    models = {"first": Writes(kept), "second": Writes(kept)}
    config = delegraph.LoweringConfig(executorch=delegraph.ExecutorchBackendConfig(share_mutable_buffers=True))
    x = (torch.ones(4),)
    lowered = delegraph.lower(models, dict.fromkeys(models, x), backends=["webgpu"], config=config)
    session = delegraph.load(bytes(lowered), method="first", backend_options={"webgpu": {"states": "device"}})
    assert session(*x).tolist() == [2.0] * 4
    assert session.second(*x).tolist() == [4.0] * 4
    assert session.state["kept"].tolist() == [2.0] * 4
    assert session(*x).tolist() == [6.0] * 4
    lowered = delegraph.lower(models, dict.fromkeys(models, x), backends={"first": ["webgpu"]}, config=config)
    options = {"webgpu": {"states": "device"}}
    with pytest.raises(NotSupported, match=r"on its device between runs.* load with the option of that backend"):
        delegraph.load(bytes(lowered), method="first", backend_options=options)


def test_a_program_of_the_table_runs_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from delegraph_providers.aot import asking

    def absent(*_: object) -> None:
        raise NotSupported("no device")

    model, args = model_of(WHOLE["encoder"])
    with monkeypatch.context() as without:
        without.setattr(asking, "assigned", absent)
        lowered = delegraph.lower(model, args, backends=["webgpu"])
    assert not lowered.report.methods["forward"].leftovers
    torch.testing.assert_close(delegraph.load(bytes(lowered))(*args), model(*args), rtol=1e-4, atol=1e-5)


def test_an_operator_that_it_has_not_is_left_in_its_words() -> None:
    lowered = delegraph.lower(nn.Sequential(nn.ReLU(), nn.LogSoftmax(-1)), (torch.randn(2, 4),), backends=["webgpu"])
    assert "the provider leaves its LogSoftmax to the CPU" in str(lowered.report)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (torch.addmv, [(5,), (5, 4), (4,)]),
        (nn.functional.conv_transpose3d, [(1, 2, 3, 3, 3), (2, 1, 2, 2, 2)]),
        (lambda x, w: nn.functional.conv_transpose3d(x, w, groups=2), [(1, 2, 3, 3, 3), (2, 1, 2, 2, 2)]),
    ],
)
def test_what_it_takes_and_fails_to_run_is_left(
    function: Callable[..., torch.Tensor], shapes: list[tuple[int, ...]]
) -> None:
    class Model(nn.Module):
        def forward(self, *args: torch.Tensor) -> torch.Tensor:
            return function(*args)

    args = tuple(torch.randn(shape) for shape in shapes)
    lowered = delegraph.lower(Model(), args, backends=["webgpu"])
    assert "takes and fails to run" in str(lowered.report)
    torch.testing.assert_close(delegraph.load(bytes(lowered))(*args), function(*args), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [lambda x: x.amax(1), lambda x: x.aminmax()[0], nn.functional.relu6])
def test_places_beyond_32_bits_are_not_cut(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return function(x), y.relu() * 2

    args = (torch.tensor([[2**31, -8, 9], [1, 2, -(2**40)]]), torch.randn(3))
    result = delegraph.load(bytes(delegraph.lower(Model(), args, backends=["webgpu"])))(*args)
    assert torch.equal(result[0], function(args[0]))


def test_a_graph_that_it_does_not_take_whole_is_refused() -> None:
    program = to_edge(torch.export.export(nn.ReLU(), (torch.randn(4),))).exported_program()
    blob = unpack_graph(WebGpuLowering.preprocess(program, []).processed_bytes, WEBGPU)
    graph = bytes(blob.graph).replace(b"\x22\x04Relu", b"\x22\x04Sign", 1)  # the field `op_type` of a node
    for on_host, told in (
        ((), "refuses a graph that was lowered with"),
        (("none",), "leaves Sign to the CPU, of a graph"),
    ):
        data = pack(replace(blob, graph=graph, on_host=on_host), [], format_of(WEBGPU))
        with pytest.raises(DelegateInvalidCompatibility, match=told):
            WebGpuBackend().init(BackendInitContext("forward"), data, [])


@pytest.mark.parametrize("halved", [False, True], ids=["computed", "taken and given"])
def test_float16_needs_a_device_that_has_it(halved: bool) -> None:
    model, args = model_of(WHOLE["encoder"])
    if halved:
        model, args = model.half(), (args[0].half(),)
    lowered = delegraph.lower(model, args, backends=["webgpu" if halved else "webgpu{precision=f16}"])
    assert not lowered.report.methods["forward"].leftovers
    try:
        require_precision(WEBGPU, graph_options(WEBGPU)(), ["float16"])
    except NotSupported:
        with pytest.raises(NotSupported, match="has no float16: lower a model in float32, with precision=f32"):
            delegraph.load(bytes(lowered))
    else:
        torch.testing.assert_close(delegraph.load(bytes(lowered))(*args), model(*args), rtol=1e-2, atol=2e-2)


def test_the_runtime_needs_no_torch(tmp_path: Path) -> None:
    model, args = model_of(WHOLE["pictures"])
    delegraph.lower(model, args, backends=["webgpu"]).save(tmp_path / "m.pte")
    np.save(tmp_path / "x.npy", args[0].numpy())
    code = (
        "import sys, numpy, delegraph\n"
        f"delegraph.load({str(tmp_path / 'm.pte')!r})(numpy.load({str(tmp_path / 'x.npy')!r}))\n"
        "assert not {'torch', 'onnx', 'onnx_ir', 'delegraph_onnx'} & {*sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_forks_have_states_of_their_own() -> None:
    lowered = delegraph.lower(Cache().eval(), (torch.tensor(0), torch.randn(1, 4)), backends=["webgpu"])
    run: Any = delegraph.load(bytes(lowered))
    other = run.fork()
    ones = torch.ones(1, 4)
    assert run(torch.tensor(1), ones).tolist() == [1.125] * 4
    assert other(torch.tensor(2), ones).tolist() == [1.125] * 4


def test_the_example_of_the_readme(tmp_path: Path) -> None:
    text = Path(__file__).parents[2].joinpath("README.md").read_text("utf-8")
    _, snippet = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", snippet], check=True, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert "WebGpuProvider" in done.stdout
