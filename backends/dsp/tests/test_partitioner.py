"""What the partitioner takes, the reason for everything that it leaves, and its options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from backends.dsp.tests.harness import Function, Grid, edge, reasons, small
from torch.export import ExportedProgram

import delegraph
import delegraph_dsp
from delegraph.aot import edge_program
from delegraph.errors import InvalidArgument
from delegraph_dsp.aot import converters
from delegraph_dsp.aot.partitioner import dsp_partitioner
from delegraph_dsp.device import device_named, device_text
from delegraph_partitioners import CapabilityBasedPartitioner

HALF = torch.randn(4, 6).half()
INT8 = Grid(0.05, 3)
INT16 = Grid(0.0002, 0, torch.int16)


def quantized(function: Callable[..., Any], *grids: Grid, out: Grid | None = INT8) -> Callable[..., Any]:
    def call(*codes: torch.Tensor) -> Any:
        real = function(*(grid.dequantize(c) for grid, c in zip(grids, codes, strict=True)))
        return real if out is None else out.quantize(real)

    return call


LEFT: list[tuple[Callable[..., Any], list[torch.Tensor], str, str]] = [
    (lambda x: x.float() + 1, [HALF], "add.Tensor", "is float32: the DSP computes in int8, int16 and float16"),
    (lambda x: torch.add(x, x, alpha=2), [HALF], "add.Tensor", "adds 2 times its second operand"),
    (lambda x: F.softplus(x, beta=2.0), [HALF], "softplus", "softplus with beta 2.0"),
    (lambda x: F.elu(x, 0.5), [HALF], "elu", "elu with factors other than 1"),
    (lambda x: x**3, [HALF], "pow", "of powers there is the square of float16 alone"),
    (lambda x: F.pad(x, (-1, 2)), [HALF], "constant_pad_nd", "cuts off where it pads"),
    (lambda x: torch.matmul(x, x[0]), [HALF], "matmul", "multiplies a vector"),
    (lambda x: F.linear(x[0], x), [HALF], "linear", "multiplies a vector"),
    (lambda x: x.mT @ x, [torch.ones(2, 3, dtype=torch.int32)], "matmul", "computes integers that no scale"),
    (lambda x: F.linear(x, x[0]), [HALF], "linear", "multiplies a vector"),
    (lambda x: torch.fft.fft(x.float()).real, [HALF], "fft", "the DSP has no kernel for aten::_fft_r2c"),
    (lambda x: x.double() * 2.0, [HALF], "mul.Tensor", "is float64: the DSP computes in int8, int16 and float16"),
    (lambda x: x + 1, [torch.arange(5)], "add.Tensor", "computes int64 that no scale belongs to"),
    (lambda x: x.clamp(0, 3), [torch.arange(5)], "clamp", "computes int64 that no scale belongs to"),
    (quantized(torch.exp, INT8, out=None), [INT8.codes(3)], "exp", "its inputs are quantized and its result is not"),
    (
        quantized(torch.floor, INT16, out=INT16), [INT16.codes(3)], "floor",
        "an int16 table has lines between each 128th value, and floor jumps there",
    ),
    (
        quantized(torch.log, INT16, out=INT16), [INT16.codes(3)], "log",
        "an int16 table has lines between each 128th value, and log has a pole at 0",
    ),
    (
        quantized(torch.maximum, INT8, INT8), [INT8.codes(3), INT8.codes(3)], "maximum",
        "maximum is there for float16 alone",
    ),
    (
        quantized(lambda x: torch.log_softmax(x, -1), INT8), [INT8.codes(3, 4)], "log_softmax",
        "the logarithm of softmax is there for float16 alone",
    ),
    (
        quantized(lambda x: F.interpolate(x, size=(5, 7), mode="nearest"), INT8, out=Grid(0.1)),
        [INT8.codes(1, 2, 3, 4)], "upsample_nearest2d", "its input and its result are not on one grid",
    ),
    (
        quantized(torch.tanh, INT8, out=INT16), [INT8.codes(3)], "tanh",
        "its table would go from torch.int8 to torch.int16",
    ),
    (
        lambda x: torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.1, 0, 0, 255, torch.uint8), [HALF],
        "quantize_per_tensor", "quantizes to torch.uint8 tensor by tensor",
    ),
    (lambda x: torch.softmax(x, 0), [HALF[0, 0]], "softmax", "has no dim"),
    (lambda x: x.sum(0), [HALF[0, 0]], "sum", "reduces no dim"),
    (
        lambda x: torch.native_layer_norm(x, [6], None, None, 1e-5)[:2], [HALF], "native_layer_norm",
        "its mean or deviation is read",
    ),
    (F.embedding, [torch.arange(2), HALF > 0], "embedding", "its table is bool"),
    (lambda x: torch.cat([x, x > 0]), [torch.arange(5)], "cat", "joins int64 and bool"),
    (lambda x: torch.cat([x > 0, x]), [HALF], "cat", "joins bool and float16"),
]  # fmt: skip


def whole(function: Callable[..., Any], args: list[torch.Tensor]) -> ExportedProgram:
    """The program with all operators whole that the DSP has kernels for, those that it leaves as well."""
    partitioner = CapabilityBasedPartitioner("DspBackend", lambda node: None, keep_whole=converters.TABLE.kept_whole)
    return edge_program(torch.export.export(Function(function), tuple(args)), partitioner)


@pytest.mark.parametrize("case", LEFT, ids=lambda case: case[3][:40])
def test_reasons(case: tuple[Callable[..., Any], list[torch.Tensor], str, str]) -> None:
    function, args, operator, reason = case
    found = reasons(whole(function, args))
    said = [text for name, text in found.items() if operator in name]
    assert said and said[0].startswith(reason), found


@pytest.mark.parametrize("call", [torch.softmax, torch.log_softmax, torch.sum])
def test_a_dtype_of_its_own_is_left_where_halves_stand_for_float(call: Callable[..., Any]) -> None:
    found = reasons(whole(lambda x: call(x, -1, dtype=torch.float32), [HALF]), half=True)
    assert list(found.values()) == ["converts to torch.float32 before"]


def test_what_a_partitioner_of_the_users_takes_and_the_dsp_does_not_is_left() -> None:
    everything = CapabilityBasedPartitioner("DspBackend", lambda node: None)
    lowered = delegraph.lower(Function(lambda x: torch.add(x, x, alpha=2)), (HALF,), backends=[everything])
    (refusal,) = lowered.report.refusals
    assert "the DSP cannot compile it: adds 2 times its second operand" in str(refusal)


def test_a_value_that_is_read_in_float_elsewhere_keeps_its_dequantize_call_there() -> None:
    def function(codes: torch.Tensor) -> Any:
        real = INT8.dequantize(codes)
        return INT8.quantize(torch.tanh(real)), real + 1.0

    found = reasons(edge(function, [INT8.codes(3)]))
    assert "is read where the DSP does not compute" in found["quantized_decomposed.dequantize_per_tensor.default"]
    assert "is read where the DSP does not compute" in found["aten.tanh.default"]
    assert found["quantized_decomposed.quantize_per_tensor.default"] == "quantizes what the DSP does not compute"


class Running(torch.nn.Module):
    """A sum that is there before a call of the host, and read behind it."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        taken = INT8.quantize(INT8.dequantize(x).relu())
        kept = INT8.quantize(torch.cumsum(INT8.dequantize(INT8.quantize(INT8.dequantize(taken) * 0.5)), 0))
        parts = INT8.quantize(INT8.dequantize(taken) * 0.9), INT8.quantize(INT8.dequantize(taken).tanh())
        total = INT8.quantize(INT8.dequantize(parts[0]) + INT8.dequantize(parts[1]))
        return INT8.quantize(INT8.dequantize(kept) - INT8.dequantize(total)), INT8.dequantize(total)


def test_a_result_is_quantized_in_the_partition_that_computes_it() -> None:
    args = (INT8.codes(6, 6),)
    lowered = delegraph.lower(Running(), args, backends=["dsp"])
    assert len(lowered.report.methods["forward"].delegates) == 2
    for got, wanted in zip(delegraph.load(bytes(lowered))(*(a.numpy() for a in args)), Running()(*args), strict=True):
        step = 1 if wanted.dtype == torch.int8 else INT8.scale
        # results of several calls in a row, each of which may be a step off
        torch.testing.assert_close(torch.from_numpy(np.array(got)), wanted, rtol=0, atol=3.01 * step)


class Shared(torch.nn.Module):
    """A dequantized value that is read before and behind a call of the host."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        real = INT8.dequantize(x)
        summed = INT8.quantize(torch.cumsum(INT8.dequantize(INT8.quantize(torch.tanh(real))), 0))
        return INT8.quantize(INT8.dequantize(INT8.quantize(torch.sin(INT8.dequantize(summed)))) + real)


def test_what_stands_for_codes_is_not_read_from_another_partition() -> None:
    lowered = delegraph.lower(Shared(), (INT8.codes(6, 6),), backends=["dsp"])
    report = lowered.report.methods["forward"]
    assert [list(delegate.operators) for delegate in report.delegates] and all(
        "aten::add.Tensor" not in delegate.operators for delegate in report.delegates
    )
    said = {entry.operator: entry.reasons["dsp"] for entry in report.leftovers}
    assert said["aten::add.Tensor"].endswith("stands for codes in another partition")
    got = delegraph.load(bytes(lowered))(INT8.codes(6, 6).numpy())
    assert np.abs(np.asarray(got, np.int64) - Shared()(INT8.codes(6, 6)).numpy()).max() <= 1


def test_shapes_that_are_known_only_at_run_time() -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    batch = torch.export.Dim("batch", max=8)
    lowered = delegraph.lower(Sum(), (HALF,), dynamic_shapes={"x": {0: batch}}, backends=["dsp"])
    assert not lowered.report.methods["forward"].delegates
    assert "its shape is known only when it runs" in str(lowered.report.to_json())


def test_codes_of_an_unknown_number_change_their_grid_elsewhere() -> None:
    """As they do around a dropout, which is gone when a model is lowered."""

    class Between(torch.nn.Module):
        def forward(self, codes: torch.Tensor) -> torch.Tensor:
            return Grid(0.1).dequantize(Grid(0.1).quantize(INT8.dequantize(INT8.quantize(INT8.dequantize(codes)))))

    batch = torch.export.Dim("batch", max=8)
    codes = INT8.codes(4, 6)
    lowered = delegraph.lower(Between(), (codes,), dynamic_shapes={"codes": {0: batch}}, backends=["dsp"])
    left = lowered.report.methods["forward"].leftovers
    assert {reason for node in left for reason in node.reasons.values()} == {"its shape is known only when it runs"}
    got = delegraph.load(bytes(lowered))(codes[:3].numpy())
    torch.testing.assert_close(torch.from_numpy(np.array(got)), Between()(codes[:3]))


def test_a_row_that_the_tcm_does_not_hold() -> None:
    program = edge(lambda x: torch.softmax(x, -1), [torch.randn(2, 4096).half()], small(8192))
    (reason,) = reasons(program, small(8192)).values()
    assert reason == "one tile of it takes 32768 bytes of TCM, and hvx-4mb has 8192"


# ---- options ------------------------------------------------------------------------------------------------------


def test_a_device_of_the_users_own_by_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(device_text(device_named("audio-256kb", 2**17)).replace("audio-256kb", "mine"))
    x = torch.randn(8, 16).half()
    lowered = delegraph.lower(Function(lambda a: a + a), (x,), backends=[("dsp", {"device": str(file)})])
    run = delegraph.load(bytes(lowered))
    np.testing.assert_array_equal(np.asarray(run(x.numpy())), (x + x).numpy())
    assert b'name = "mine"' in bytes(lowered) and b"tcm_nbytes = 131072" in bytes(lowered)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "hvx-4m"}, r"there is no device 'hvx-4m' \(did you mean 'hvx-4mb'\?\); presets are audio-256kb"),
        ({"device": "nowhere.toml"}, "description can't be read"),
        ({"tcm_nbytes": 0}, "tcm_nbytes is 0; it is above 0"),
        ({"tcm_nbytes": 1 << 40}, "it is up to 1073741824"),
        ({"dtype": "bfloat16"}, "dtype is 'bfloat16'; what is float32 can be computed as 'float16', or be left"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        dsp_partitioner(**options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("clock_mhz = 1000.0", "clock_mhz = 0"), "clock_mhz is 0.0; it is above 0"),
        (("vector_nbytes = 128", "vector_nbytes = 100"), "vector_nbytes is 100; it is a power of two from 16"),
        (("vector_nbytes = 128", "vector_registers = 4"), "vector_registers is 4; it is 16 to 256"),
        (("vector_nbytes = 128", "loop_overhead = -1"), "loop_overhead and launch_overhead are not below 0"),
        (("[tcm]", "[units_of]\nmultiply = 1\n[tcm]"), "units_of.multiply is 1; one instruction takes 2"),
        (("clock_mhz", "clock"), "did you mean 'clock_mhz'"),
    ],
)
def test_devices_that_cannot_be(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    file = tmp_path / "mine.toml"
    preset = Path(delegraph_dsp.__file__).parent / "presets" / "hvx-4mb.toml"
    file.write_text(preset.read_text().replace(*change))
    with pytest.raises(InvalidArgument, match=message):
        device_named(str(file))
