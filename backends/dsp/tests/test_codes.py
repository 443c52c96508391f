"""Kernels on int8 and int16 against torch's dequantize, float operator, quantize: at most a step apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from backends.dsp.tests.harness import Grid, Q, Run, edge, reasons, run, small, steps_apart

pytestmark = pytest.mark.long

INT8, INT8_OUT = Grid(0.05, 3), Grid(0.03, -7)
INT16, INT16_OUT = Grid(0.0004, 0, torch.int16), Grid(0.0003, 0, torch.int16)
GRIDS = {"int8": (INT8, INT8_OUT), "int16": (INT16, INT16_OUT)}
by_dtype = pytest.mark.parametrize("dtype", GRIDS)


@dataclass(frozen=True)
class Case:
    """A float function, the grids and shapes of what it takes, the grid of what it gives."""

    function: Callable[..., Any]
    grids: Sequence[Grid]
    shapes: Sequence[tuple[int, ...]]
    out: Grid

    def codes(self) -> list[torch.Tensor]:
        numbered = enumerate(zip(self.grids, self.shapes, strict=True))
        return [grid.codes(*shape, seed=number) for number, (grid, shape) in numbered]

    def quantized(self, codes: Sequence[torch.Tensor]) -> torch.Tensor:
        return self.out.quantize(self.function(*(g.dequantize(c) for g, c in zip(self.grids, codes, strict=True))))


def check(*cases: Case, within: int = 1) -> None:
    """All cases in one program, each with q-dq around its function: compiled, run, and compared."""
    counts = [len(case.grids) for case in cases]
    starts = [sum(counts[:n]) for n in range(len(cases))]

    def everything(*codes: torch.Tensor) -> list[torch.Tensor]:
        return [c.quantized(codes[s : s + n]) for c, s, n in zip(cases, starts, counts, strict=True)]

    args = [codes for case in cases for codes in case.codes()]
    apart = [steps_apart(*pair) for pair in zip(Run(everything, args)(*args), everything(*args), strict=True)]
    assert max(apart) <= within, apart


def coarser(grid: Grid, factor: float) -> Grid:
    """The same with larger steps."""
    return Grid(grid.scale * factor, grid.zero, grid.dtype)


# ---- elements -----------------------------------------------------------------------------------------------------

FUNCTIONS: list[Callable[..., Any]] = [
    *(F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.silu, torch.sigmoid, torch.tanh, F.elu, F.softplus, F.mish),
    *(torch.erf, torch.sin, torch.cos, F.hardswish, F.hardsigmoid, torch.abs, torch.neg),
]


def test_functions_of_int8_by_table() -> None:
    positive = Grid(0.05, -128)
    cases = [Case(function, [INT8], [(7, 40)], INT8_OUT) for function in [*FUNCTIONS, torch.exp]]
    roots = [Case(function, [positive], [(300,)], INT8_OUT) for function in (torch.log, torch.sqrt)]
    check(*cases, *roots)


def test_functions_of_int16_by_table() -> None:
    """513 entries and straight lines between: off by their curvature, some steps of 65536."""
    smooth = [F.gelu, torch.sigmoid, torch.tanh, F.silu, F.softplus, torch.sin]
    check(*(Case(function, [INT16], [(7, 40)], INT16_OUT) for function in smooth), within=4)


@by_dtype
def test_arithmetic_broadcasts(dtype: str) -> None:
    grid, out = GRIDS[dtype]
    other = Grid(grid.scale * 0.7, -5 if dtype == "int8" else 0, grid.dtype)
    check(
        *(
            Case(operator, [grid, other], [(5, 33), shape], coarser(out, 4))
            for operator in (torch.add, torch.sub, torch.mul)
            for shape in ((5, 33), (1, 33), (5, 1), (33,))
        )
    )


@pytest.mark.parametrize("out", [INT8_OUT, INT16_OUT], ids=["to int8", "to int16"])
def test_arithmetic_of_codes_of_two_sizes(out: Grid) -> None:
    """A vector of int8 meets two of int16."""
    shapes = [(1, 3, 6, 6), (2, 1, 3, 6, 6)]
    for grids in ((INT8, INT16), (INT16, INT8)):
        check(*(Case(function, grids, shapes, coarser(out, 4)) for function in (torch.add, torch.mul)))


@by_dtype
def test_times_a_number(dtype: str) -> None:
    grid, out = GRIDS[dtype]
    factors = (0.25, -3.0, 1.7)
    products = [Case(lambda x, f=factor: x * f, [grid], [(4, 9)], out) for factor in factors]
    quotients = [Case(lambda x, f=factor: x / f, [grid], [(4, 9)], out) for factor in factors]
    check(*products, *quotients)


@by_dtype
def test_limits_by_themselves_and_behind_a_sum(dtype: str) -> None:
    grid, out = GRIDS[dtype]
    limits = [F.relu, F.relu6, lambda x: F.hardtanh(x, -0.5, 0.75), lambda x: torch.clamp(x, min=0.2)]
    limits += [lambda x: x.clamp(0.7, 0.3), lambda x: x.clamp(0.5, 0.9).clamp(0.1, 0.3)]
    alone = [Case(limit, [grid], [(4, 9)], out) for limit in limits]
    behind = [Case(lambda x, y, f=limit: f(x + y), [grid, grid], [(4, 9), (4, 9)], out) for limit in limits]
    check(*alone, *behind)


# ---- rows ---------------------------------------------------------------------------------------------------------


@by_dtype
def test_softmax_along_any_dim(dtype: str) -> None:
    out = Grid(1 / 256, -128) if dtype == "int8" else Grid(1 / 32768, 0, torch.int16)
    shapes = [((6, 50), -1), ((3, 20, 7), 1), ((1000,), 0), ((2, 1), -1)]
    cases = [Case(lambda x, d=dim: torch.softmax(x, d), [GRIDS[dtype][0]], [shape], out) for shape, dim in shapes]
    check(*cases)


@by_dtype
def test_norms(dtype: str) -> None:
    grid, out = GRIDS[dtype][0], Grid(0.03, -7) if dtype == "int8" else Grid(0.0002, 0, torch.int16)
    weight, bias = torch.randn(2, 48, generator=torch.Generator().manual_seed(1))
    layers: list[Callable[..., Any]] = [
        lambda x: F.layer_norm(x, (48,), weight, bias),
        lambda x: F.layer_norm(x, (48,)),
        lambda x: F.layer_norm(x, (5, 48)),
        lambda x: F.rms_norm(x, (48,), weight),
        lambda x: F.rms_norm(x, (48,), None, 1e-3),
    ]
    check(*(Case(layer, [grid], [(3, 5, 48)], out) for layer in layers))


def test_norm_of_rows_that_are_all_alike() -> None:
    def quantized(codes: torch.Tensor) -> torch.Tensor:
        return INT8_OUT.quantize(F.layer_norm(INT8.dequantize(codes), (16,)))

    codes = torch.full((2, 16), 9, dtype=torch.int8)
    assert steps_apart(run(quantized, codes), quantized(codes)) == 0


@by_dtype
def test_reductions(dtype: str) -> None:
    grid, out = GRIDS[dtype]
    reductions: list[Callable[..., Any]] = [
        *(lambda x: x.mean(-1), lambda x: x.mean((1, 2), keepdim=True), lambda x: x.sum(1)),
        *(lambda x: x.amax(1), lambda x: x.amin((0, 2))),
    ]
    check(*(Case(reduction, [grid], [(3, 6, 11)], coarser(out, 8)) for reduction in reductions))


# ---- products -----------------------------------------------------------------------------------------------------


class Linear(torch.nn.Module):
    """A linear layer as torchao converts it: its weight int8 behind a dequantize call."""

    def __init__(self, grid: Grid, out: Grid, inner: int, columns: int, per_channel: bool = True) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.grid, self.out, self.per_channel = grid, out, per_channel
        self.register_buffer("weight", torch.randint(-127, 128, (columns, inner), generator=generator).to(torch.int8))
        self.register_buffer("scales", torch.rand(columns, generator=generator) * 0.01 + 0.001)
        self.register_buffer("zeros", torch.zeros(columns, dtype=torch.int64))
        self.register_buffer("bias", torch.randn(columns, generator=generator) if per_channel else None)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        if self.per_channel:
            real = Q.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        else:
            real = Q.dequantize_per_tensor(self.weight, 0.004, 0, -127, 127, torch.int8)
        return self.out.quantize(F.linear(self.grid.dequantize(codes), real, self.bias))


@by_dtype
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize(("rows", "inner", "columns"), [((5,), 33, 17), ((2, 3), 128, 70)])
def test_linear(dtype: str, per_channel: bool, rows: tuple[int, ...], inner: int, columns: int) -> None:
    grid, out = GRIDS[dtype]
    layer = Linear(grid, coarser(out, 4), inner, columns, per_channel)
    codes = grid.codes(*rows, inner)
    assert steps_apart(run(layer, codes), layer(codes)) <= 1


@by_dtype
@pytest.mark.parametrize("bias", [1.0, -3e3])
@pytest.mark.parametrize("scale", [1.2e-7, 1e-12])
def test_a_bias_beside_which_its_weights_are_next_to_nothing(dtype: str, bias: float, scale: float) -> None:
    """As of a row that is all zeros, or nearly: torchao's least scale is 2**-23."""
    grid, out = GRIDS[dtype]
    layer = Linear(grid, Grid(abs(bias) / out.limits[1], 0, out.dtype), 64, 5)
    layer.weight[:2, 1:], layer.bias[:3], layer.scales[:3] = 0, bias, scale
    codes = grid.codes(3, 64)
    assert steps_apart(run(layer, codes), layer(codes)) <= 1


def test_a_bias_that_is_too_large_for_a_product_of_values_is_left() -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        tiny = Grid(1e-12)
        return INT8_OUT.quantize(torch.addmm(torch.ones(4), tiny.dequantize(a), tiny.dequantize(b)))

    found = reasons(edge(function, [INT8.codes(3, 5), INT8.codes(5, 4)]))
    assert found["aten.addmm.default"] == "its bias is too large for the scales of its operands"


@by_dtype
def test_matmul(dtype: str) -> None:
    grid, out = GRIDS[dtype]
    shapes = [((5, 8), (8, 7)), ((2, 3, 5, 8), (2, 3, 8, 7)), ((3, 5, 8), (1, 8, 7)), ((3, 5, 8), (8, 7))]
    check(*(Case(torch.matmul, [grid, grid], pair, coarser(out, 8)) for pair in shapes))


def test_a_product_of_transposed_views_needs_no_copy() -> None:
    def attention(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return INT8_OUT.quantize(INT8.dequantize(q) @ INT8.dequantize(k.transpose(1, 2)))

    q, k = INT8.codes(2, 9, 16), INT8.codes(2, 9, 16, seed=1)
    compiled = Run(attention, [q, k])
    assert steps_apart(compiled(q, k)[0], attention(q, k)) <= 1
    assert [call.kernel for call in compiled.compiled.graph.calls] == ["matmul_int"]


# ---- moves and images ---------------------------------------------------------------------------------------------


@by_dtype
def test_cat_brings_its_parts_onto_one_grid(dtype: str) -> None:
    grid, out = GRIDS[dtype]
    other = Grid(grid.scale * 1.3, 2 if dtype == "int8" else 0, grid.dtype)
    check(Case(lambda x, y: torch.cat([x, y, x], 1), [grid, other], [(4, 5, 3), (4, 2, 3)], out))


@by_dtype
def test_moves_keep_codes(dtype: str) -> None:
    grid, _ = GRIDS[dtype]
    moves: list[Callable[..., Any]] = [
        *(lambda x: F.pad(x, (1, 2, 0, 3)), lambda x: F.pad(x, (2, 1), value=0.3), lambda x: x.select(1, -2)),
        *(lambda x: x.permute(1, 2, 0)[1:, :, ::2].reshape(3, -1), lambda x: x.unsqueeze(1).expand(6, 3, 4, 5)),
        lambda x: torch.cat(x.split([1, 3], 1), 1),
    ]
    check(*(Case(move, [grid], [(6, 4, 5)], grid) for move in moves), within=0)


@by_dtype
def test_resize(dtype: str) -> None:
    grid, _ = GRIDS[dtype]
    sizes: list[dict[str, Any]] = [
        {"scale_factor": 2.0, "mode": "nearest"},
        {"size": (9, 4), "mode": "nearest"},
        {"scale_factor": 2.0, "mode": "bilinear"},
        {"size": (9, 11), "mode": "bilinear", "align_corners": True},
        {"size": (3, 4), "mode": "bilinear", "align_corners": False},
    ]
    check(*(Case(lambda x, o=options: F.interpolate(x, **o), [grid], [(2, 3, 5, 6)], grid) for options in sizes))


def test_embedding_of_codes() -> None:
    class Embedding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", INT8.codes(20, 12))

        def forward(self, index: torch.Tensor) -> torch.Tensor:
            return INT8.quantize(F.embedding(index, INT8.dequantize(self.table)))

    module, index = Embedding(), torch.tensor([[3, 0], [19, 7]])
    assert steps_apart(run(module, index), module(index)) == 0


# ---- a whole block in a small memory ------------------------------------------------------------------------------


class Block(torch.nn.Module):
    """Two linear layers, a table, a sum and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Linear(INT8, INT8_OUT, 64, 96), Linear(INT8_OUT, INT8, 96, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = INT8_OUT.quantize(F.gelu(INT8_OUT.dequantize(self.first(x))))
        y = INT8.dequantize(self.second(hidden))
        return INT8_OUT.quantize(torch.softmax(INT8.dequantize(INT8.quantize(y + INT8.dequantize(x))), -1))


@pytest.mark.parametrize("tcm_nbytes", [9216, 6144])
def test_the_tcm_changes_nothing_but_the_traffic(tcm_nbytes: int) -> None:
    block, codes = Block(), INT8.codes(48, 64)
    whole, cut = Run(block, [codes]), Run(block, [codes], small(tcm_nbytes))
    np.testing.assert_array_equal(cut(codes)[0], whole(codes)[0])
    assert cut.compiled.program.tcm_nbytes <= tcm_nbytes
    assert cut.handle.timing.peak_tcm <= tcm_nbytes
    assert not whole.compiled.placed.spilled and cut.compiled.placed.spilled
    assert sum(c.dma_nbytes for c in cut.handle.timing.costs) > sum(c.dma_nbytes for c in whole.handle.timing.costs)
