"""Dynamic sizes, and what is computed from them, do not cut a graph: one delegate and nothing left, at any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from backends.cpu.tests.harness import Function, as_array, declined, edge
from torch.export import Dim

import delegraph
import delegraph.aot
from delegraph_cpu.aot.convert import convert
from delegraph_cpu.aot.partitioner import cpu_partitioner

N, M, K = Dim("N", min=2, max=16), Dim("M", min=2, max=16), Dim("K", min=4, max=18)
WEIGHT = torch.nn.Linear(8, 8).requires_grad_(False)


def matrix(n: int, m: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(n, m),)


def rows(n: int, m: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(n, m, 8),)


def arithmetic(x: torch.Tensor) -> list[torch.Tensor]:
    """Every operator of Python on sizes, as a factor of its own."""
    n, m = x.shape
    y = x.sigmoid()
    integers = [n * m, n + m, n - m, -n, m // 2, (n - m) // 3, (n - m) % 3, torch.sym_max(n, m), torch.sym_min(n, 5)]
    floats = [n / m, n**-0.5, torch.sym_float(n), n**2, abs(n - m), y.numel()]
    choices = [torch.sym_ite(n > m, n, 2 * m), torch.sym_ite(torch.sym_not(n <= m), n * n, m)]
    rounded = [torch.sym_int(m / 2), torch.sym_sum([n, m, 1])]
    return [y * number for number in (*integers, *floats, *choices, *rounded)]


def powers(x: torch.Tensor) -> list[torch.Tensor]:
    """Of which some are no doubles."""
    n, m = x.shape
    return [x.long() * 0 + power for power in ((n * 1000 + 1) ** 4, (m + 50) ** 9, n**m % 1000, (1 - n) ** 13)]


def masks(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Padding and order, as attention has them, with positions added."""
    n, m, _ = x.shape
    places = torch.arange(m)
    seen = (places[None] < lengths[:, None])[:, None] & torch.ones(m, m, dtype=torch.bool).tril()
    q = WEIGHT(x.view(n * m, 8)).view(n, m, 8) + torch.sin(places[:, None] / torch.arange(1, 9))
    return F.scaled_dot_product_attention(q, q, q, attn_mask=seen)


def rearranged(x: torch.Tensor) -> list[torch.Tensor]:
    n, m, _ = x.shape
    cls = WEIGHT.weight[:1].expand(n, 1, 8)
    flat = WEIGHT(x.flatten(0, 1))
    return [
        WEIGHT(torch.cat([cls, x], 1)),
        x.view(-1) * 2,
        flat.view(n, m, 2, 4).transpose(1, 2) * 2,
        F.pad(x, (0, 0, 0, 20 - m)),
        torch.roll(x, 1, 1),
        x.repeat_interleave(2, 1) + 1,
        torch.zeros(n, 3) + x.mean((1, 2)).unsqueeze(1),
    ]


def from_a_delegate(x: torch.Tensor) -> torch.Tensor:
    """Sizes of what was computed, between the computations."""
    y = F.relu(F.conv1d(x.unsqueeze(1), torch.ones(1, 1, 3), stride=2, padding=2))
    return torch.sigmoid(y.reshape(y.shape[0] * y.shape[2], 1)).reshape(-1) * y.shape[2]


def resampled(x: torch.Tensor, like: torch.Tensor) -> list[torch.Tensor]:
    """Feature maps made as large as another one, and larger by a factor."""
    size = like.shape[2:]
    smooth = [
        F.interpolate(x, size=size, mode=mode, align_corners=corners)
        for mode in ("bilinear", "bicubic")
        for corners in (False, True)
    ]
    nearest = [F.interpolate(x, size=size, mode=mode) for mode in ("nearest", "nearest-exact")]
    factors = [F.interpolate(x, scale_factor=2.0, mode="bilinear"), F.interpolate(x, scale_factor=(1.5, 3.0))]
    return [like * 2, *smooth, *nearest, *factors]


def parts(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    first, second = torch.cat([x, y], 1).sigmoid().split([x.shape[1], y.shape[1]], 1)
    return [first * 2, second + 1, *(piece.exp() for piece in first.chunk(2, 1))]


def statistics(x: torch.Tensor) -> list[torch.Tensor]:
    y = x.sigmoid()
    windows = torch.cat([y, y, y], 1).unfold(1, 2, 3)
    return [y.var(1), y.std((0, 1)), y.var((0, 1), correction=2, keepdim=True), *torch.var_mean(y, 0), windows]


CASES: dict[str, tuple[Callable[..., Any], Callable[[int, int], tuple[torch.Tensor, ...]], Any]] = {
    "arithmetic": (arithmetic, matrix, ({0: N, 1: M},)),
    "powers": (powers, matrix, ({0: N, 1: M},)),
    "masks": (masks, lambda n, m: (*rows(n, m), torch.arange(n) % m + 1), ({0: N, 1: M}, {0: N})),
    "rearranged": (rearranged, rows, ({0: N, 1: M},)),
    "resampled": (
        resampled, lambda n, m: (torch.randn(1, 2, n + 2, m), torch.randn(1, 2, m + 4, n + 1)),
        ({2: K, 3: M}, {2: Dim("A", min=4, max=32), 3: Dim("B", min=3, max=32)}),
    ),
    "parts": (parts, lambda n, m: (torch.randn(2, 2 * m), torch.randn(2, n)), ({1: 2 * M}, {1: N})),
    "statistics": (statistics, matrix, ({0: N, 1: M},)),
    "from_a_delegate": (from_a_delegate, matrix, ({0: N, 1: M},)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_delegate_and_nothing_left(name: str) -> None:
    function, make, shapes = CASES[name]
    torch.manual_seed(0)
    lowered = delegraph.lower(Function(function), make(3, 5), dynamic_shapes=(shapes,), backends=["cpu"])
    report = lowered.report.methods["forward"]
    assert len(report.delegates) == 1 and not report.leftovers, str(lowered.report)
    loaded = delegraph.load(bytes(lowered))
    for sizes in ((3, 5), (2, 2), (16, 9), (3, 5)):
        args = make(*sizes)
        compare(loaded(*map(as_array, args)), function(*args))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_pixels_between_any_sizes_are_those_of_torch(mode: str) -> None:
    """Near a border between two pixels rounding decides, and ONNX's rule has another one."""

    def function(x: torch.Tensor, like: torch.Tensor) -> list[torch.Tensor]:
        like = like * 2
        line = F.interpolate(x[..., 0], size=like.shape[3], mode=mode)
        by_factors = F.interpolate(x, scale_factor=(1.5, 0.75), mode=mode)
        return [like, F.interpolate(x, size=like.shape[2:], mode=mode), line, by_factors]

    k, m, a, b = (Dim(name, min=4, max=90) for name in "KMAB")
    lowered = delegraph.lower(
        Function(function),
        (torch.randn(1, 2, 5, 6), torch.zeros(1, 1, 8, 9)),
        dynamic_shapes=(({2: k, 3: m}, {2: a, 3: b}),),
        backends=["cpu"],
    )
    assert not lowered.report.methods["forward"].leftovers
    loaded = delegraph.load(bytes(lowered))
    for before, after in (((34, 17), (10, 5)), ((14, 41), (4, 82)), ((9, 10), (18, 20)), ((7, 40), (29, 12))):
        args = (torch.randn(1, 2, *before), torch.zeros(1, 1, *after))
        for ours, wanted in zip(loaded(*map(as_array, args)), function(*args), strict=True):
            np.testing.assert_array_equal(ours, as_array(wanted))


def compare(ours: Any, wanted: Any) -> None:
    leaves = torch.utils._pytree.tree_leaves(wanted)
    for result, expected in zip(torch.utils._pytree.tree_leaves(ours), map(as_array, leaves), strict=True):
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        near = 2e-5 if expected.dtype.kind == "f" else 0
        np.testing.assert_allclose(result, expected, rtol=near, atol=near)


def test_numbers_of_tensors_stay_within() -> None:
    module = Function(lambda x, i, f, b: x.sigmoid() * i.item() + f.item() + b)
    args = (torch.randn(3), torch.tensor([2]), torch.tensor(0.5), torch.tensor(True))
    lowered = delegraph.lower(module, args, backends=["cpu"])
    report = lowered.report.methods["forward"]
    assert len(report.delegates) == 1 and not report.leftovers, str(lowered.report)
    loaded = delegraph.load(bytes(lowered))
    for i, f, b in ((2, 0.5, True), (-7, float("inf"), False), (2**40, -1e-3, True)):
        args = (args[0], torch.tensor([i]), torch.tensor(f), torch.tensor(b))
        compare(loaded(*map(as_array, args)), module(*args))


def test_numbers_cross_the_border_at_every_call() -> None:
    """Integers and floats that are computed outside, and change from call to call though no shape does."""
    partitioner = cpu_partitioner()
    partitioner.take_scalars = False  # type: ignore[attr-defined]

    def function(x: torch.Tensor, i: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        return x.sigmoid() * (i.item() * 3) + f.item() * 2

    lowered = delegraph.lower(
        Function(function), (torch.zeros(3), torch.tensor(1), torch.tensor(1.0)), backends=[partitioner]
    )
    assert len(lowered.report.methods["forward"].delegates) == 1
    loaded = delegraph.load(bytes(lowered))
    for i, f in ((1, 0.25), (1, -3.0), (5, -3.0), (-(2**33), 1e30)):
        args = (torch.ones(3), torch.tensor(i), torch.tensor(f))
        compare(loaded(*map(as_array, args)), function(*args))


def test_sizes_behind_a_call_that_is_left() -> None:
    """A delegate that reads nothing else of an input, for which another one computes, takes it for them."""

    def function(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0] * 2
        return torch.erfinv(x.sigmoid() / 2).expand(n // 2, 4) * n  # there is no converter for erfinv

    lowered = delegraph.lower(Function(function), (torch.randn(3, 4),), dynamic_shapes=(({0: N},),), backends=["cpu"])
    assert len(lowered.report.methods["forward"].delegates) == 2
    loaded = delegraph.load(bytes(lowered))
    for size in (2, 9):
        x = torch.randn(size, 4)
        compare(loaded(x.numpy()), function(x))


def test_an_input_is_no_argument_for_its_sizes_alone() -> None:
    module = Function(lambda x, y: x.sigmoid() * y.shape[0] + y.shape[1] / 2)
    shapes = (None, {0: N, 1: M})
    args = (torch.randn(3), torch.zeros(3, 5))
    lowered = delegraph.lower(module, args, dynamic_shapes=(shapes,), backends=["cpu"])
    left = lowered.report.methods["forward"].leftovers
    assert {entry.operator for entry in left} == {"aten::sym_size.int"}
    assert {entry.reasons["cpu"] for entry in left} == {"nothing but sizes of args_1 is read"}
    loaded = delegraph.load(bytes(lowered))
    for y in (args[1], torch.zeros(7, 2)):
        compare(loaded(as_array(args[0]), as_array(y)), module(args[0], y))


def test_a_size_that_is_given_is_computed_outside() -> None:
    module = Function(lambda x: (x.sigmoid() * x.shape[0], x.shape[0] * 2))
    lowered = delegraph.lower(module, matrix(3, 5), dynamic_shapes=(({0: N},),), backends=["cpu"])
    loaded = delegraph.load(bytes(lowered))
    for n in (3, 6):
        (x,) = matrix(n, 5)
        product, size = loaded(as_array(x))
        compare(product, module(x)[0])
        assert size == 2 * n


def test_values_of_which_only_the_data_says_how_many() -> None:
    """Whether they are one nobody knows before; to ask for it is an error of torch's."""

    class Doubled(torch.nn.Module):
        def forward(self, t: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
            return t.index_put((m,), t[m] * 2)

    t = torch.randn(4, 3)
    assert "index_put" not in " ".join(declined(edge(Doubled(), (t, t > 0))))


@pytest.mark.parametrize("dim", [None, 0])
def test_of_nothing_none_is_true_and_all_are(dim: int | None) -> None:
    """A dim without a lower limit may have no places in a run."""

    def truths(x: torch.Tensor) -> list[torch.Tensor]:
        return [kind(x > 0) if dim is None else kind(x > 0, dim) for kind in (torch.any, torch.all)]

    lowered = delegraph.lower(
        Function(truths), (torch.ones(2, 3),), backends=["cpu"], dynamic_shapes=(({0: Dim("N", max=4)},),)
    )
    assert not lowered.report.methods["forward"].leftovers
    run = delegraph.load(bytes(lowered))
    for x in (torch.randn(3, 3), torch.empty(0, 3), torch.ones(1, 3), -torch.ones(4, 3)):
        for got, expected in zip(run(x), truths(x), strict=True):
            assert torch.equal(got, expected)


@pytest.mark.filterwarnings("ignore:var_mean")  # torch's remark on one element and none
def test_of_nothing_a_sum_is_0_a_product_1_and_a_mean_is_not_a_number() -> None:
    def totals(x: torch.Tensor) -> list[torch.Tensor]:
        n = x.long() * 2**61 + 1
        integers = [n.sum(), n.sum(0), n.sum(1), n.prod(0), n.prod(), n.prod(1)]
        return [*integers, x.mean(), x.mean(0), *torch.var_mean(x, 0), F.mse_loss(x, x * 2)]

    shapes = (({0: Dim("N", max=4)},),)
    lowered = delegraph.lower(Function(totals), (torch.ones(2, 3),), backends=["cpu"], dynamic_shapes=shapes)
    assert not lowered.report.methods["forward"].leftovers
    run = delegraph.load(bytes(lowered))
    for x in (torch.empty(0, 3), torch.ones(1, 3), torch.randn(3, 3) * 4, torch.randn(4, 3) * 4):
        for got, expected in zip(run(x), totals(x), strict=True):
            torch.testing.assert_close(got, expected, equal_nan=True)


LSTM = torch.nn.LSTM(6, 5, batch_first=True).requires_grad_(False)
OF_A_BATCH: dict[str, Callable[[torch.Tensor], Any]] = {
    "attention": lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None]),
    "masked_attention": lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=x[:, :, :4] > 0),
    "group_norm": lambda x: F.group_norm(x, 2),
    "bucketize": lambda x: torch.bucketize(x, torch.arange(3.0)),
    "searchsorted": lambda x: torch.searchsorted(x.sort(-1)[0], x),
    "roll": lambda x: x.roll((1, -7), (0, 1)),
    "roll_in_a_row": lambda x: x.roll(3),
    "gather": lambda x: x.gather(0, x.argsort(0)),
    "lstm": LSTM,
    "largest": lambda x: [*x.max(-1), x.argmin(1)],
    "antialias": lambda x: F.interpolate(x[:, None], size=(3, 3), mode="bilinear", antialias=True),
}


@pytest.mark.parametrize("beside_others", [False, True])
@pytest.mark.parametrize("name", OF_A_BATCH)
def test_a_batch_may_be_of_none(name: str, beside_others: bool) -> None:
    """A sum has an element all the same, so that a delegate runs that gives one as well."""
    function = OF_A_BATCH[name]

    def forward(x: torch.Tensor) -> Any:
        return (function(x), x.sum()) if beside_others else function(x)

    module, example = Function(forward), torch.randn(3, 4, 6)
    lowered = delegraph.lower(module, (example,), backends=["cpu"], dynamic_shapes=(({0: Dim("B", max=4)},),))
    assert not lowered.report.methods["forward"].leftovers
    run = delegraph.load(bytes(lowered))
    for x in (example, torch.empty(0, 4, 6), torch.randn(1, 4, 6)):
        torch.testing.assert_close(run(x), module(x))


def test_what_needs_elements_asks_for_them_only_where_it_may_have_none() -> None:
    """The usual model has the batch in each of its results: it does not run without one, and asks nothing."""

    def attention(x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x)

    def beside_a_sum(x: torch.Tensor) -> list[torch.Tensor]:
        return [attention(x), x.sum()]

    def kinds(function: Callable[..., Any], least: int) -> set[str]:
        dims = (({0: Dim("B", min=least, max=9)},),)
        return {
            node.op_type for node in convert(edge(Function(function), (torch.randn(3, 2, 4, 8),), dims)).model.graph
        }

    assert "If" not in kinds(attention, 0)
    assert "If" not in kinds(beside_a_sum, 1)
    assert "If" in kinds(beside_a_sum, 0)
