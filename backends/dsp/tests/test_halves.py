"""Kernels on float16 against float64: the one rounding at the end, and what sums in float32 lose before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from backends.dsp.tests.harness import Run, small
from numpy.typing import NDArray

from delegraph_dsp.program import FUNCTIONS
from delegraph_dsp.runtime.functions import REAL_FUNCTIONS, table_of_halves
from delegraph_dsp.runtime.kernels import TABLE, products
from delegraph_dsp.runtime.kernels.rows import lane_sum


def halves(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).half()


def check(*cases: tuple[Callable[..., Any], list[torch.Tensor]], lost: float = 2.0**-20, half: bool = False) -> None:
    """All functions in one program: each result lies within half a step of float16, and `lost`, of float64's."""
    counts = [len(args) for _, args in cases]
    starts = [sum(counts[:n]) for n in range(len(cases))]

    def everything(*args: torch.Tensor) -> list[torch.Tensor]:
        return [f(*args[s : s + n]) for (f, _), s, n in zip(cases, starts, counts, strict=True)]

    args = [arg for _, of in cases for arg in of]
    found = Run(everything, args)(*args)
    exact = everything(*(arg.double() if arg.is_floating_point() else arg for arg in args))
    for number, (out, real) in enumerate(zip(found, exact, strict=True)):
        assert out.shape == tuple(real.shape)
        if out.dtype == np.float16:
            within_one_rounding(out, real.numpy(), lost, number)
        else:
            np.testing.assert_array_equal(out, real.numpy())


def within_one_rounding(out: NDArray[Any], exact: NDArray[Any], lost: float, number: int = 0) -> None:
    magnitude = np.abs(exact)
    step = 2.0 ** np.maximum(np.floor(np.log2(np.maximum(magnitude, 2.0**-14))) - 10, -24)
    assert (np.abs(out.astype(np.float64) - exact) <= 0.5 * step + lost * np.maximum(magnitude, 1)).all(), number


# ---- elements -----------------------------------------------------------------------------------------------------


def test_arithmetic() -> None:
    x, y, row = halves(5, 33), halves(5, 33, seed=1), halves(33, seed=2)
    check(
        *((f, [x, y]) for f in (torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum)),
        *((f, [x, row]) for f in (torch.add, torch.mul)),
        (lambda a: a * 0.125 + 1.0, [x]),
        (lambda a: a**2, [x]),
        *((f, [x, y]) for f in (torch.gt, torch.lt, torch.ge, torch.le, torch.eq, torch.ne)),
        (lambda a, b: torch.where(a > b, a, b), [x, y]),
        (lambda a: F.hardtanh(a, -0.25, 0.5), [x]),
        (lambda a: torch.clamp(a, max=0.25), [x]),
        lost=0.0 + 2.0**-11,
    )


def test_functions() -> None:
    x = halves(3, 50)
    positive = x.abs() + 0.1
    smooth: list[Callable[..., Any]] = [
        *(torch.exp, torch.sigmoid, torch.tanh, F.gelu, F.silu, torch.erf, F.softplus, F.hardsigmoid, F.hardswish),
        *(torch.sin, torch.cos, F.elu, F.mish, torch.expm1, torch.abs, torch.neg, F.relu, torch.floor, torch.ceil),
        *(torch.reciprocal, lambda a: F.gelu(a, approximate="tanh")),
    ]
    roots = (torch.log, torch.sqrt, torch.rsqrt, torch.log1p)
    check(*((f, [x]) for f in smooth), *((f, [positive]) for f in roots), lost=2.0**-40)


def test_no_value_of_a_function_lies_where_the_last_bit_of_a_double_decides() -> None:
    """So the table is the same whatever library computed it: a double's error, 2**-50 of it, changes no entry."""
    inputs = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    for name in FUNCTIONS:
        with np.errstate(all="ignore"):
            real = np.asarray(REAL_FUNCTIONS[name](inputs))
            moved = [(real * factor).astype(np.float16) for factor in (1 - 2.0**-48, 1 + 2.0**-48)]
            middle = (real * 2.0**25 % 2 == 1) | (np.frexp(real)[0] * 2.0**12 % 2 == 1)  # ties are exact, and stay
        table = table_of_halves(name)
        exact = table.astype(np.float64) == real
        undecided = (moved[0].view(np.uint16) != moved[1].view(np.uint16)) & ~exact & ~middle & ~np.isnan(real)
        assert not undecided.any(), (name, inputs[undecided][:5])


def test_special_values_of_functions() -> None:
    inputs = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 65504.0, -65504.0], np.float16)
    for name, function in (("gelu", F.gelu), ("silu", F.silu), ("sigmoid", torch.sigmoid), ("relu", F.relu)):
        expected = function(torch.from_numpy(inputs).double()).half().numpy()
        found = table_of_halves(name)[inputs.view(np.uint16)]
        finite = ~np.isneginf(inputs.astype(np.float64))  # 0 times infinity is NaN in torch; the limit here
        np.testing.assert_array_equal(found[finite], expected[finite])
        assert found[2] == 0


# ---- rows and products --------------------------------------------------------------------------------------------


def test_rows() -> None:
    x, weight, bias = halves(3, 5, 70), halves(70, seed=1), halves(70, seed=2)
    check(
        *((lambda a, d=dim: torch.softmax(a, d), [x]) for dim in (-1, 1, 0)),
        (lambda a: torch.log_softmax(a, -1), [x]),
        (lambda a, w, b: F.layer_norm(a, (70,), w, b), [x, weight, bias]),
        (lambda a: F.layer_norm(a, (5, 70)), [x]),
        (lambda a, w: F.rms_norm(a, (70,), w, 1e-5), [x, weight]),
        (lambda a: a.mean(-1), [x]),
        (lambda a: a.sum((0, 2), keepdim=True), [x]),
        (lambda a: a.amax(1), [x]),
        (lambda a: a.amin((1, 2)), [x]),
    )


def test_products() -> None:
    x, weight, bias = halves(2, 7, 40), halves(23, 40, seed=1, scale=0.2), halves(23, seed=2)
    check(
        (F.linear, [x, weight, bias]),
        (F.linear, [x, weight]),
        (torch.matmul, [x, halves(2, 40, 9, seed=3)]),
        (lambda a, b: torch.matmul(a, b.transpose(-1, -2)), [x, halves(2, 9, 40, seed=4)]),
        (torch.bmm, [x, halves(2, 40, 9, seed=5)]),
        (torch.mm, [x[0], halves(40, 9, seed=6)]),
        (torch.addmm, [halves(9, seed=7), x[0], halves(40, 9, seed=8)]),
        (torch.matmul, [halves(2, 3, 4, 8), halves(3, 8, 5, seed=9)]),
    )


def test_sums_run_in_lanes_whatever_the_library_does() -> None:
    x = np.random.default_rng(0).standard_normal((3, 77), np.float32)
    lanes = np.zeros((3, 32), np.float32)
    for index in range(77):
        lanes[:, index % 32] += x[:, index]
    while lanes.shape[1] > 1:
        lanes = lanes[:, : lanes.shape[1] // 2] + lanes[:, lanes.shape[1] // 2 :]
    np.testing.assert_array_equal(lane_sum(x), lanes)


@pytest.mark.parametrize("asked", [True, False], ids=["einsum", "row by row"])
def test_products_are_summed_by_rising_k(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With whatever shape, and where NumPy's einsum were found to go another way."""
    if not asked:
        monkeypatch.setattr(products, "_einsum_goes_by_rows", lambda: False)
    rng = np.random.default_rng(1)
    for m, n in ((1, 1), (1, 2), (2, 1), (1, 65), (40, 1), (7, 9)):
        a, b, bias = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, m, 70), (1, 70, n), (n,)))
        out, expected = np.zeros((2, m, n), np.float16), np.empty((2, m, n), np.float16)
        TABLE["matmul"].function([a, b, bias, out], [], [])
        for batch, row, column in np.ndindex(2, m, n):
            total = np.float32(bias[column])
            for k in range(70):
                total += np.float32(a[batch, row, k]) * np.float32(b[0, k, column])
            expected[batch, row, column] = total
        np.testing.assert_array_equal(out, expected)


# ---- moves and images ---------------------------------------------------------------------------------------------


def test_moves_and_images() -> None:
    x, image = halves(4, 5, 6), halves(2, 3, 5, 6)
    table, index = halves(20, 12), torch.tensor([[3, 0], [19, 7]])
    check(
        (lambda a: torch.cat([a, a * 2.0], 2), [x]),
        (lambda a: F.pad(a, (1, 2, 3, 0), value=-1.5), [x]),
        (lambda a: a.permute(2, 0, 1)[1:, ::2].reshape(5, -1), [x]),
        (lambda a: a.unsqueeze(0).expand(3, 4, 5, 6), [x]),
        (lambda a: F.interpolate(a, scale_factor=2.0, mode="nearest"), [image]),
        (lambda a: F.interpolate(a, scale_factor=2.0, mode="bilinear"), [image]),
        (lambda a: F.interpolate(a, size=(9, 4), mode="bilinear", align_corners=True), [image]),
        (lambda t, i: F.embedding(i, t), [table, index]),
        (lambda t, i: torch.index_select(t, 0, i), [table, index[0]]),
    )


@pytest.mark.parametrize("value", [2, -1.5, 0.5])
def test_integers_and_booleans_are_padded_with_their_number(value: float) -> None:
    integers = torch.arange(-3, 3).reshape(2, 3)
    inputs = [*(integers.to(dtype) for dtype in (torch.int8, torch.int16, torch.int32, torch.int64)), integers > 0]
    check(*((lambda a: F.pad(a, (1, 2), value=value), [x]) for x in inputs))


def test_float32_is_computed_as_float16_where_the_user_asked_for_it() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32))
    x = torch.randn(5, 16)
    run = Run(module, [x], half=True)
    (out,) = run(x)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, module(x).detach().numpy(), atol=8e-3)
    assert {"convert"} < {call.kernel for call in run.compiled.graph.calls}


def test_outputs_that_are_inputs_constants_or_each_other() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + x
        return y, y.transpose(0, 1), y

    x = halves(3, 4)
    for found, expected in zip(Run(function, [x])(x), function(x), strict=True):
        np.testing.assert_array_equal(found, expected.numpy())


def test_a_matrix_larger_than_the_tcm() -> None:
    weight = halves(96, 64, scale=0.1)
    x = halves(32, 64, seed=1)
    device = small(8192)
    run = Run(lambda a, w: F.softmax(F.linear(a, w), -1), [x, weight], device)
    np.testing.assert_array_equal(
        run(x, weight)[0], Run(lambda a, w: F.softmax(F.linear(a, w), -1), [x, weight])(x, weight)[0]
    )
    assert weight.numel() * 2 > device.tcm_nbytes >= run.compiled.program.tcm_nbytes
