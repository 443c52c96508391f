"""Models on MNN: what is a delegate, what is left and why, sizes, precisions, the cache."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  # the operators of `dequantized`
from torch.export import Dim

import delegraph
from delegraph.errors import InvalidArgument, NotSupported
from delegraph.runtime import EventTracer
from delegraph_mnn.runtime import conversion
from delegraph_mnn.runtime.backend import MnnBackend
from delegraph_mnn.runtime.tracing import node_of

functional = nn.functional


class Pictures(nn.Module):
    """A residual block, a depthwise convolution and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1, groups=8))
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(self.norm(self.stem(x)).relu(), 2)
        return self.head((x + self.block(x)).mean((2, 3))).softmax(-1)  # type: ignore[no-any-return]


class Calls(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


def whole(model: nn.Module, args: tuple[torch.Tensor, ...], **options: object) -> delegraph.Lowered:
    lowered = delegraph.lower(model.eval(), args, backends=["mnn"], **options)  # type: ignore[arg-type]
    method = lowered.report.methods["forward"]
    assert (len(method.delegates), method.leftovers) == (1, ())
    return lowered


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (Pictures(), (1, 3, 16, 16)),
        (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (1, 8, 16)),
        (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)), (3, 8)),
        (nn.Sequential(nn.ConvTranspose2d(2, 3, 3, 2), nn.Upsample(scale_factor=2, mode="bilinear")), (1, 2, 5, 5)),
    ],
    ids=["pictures", "encoder", "perceptron", "upwards"],
)
def test_a_model_is_one_delegate(model: nn.Module, shape: tuple[int, ...], threads: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    run = delegraph.load(bytes(whole(model, (x,))), backend_options={"mnn": {"num_threads": threads}})
    for _ in range(2):
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)


def test_sizes_may_be_dynamic() -> None:
    model = nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 2, 1)).eval()
    lowered = whole(
        model, (torch.randn(2, 4, 8),), dynamic_shapes=({0: Dim("batch", max=4), 2: Dim("rows", min=2, max=16)},)
    )
    run = delegraph.load(bytes(lowered))
    for shape in ((2, 4, 8), (1, 4, 3), (4, 4, 16), (2, 4, 8)):
        x = torch.randn(shape)
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
    assert run(torch.zeros(0, 4, 8)).shape == (0, 2, 8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_rounded_where_they_leave(dtype: torch.dtype) -> None:
    model, x = (
        nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(dtype).eval(),
        torch.randn(2, 8).to(dtype),
    )
    result = delegraph.load(bytes(whole(model, (x,))))(x)
    assert torch.equal(result, model.float()(x.float()).to(dtype))


def test_weights_of_8_bits_stay_that_in_the_file() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(288, 128)).eval(), torch.randn(2, 3, 8, 8)
    floats = whole(model, (x,))
    quantized = delegraph.quantize(model, [(x,)], recipe="int8_weight_only")
    lowered = delegraph.lower(quantized, backends=["mnn"])
    assert not lowered.report.methods["forward"].leftovers
    assert len(bytes(lowered)) < 0.4 * len(bytes(floats))
    on_kernels = delegraph.load(bytes(delegraph.lower(quantized, backends=[])))
    torch.testing.assert_close(delegraph.load(bytes(lowered))(x), on_kernels(x), rtol=1e-4, atol=1e-5)


def test_an_input_that_no_node_needs() -> None:
    model = Calls(lambda a, b: torch.cat([a, b])[1].relu())
    args = (torch.randn(1, 4), torch.randn(1, 4))
    run = delegraph.load(bytes(whole(model, args)))
    assert torch.equal(run(*args), model(*args))


def dequantized(x: torch.Tensor) -> torch.Tensor:
    codes = x.to(torch.int8)
    result: torch.Tensor = torch.ops.quantized_decomposed.dequantize_per_tensor(codes, 0.1, 0, -128, 127, torch.int8)
    return result


IMAGE, ROW = torch.randn(1, 2, 8, 8), torch.randn(4)


@pytest.mark.parametrize(
    ("function", "args", "told"),
    [
        (torch.round, (ROW,), "not among the operators that MNN was found to compute as torch does"),
        (torch.neg, (torch.tensor([1, 2]),), "MNN computes floats here, not torch.int64"),
        (lambda x: functional.avg_pool2d(x, 3, 2, ceil_mode=True), (IMAGE,), "windows beyond the end"),
        (lambda x: functional.max_pool2d(x, 2, dilation=2), (IMAGE,), "pooling has no dilation"),
        (lambda x: functional.max_pool2d(x, 2, return_indices=True)[1], (IMAGE,), "pooling gives no places"),
        (lambda x: functional.conv3d(x, torch.ones(1, 1, 2, 2, 2)), (torch.ones(1, 1, 3, 3, 3),), "of volumes"),
        (lambda x: functional.conv_transpose2d(x, torch.ones(2, 1, 2, 2), groups=2), (IMAGE,), "wrong with groups"),
        (lambda x: functional.conv_transpose1d(x, torch.ones(2, 1, 2), groups=2), (torch.ones(1, 2, 4),), "groups"),
        (lambda x: functional.pad(x, (-1, 2)), (ROW,), "padding by less than 0"),
        (lambda x: functional.pad(x, (2, -1), "replicate"), (IMAGE[0],), "compute as torch does"),
        (lambda x: functional.pad(x, (-1, 2), "reflect"), (IMAGE[0],), "compute as torch does"),
        (torch.abs, (ROW[:0],), "MNN has no empty tensors"),
        (lambda x: torch.div(x, 2, rounding_mode="floor"), (ROW,), "its quotient is rounded"),
        (dequantized, (ROW,), "of values MNN computes no integers"),
    ],
)  # fmt: skip
def test_what_it_would_compute_wrong_is_left(
    function: Callable[..., torch.Tensor], args: tuple[torch.Tensor, ...], told: str
) -> None:
    lowered = delegraph.lower(Calls(function), args, backends=["mnn"])
    assert told in str(lowered.report)
    torch.testing.assert_close(delegraph.load(bytes(lowered))(*args), function(*args))


def test_a_place_that_is_not_there() -> None:
    run = delegraph.load(bytes(whole(nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 2)), (torch.tensor([[1, 4]]),))))
    with pytest.raises(InvalidArgument, match="holds 5"):
        run(torch.tensor([[1, 5]]))


def test_a_conversion_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Linear(64, 8).eval(), torch.randn(2, 64)
    lowered = whole(model, (x,))
    first = delegraph.load(bytes(lowered), cache=tmp_path)(x)

    def converts(*_: object) -> None:
        raise AssertionError("it is converted again")

    monkeypatch.setattr(conversion, "converted", converts)
    assert torch.equal(delegraph.load(bytes(lowered), cache=tmp_path)(x), first)


@pytest.mark.skipif(sys.platform != "linux", reason="programs are isolated from files on Linux alone")
def test_an_isolated_program_needs_what_was_kept(tmp_path: Path) -> None:
    model, x = nn.Linear(64, 8).eval(), torch.randn(2, 64)
    whole(model, (x,)).save(tmp_path / "m.pte")
    with pytest.raises(NotSupported, match="MNN's converter needs a folder and a process of its own"):
        delegraph.load(tmp_path / "m.pte", isolated=True)
    expected = delegraph.load(tmp_path / "m.pte", cache=tmp_path / "cache")(x)
    with delegraph.load(tmp_path / "m.pte", cache=tmp_path / "cache", isolated=True) as run:
        assert torch.equal(run(x), expected)


@pytest.mark.parametrize(
    ("options", "told"),
    [({"num_threads": 65}, "num_threads is 65; it may be 0 to 64"), ({"precision": "i8"}, "it may be f32 or f16")],
)
def test_an_option_has_the_values_that_it_has(options: dict[str, int | str], told: str) -> None:
    with pytest.raises(InvalidArgument, match=f"MnnBackend: .*{told}"):
        MnnBackend().set_option(options)


def test_an_option_of_lowering_is_in_the_file() -> None:
    lowered = delegraph.lower(nn.Linear(4, 2), (torch.randn(1, 4),), backends=["mnn{precision=f16, num_threads=1}"])
    torch.testing.assert_close(delegraph.load(bytes(lowered))(torch.ones(1, 4)).shape, torch.Size((1, 2)))


@pytest.mark.parametrize(
    ("operation", "node"),
    [
        ("Gemm_1_0", "Gemm_1_0"),
        ("Gemm_1_0__matmul_converted_raster_0", "Gemm_1_0"),
        ("Conv_10_0_raster_0", "Conv_10_0"),
        ("ConvertTensor12", "ConvertTensor12"),
    ],
)
def test_operations_are_of_the_nodes_that_they_are_named_after(operation: str, node: str) -> None:
    assert node_of(operation, {"Gemm_1_0", "Conv_1_0", "Conv_10_0"}) == node


def test_values_are_those_before_what_is_fused() -> None:
    """MNN computes the product and the ReLU behind it at once, and gives images of one dim four."""
    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 2, 3)), torch.randn(2, 8)
    tracer = EventTracer()
    run = delegraph.load(
        bytes(whole(model, (x,))), event_tracer=tracer, backend_options={"mnn": {"intermediate_outputs": True}}
    )
    torch.testing.assert_close(run(x), model(x))
    told = {event.name: event.value for block in tracer.blocks for event in block.debug_events}
    np.testing.assert_allclose(told["Gemm_0_0"], model[0](x).detach(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(told["Conv_3_0"], model(x).detach(), rtol=1e-5, atol=1e-5)


def test_it_is_compared_with_others() -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval(), torch.randn(1, 3, 8, 8)
    compared = delegraph.compare(model, (x,), backends=["cpu", "mnn{num_threads=1}"], rounds=2, seconds=0.01)
    assert {candidate.name for candidate in compared.candidates} == {"cpu, float", "mnn{num_threads=1}, float"}
    assert all(candidate.sqnr is not None and candidate.sqnr > 60 for candidate in compared.candidates), str(compared)


def test_the_example_of_the_readme(tmp_path: Path) -> None:
    text = Path(__file__).parents[1].joinpath("README.md").read_text("utf-8")
    [snippet] = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", snippet], check=True, cwd=tmp_path, env=environment)


SCRIPT = """
import sys
for name in ("torch", "delegraph.aot", "delegraph_partitioners"):
    sys.modules[name] = None
import delegraph, numpy as np
program = delegraph.load(sys.argv[1])
np.save(sys.argv[2], program(np.load(sys.argv[3])))
names = ("delegraph_mnn.aot", "MNN.tools", "_tools", "onnxruntime")
found = [name for name in sys.modules if name.startswith(names)]
assert not found, found
print("alone")
"""


def test_without_torch_and_without_a_word(tmp_path: Path) -> None:
    """MNN writes to standard output when it is imported, and more when it converts; its package has a module that asks
    a server, and installs what that needs."""
    model, x = nn.Sequential(nn.Linear(8, 4), nn.Tanh()), torch.randn(2, 8)
    whole(model, (x,)).save(tmp_path / "m.pte")
    np.save(tmp_path / "x.npy", x.numpy())
    command = [sys.executable, "-c", SCRIPT, *(str(tmp_path / name) for name in ("m.pte", "y.npy", "x.npy"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "alone\n"), done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), model(x).detach().numpy(), rtol=1e-5, atol=1e-6)
