"""Converters that write, sample, count and join: small functions, lowered whole, give what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from backends.cpu.tests.harness import Batches, Function, Lowered, as_array, declined, edge, run
from torch.export import Dim

import delegraph
from delegraph.errors import DelegraphError
from delegraph_cpu.aot.convert import convert

torch.manual_seed(0)
X = torch.randn(2, 3, 6, 8)
ROWS = torch.randn(5, 4)
IDS = torch.tensor([[1, 0, 2, 2], [3, 1, 0, 0]])
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan, 3.0])


def put(self: torch.Tensor, indices: tuple[Any, ...], values: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    return torch.ops.aten.index_put(self, indices, values, accumulate)


def limits(dtype: torch.dtype) -> torch.Tensor:
    lowest, highest = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    return torch.tensor([-1, 3, -3, lowest, lowest + 1, highest, 1, 7], dtype=dtype)


def assigned(t: torch.Tensor) -> torch.Tensor:
    result = torch.zeros(6, 8)
    result[1:4] = t[:3]
    result[-1, ::3] = 7
    return result


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "atan2": (lambda a, b: torch.atan2(a[:, None], b), (SPECIAL, SPECIAL)),
    "atan2_of_quadrants": (torch.atan2, (X, X.flip(3))),
    "recurrent_weights_that_are_computed": (
        lambda t, h, w: torch.lstm(t, (h, h), [w * 2, w, w[:, 0], w[:, 0]], True, 1, 0.0, False, False, False),
        (torch.randn(3, 2, 4), torch.randn(1, 2, 4), torch.randn(16, 4)),
    ),
    "hypot": (torch.hypot, (X, X.flip(3))),
    "hypot_of_special_values": (lambda a: torch.hypot(a[:, None] * 1e30, a), (SPECIAL,)),
    "fmax_and_fmin": (lambda a, b: (torch.fmax(a[:, None], b), torch.fmin(a[:, None], b)), (SPECIAL, SPECIAL)),
    "fmax_of_integers": (torch.fmax, (IDS, IDS.flip(0))),
    "copysign": (lambda a, b: (torch.copysign(a[:, None], b), torch.copysign(a, -2.0)), (SPECIAL, SPECIAL[:6])),
    "ldexp": (lambda a, n: torch.ldexp(a, n - 2), (ROWS[:2], IDS)),
    **{
        f"shifts_of_{dtype}": (
            lambda a, n: (a[:, None] << n, a[:, None] >> n, a << 3, a >> 1),
            (torch.tensor([1, 5, 100, -1, -128, 127]).to(dtype), torch.tensor([0, 1, 7, 8, 31, 63, 64, -1]).to(dtype)),
        )
        for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64)
    },
    "products_of_integers": (
        lambda a, b: (a @ b.T, torch.addmm(a @ a.T, a, b.T, alpha=3), torch.addmv(a[:, 0], a, b[0], beta=2)),
        (IDS, IDS.flip(1)),
    ),
    **{
        f"quotients_of_the_largest_{dtype}": (
            lambda a, b: (
                (a // b, a % b, torch.fmod(a, b), a // b[0], -7 // a),
                (a // -1, a % -1, torch.fmod(a, -1), a // 3, a % 3, torch.fmod(a, 3), a // -3),
            ),
            (limits(dtype)[:, None], limits(dtype)),
        )
        for dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    },
    "rests_of_integers_that_are_no_doubles": (
        lambda a, b: (torch.fmod(a, b), torch.fmod(a, 10)),
        (torch.tensor([2**53 + 1, -(2**62) - 1, 2**63 - 1]), torch.tensor([10, 7, -3])),
    ),
    "products_alone": (
        lambda n, t: (
            torch.addmm(n, t[0], t[1], beta=0), torch.addmm(n[0], t[0], t[1], beta=0, alpha=2),
            torch.addmv(n[0], t[0], t[1, 0], beta=0), torch.addbmm(n, t, t, beta=0, alpha=3),
            torch.baddbmm(n[None], t, t, beta=0, alpha=2), torch.baddbmm(n.double(), t.double(), t.double(), beta=0.0),
        ),
        (torch.full((3, 3), torch.nan), torch.randn(2, 3, 3)),
    ),
    "masked_scatter_by_a_mask_of_more_dims": (
        torch.masked_scatter,
        (ROWS[0], ROWS > 0, ROWS.flip(0)),
    ),
    "powers_of_integers": (lambda a, b: (a**b, 2**a, a**3), (IDS - 1, IDS.flip(1) - 2)),
    "powers_that_wrap": (
        lambda a: (a**9, (a * 1000) ** 6, (a * 40).to(torch.uint8) ** 7, a.int() ** 33),
        (IDS + 3,),
    ),
    "powers_that_are_no_doubles": (
        lambda a, b: (a**b, 3**b, (-7) ** b, a**65, a.int() ** b.int(), a.to(torch.int8) ** b.to(torch.int8), a**0),
        (torch.tensor([3, -3, 2, 7, 1, -1, 0, 10**9 + 7]), torch.tensor([41, 40, 63, 64, -3, 0, 2**40 + 1])[:, None]),
    ),
    "a_number_first": (
        lambda a, r: (
            5 % a, -7 % a, 7.5 % r, torch.bitwise_and(12, a), torch.bitwise_or(12, a), torch.bitwise_xor(12, a),
            torch.bitwise_xor(-1, a.to(torch.int8)), torch.bitwise_and(True, a > 2),
        ),
        (torch.tensor([3, -4, 5, 7]), torch.tensor([2.0, -2.0, 0.7, 1e9])),
    ),
    "rounded_to_decimals": (
        lambda t: (t.round(decimals=2), t.round(decimals=-1), t.double().round(decimals=3), t.half().round(decimals=0)),
        (torch.tensor([2.675, 1.005, -0.125, 15.0, 25.0, -35.0, 3e38, -0.001, torch.inf, torch.nan]),),
    ),
    "bytes_divided": (
        lambda a, n: (a // 3, torch.div(a, 3, rounding_mode="trunc"), a // n, torch.div(a, n, rounding_mode="trunc")),
        (torch.tensor([0, 1, 200, 255], dtype=torch.uint8), torch.tensor([-3, 2, 300, 7])),
    ),
    "scattered_by": (
        lambda t, i, s, n: (
            t.scatter(1, i, s, reduce="add"), t.scatter(1, i, s, reduce="multiply"), n.scatter(1, i, 3, reduce="add"),
            t.scatter(1, i, 0.5, reduce="multiply"), t.scatter(1, i[:, :2], s, reduce="add"),
        ),
        (ROWS[:2], IDS, torch.randn(2, 4), IDS + 5),
    ),
    "scatter_mean_of_the_lowest": (
        lambda t, i, s: (t.scatter_reduce(0, i, s, "mean"), (-t).scatter_reduce(0, i, -s, "mean", include_self=False)),
        (torch.tensor([-(2**62), 2**62, 5]), torch.tensor([0, 0, 2]), torch.tensor([-(2**61), -(2**61), -8])),
    ),
    "bytes_that_wrap": (
        lambda t: (torch.full_like(t, -9), t.new_full((2,), -5), t & -16, t == -1, t > -3, t.to(torch.int8) >= 128),
        (torch.tensor([0, 1, 253, 254, 255], dtype=torch.uint8),),
    ),
    "sums_and_products_as_bool": (
        lambda t: (t.sum(1, dtype=torch.bool), t.prod(1, dtype=torch.bool)),
        (IDS > 0,),
    ),
    "edges_cropped_and_repeated": (lambda t: F.pad(t, (-2, 3, 1, -4), mode="replicate"), (X,)),
    "edges_cut_off_and_repeated": (lambda t: F.pad(t, (-8, 9, 0, 0), mode="replicate"), (X,)),
    "addbmm": (lambda t: torch.addbmm(t[0, 0, :2, :2], t[0, :, :2], t[1].mT[:, :, :2], alpha=2), (X,)),
    "diagonal_scatter": (lambda t: torch.diagonal_scatter(t, t[:, :, 0, :6], 1, -2, -1), (X,)),
    "col2im_without_a_batch": (lambda t: F.fold(t, (4, 5), (2, 2)), (torch.randn(12, 12),)),
    "searchsorted_with_a_sorter": (
        lambda t, v: torch.searchsorted(t, v, sorter=t.argsort()), (ROWS, torch.randn(5, 3)),
    ),
    "copy": (torch.ops.aten.copy.default, (ROWS, ROWS[0].double())),
    "assigned": (assigned, (X[0, 0],)),
    "empty_is_filled": (lambda t: torch.empty_like(t).fill_(2) + torch.empty(4).zero_(), (ROWS,)),
    "var_dim": (lambda t: torch.ops.aten.var.dim(t, [1], False, True), (ROWS,)),
    "stable_sort": (lambda t: torch.sort(t, stable=True, descending=True), (IDS,)),
    "diagonal": (lambda t: t.diagonal(1, -2, -1), (X,)),
    "as_strided": (lambda t: torch.as_strided(t, (3, 2), (2, 1), 1), (ROWS,)),
    "unfold": (lambda t: t.unfold(2, 3, 2).unfold(3, 2, 1), (X,)),
    "im2col": (lambda t: F.unfold(t, (2, 3), dilation=2, padding=1, stride=2), (X,)),
    "col2im": (lambda t: F.fold(t, (4, 5), (2, 2), padding=1, stride=1), (torch.randn(2, 12, 30),)),
    **{
        f"grid_sample_{mode}_{padding}": (
            lambda t, grid, mode=mode, padding=padding: F.grid_sample(t, grid, mode, padding, align_corners=False),
            (X, torch.randn(2, 4, 5, 2)),
        )
        for mode in ("bilinear", "nearest")
        for padding in ("zeros", "border", "reflection")
    },
    "grid_sample_corners": (lambda t, g: F.grid_sample(t, g, align_corners=True), (X, torch.rand(2, 4, 5, 2))),
    "histc": (lambda t: torch.histc(t, 4, 0, 3), (torch.tensor([0.0, 1.0, 1.4, 3.0, 3.1, -0.1, 2.9]),)),
    "histc_of_range": (lambda t: torch.histc(t, 5), (ROWS,)),
    "searchsorted": (torch.searchsorted, (ROWS.sort().values, torch.randn(5, 3))),
    "searchsorted_right": (
        lambda a, b: torch.searchsorted(a, b, right=True, out_int32=True), (IDS[0].sort().values, IDS),
    ),
    "bucketize": (torch.bucketize, (X, torch.tensor([-1.0, 0.0, 0.5]))),
    **{
        f"places_of_numbers_in_{dtype}": (
            lambda t: (
                torch.searchsorted(t, 2.5), torch.bucketize(2.5, t), torch.searchsorted(t, 300), torch.bucketize(2, t),
                torch.searchsorted(t, torch.stack([t[:2], t[1:3]]).reshape(-1), right=True),
            ),
            (torch.tensor([1, 2, 3, 50]).to(dtype),),
        )
        for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float32)
    },
    "any_and_all_of_no_dims": (
        lambda t: [f(one, dim=()) for one in (t, t > 1, t.byte()) for f in (torch.any, torch.all)],
        (IDS,),
    ),
    "other_reductions_of_no_dims": (
        lambda t: (t.sum(()), t.mean(()), t.amax(()), t.amin((), True), t.var(()), torch.linalg.vector_norm(t, 1, ())),
        (ROWS,),
    ),
    "cumprod": (lambda t: t.cumprod(1), (ROWS,)),
    "cumprod_behind_permute": (lambda t: t.permute(2, 3, 0, 1).cumprod(0).transpose(0, 2), (X,)),
    "cdist": (torch.cdist, (X, X.flip(2))),
    "cdist_1": (lambda a, b: torch.cdist(a, b, 1.0), (ROWS, ROWS[:2])),
    "cdist_inf": (lambda a, b: torch.cdist(a, b, torch.inf), (ROWS, ROWS[:2])),
    "pdist": (lambda t: F.pdist(t, 3.0), (ROWS,)),
    "index_put_mask": (lambda t, m: put(t, (m,), torch.tensor(9.0)), (ROWS, ROWS > 0)),
    "index_put_mask_rows": (lambda t, m, v: put(t, (m,), v), (ROWS, ROWS[:, 0] > 0, ROWS[1])),
    "index_put_mask_values": (
        lambda t, m, v: (put(t, (m,), v), put(t, (m,), v, True)), (ROWS, ROWS > 0, torch.randn(int((ROWS > 0).sum()))),
    ),
    "index_put_mask_of_rows": (
        lambda t, m, v: (put(t, (m,), v), put(t > 0, (m,), v > 0), put(t, (m,), v[:, :1])),
        (ROWS, torch.tensor([True, False, True, True, False]), torch.randn(3, 4)),
    ),
    "index_put_mask_of_one_row": (
        lambda t, m, v: (
            put(t, (m,), v), put(t, (m,), v, True), put(t, (t > 0,), v[0, :1]), put(t > 0, (m,), v > 0),
        ),
        (ROWS, torch.tensor([True, False, True, True, False]), ROWS[:1] * 2),
    ),
    "index_put_mask_of_two_dims_and_one_row": (
        lambda t, m, v: (put(t, (m,), v), put(t[0], (None, m[0, :1].expand(6)), v[:, 0])),
        (X, X[:, :, 0, 0] > 0, torch.randn(1, 6, 8)),
    ),
    "index_put_mask_inner": (lambda t, m: put(t, (None, m), torch.ones(1), True), (ROWS, ROWS[0] > 0)),
    "index_put_none_between": (
        lambda t, i, v: put(t, (i[0], None, i[1]), v), (X, IDS[:, :2] % 2, torch.randn(2, 3, 8)),
    ),
    "index_put_middle": (lambda t, i, v: put(t, (None, i), v), (X, IDS[0] % 3, torch.randn(2, 4, 6, 8))),
    "masked_scatter": (lambda t, m, s: t.masked_scatter(m, s), (ROWS, ROWS > 0, torch.randn(20))),
    "scatter_of_a_part": (lambda t, i, s: t.scatter(1, i[:, :2], s), (ROWS, IDS, torch.randn(5, 4))),
    **{
        f"scatter_{reduce}_{dtype}_{own}": (
            lambda t, i, s, reduce=reduce, own=own: t.scatter_reduce(1, i, s, reduce, include_self=own),
            ((ROWS * 5).to(dtype), IDS, torch.arange(-3, 5).reshape(2, 4).to(dtype)),
        )
        for reduce in ("amax", "amin", "mean")
        for dtype, own in ((torch.float32, True), (torch.float32, False), (torch.int64, True), (torch.int32, False))
    },
    "scatter_nan": (
        lambda t, i, s: (t.scatter_reduce(1, i, s, "amax"), t.scatter_reduce(1, i, s, "amin", include_self=False)),
        (torch.tensor([[torch.nan, 1, 2, 3]] * 2), IDS, torch.tensor([[1, torch.nan, 0, torch.inf], [1, 2, 3, -1]])),
    ),
    "scatter_sum": (lambda t, i, s: t.scatter_reduce(1, i, s, "sum"), (ROWS, IDS, torch.randn(2, 4))),
    "scatter_prod_alone": (
        lambda t, i, s: t.scatter_reduce(1, i, s, "prod", include_self=False), (ROWS, IDS, torch.randn(2, 4)),
    ),
    "slice_scatter_steps": (lambda t, s: torch.slice_scatter(t, s, 1, 0, 4, 2), (ROWS, torch.randn(5, 2))),
    **{
        f"{mode}_pixels_of_{before}_for_{after}": (
            lambda t, mode=mode, after=after: F.interpolate(t, after, mode=mode), (torch.randn(2, 3, *before),)
        )
        for mode in ("nearest", "nearest-exact")
        for before, after in (((14, 14), (4, 4)), ((14,), (29,)), ((2, 9), (82, 9)), ((7, 6, 14), (3, 12, 8)))
    },
    **{
        f"{mode}_pixels_by_{scale}": (
            lambda t, mode=mode, scale=scale: F.interpolate(t, scale_factor=scale, mode=mode),
            (torch.randn(2, 3, *size),),
        )
        for mode in ("nearest", "nearest-exact")
        for scale, size in ((0.3, (34, 17)), (0.6, (9, 31)), (1.1, (2, 9)), ((1.1, 0.3), (9, 40)))
    },
    "batch_norm_of_the_batch": (lambda t: F.batch_norm(t, None, None, training=True), (X,)),
    "weight_standardisation": (
        lambda t, w: F.batch_norm(w.reshape(1, 4, -1), None, None, training=True).reshape_as(w) @ t, (ROWS.T, ROWS[:4]),
    ),
    "adaptive_average": (lambda t: F.adaptive_avg_pool2d(t, (4, 3)), (X,)),
    "adaptive_average_of_less": (lambda t: F.adaptive_avg_pool2d(t, 7), (X[..., :2, :1],)),
    "adaptive_maximum": (lambda t: F.adaptive_max_pool2d(t, (4, 3)), (X,)),
    "average_beyond_the_end": (lambda t: F.avg_pool2d(t, 3, 2, 1, ceil_mode=True), (X,)),
    "average_without_padding": (lambda t: F.avg_pool2d(t, 3, 2, 1, True, False), (X,)),
    "average_by_a_number": (lambda t: F.avg_pool2d(t, 2, divisor_override=3), (X,)),
    "max_pool_places": (lambda t: F.max_pool2d(t, 3, 2, 1, return_indices=True), (X,)),
    "embedding_bag": (lambda w, i: F.embedding_bag(i, w), (ROWS, IDS)),
    "embedding_bag_of_offsets": (
        lambda w, i, o: F.embedding_bag(i, w, o, mode="sum"), (ROWS, IDS.reshape(-1), torch.tensor([0, 2, 2, 5])),
    ),
    # empty tensors
    "empty_result": (lambda t: (t[:, 4:] * 2, t), (ROWS,)),
    "empty_part": (lambda t: torch.cat([t[:, :2], t[:, 4:], t[:, 2:4]], 1), (ROWS,)),
}  # fmt: skip


def compare(ours: list[np.ndarray], wanted: Any) -> None:
    for result, reference in zip(ours, torch.utils._pytree.tree_leaves(wanted), strict=True):
        expected = as_array(reference)
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        if reference.is_floating_point():
            np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)
        else:
            np.testing.assert_array_equal(result, expected)


BATCHES = Batches(CASES)


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter with Tensor src is deprecated")
@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str) -> None:
    function, args = CASES[name]
    compare(BATCHES.run(name), function(*args))


CLOSELY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "an output": torch.sigmoid,
    "a logarithm": lambda t: t.sigmoid().log(),
    "behind views": lambda t: torch.stack([t, t]).sigmoid()[1].view(-1, 1).mT.clamp(min=1e-30).log2(),
    "beside a small number": lambda t: (t.sigmoid() + 1e-12).log10(),
    "of the negative": lambda t: torch.log1p(-t.sigmoid()),
    "a divisor": lambda t: 2 / t.sigmoid(),
    "a root's": lambda t: t.sigmoid().rsqrt(),
    "a negative power": lambda t: t.sigmoid() ** -1.5,
    "odds": lambda t: t.sigmoid().logit(),
    "behind a product": lambda t: torch.log(-t.clamp(max=-1) * t.sigmoid().view(-1)),
    "behind a gate": lambda t: torch.log(-F.silu(t.clamp(max=-1))),
}


@pytest.mark.parametrize("name", CLOSELY)
def test_a_small_sigmoid_has_its_digits_where_they_are_read(name: str) -> None:
    """onnxruntime's own is 0 from -18 on."""
    t = torch.linspace(-50, 2, 105)
    (ours,) = run(CLOSELY[name], t)
    np.testing.assert_allclose(ours, CLOSELY[name](t).numpy(), rtol=2e-6)


def test_a_sigmoid_in_a_gate_is_onnxruntimes() -> None:
    """Which it fuses."""

    def gate(t: torch.Tensor) -> torch.Tensor:
        return F.glu(t).clamp(min=-1) * t[:, :2].sigmoid().view(5, 2)

    def operators(function: Callable[..., Any]) -> list[str]:
        return [node.op_type for node in convert(edge(Function(function), (ROWS,))).model.graph]

    assert operators(gate).count("Sigmoid") == 2
    assert "Sigmoid" not in operators(lambda t: t.sigmoid().flatten() / 2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [3, 8, 1030])
@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_attention_by_a_scale_that_is_not_positive(scale: float, rows: int, causal: bool) -> None:
    """torch's own fused kernel has NaN of causal ones."""
    query, key, value = (torch.randn(1, 2, rows, 8) for _ in range(3))
    ours = run(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale), query, key, value
    )
    wanted, _ = torch.ops.aten._scaled_dot_product_attention_math(query, key, value, None, 0.0, causal, scale=scale)
    compare(ours, wanted)


N, S = Dim("N", min=2, max=16), Dim("S", min=2, max=16)

DYNAMIC: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[torch.Tensor, ...]], Any]] = {
    "adaptive_average": (
        lambda t: F.adaptive_avg_pool2d(t, (3, 4)), lambda n: (torch.randn(2, 3, n, 9),), ({2: N},),
    ),
    "adaptive_maximum": (lambda t: F.adaptive_max_pool1d(t, 5), lambda n: (torch.randn(2, 3, n),), ({2: N},)),
    "mask": (
        lambda t, m, v: put(t, (m,), v),
        lambda n: (torch.zeros(8, 3), torch.arange(8) < n, torch.randn(n, 3)), (None, None, {0: N}),
    ),
    "flatten": (lambda t: t.flatten(1) * 2, lambda n: (torch.randn(n, 3, 2),), ({0: N},)),
    "partial_rotary": (
        lambda t: torch.cat([t[..., :4] * 2, t[..., 4:]], -1), lambda n: (torch.randn(1, n, 4),), ({1: S},),
    ),
    "cache": (
        lambda cache, i, v: cache.index_copy(1, i, v),
        lambda n: (torch.zeros(2, 16, 3), torch.arange(n), torch.randn(2, n, 3)), (None, {0: N}, {1: N}),
    ),
    "put": (
        lambda t, i, v: put(t, (None, i), v),
        lambda n: (torch.zeros(2, 16, 3), torch.arange(n), torch.randn(2, n, 3)), (None, {0: N}, {1: N}),
    ),
    "slice_scatter": (
        lambda t, s: torch.slice_scatter(t, s, 0, 0, s.shape[0]), lambda n: (torch.zeros(16, 3), torch.randn(n, 3)),
        (None, {0: N}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_sizes_do_not_cut(name: str) -> None:
    function, make, shapes = DYNAMIC[name]
    lowered = delegraph.lower(Function(function), make(4), dynamic_shapes=(shapes,), backends=["cpu"])
    report = lowered.report.methods["forward"]
    assert len(report.delegates) == 1, str(lowered.report)
    assert {left.operator for left in report.leftovers} <= {"aten::sym_size.int"}, str(lowered.report)
    loaded = delegraph.load(bytes(lowered))
    for size in (2, 7):
        args = make(size)
        compare([loaded(*map(as_array, args))], function(*args))


def test_a_size_is_no_number_when_its_program_is_lowered_once_more() -> None:
    """A linear layer asks of its weight whether it is packed: an input is none, whatever its sizes are."""
    exported = torch.export.export(
        Function(lambda t: F.linear(t, t)), (torch.randn(3, 4),), dynamic_shapes=(({1: N},),)
    )
    for _ in range(2):
        lowered = delegraph.lower(exported, backends=["cpu"])
    x = torch.randn(3, 7)
    compare([delegraph.load(bytes(lowered))(as_array(x))], F.linear(x, x))


def test_an_output_padding_as_large_as_the_stride_is_left() -> None:
    """onnxruntime holds it for an error; torch allows it below the dilation."""
    program = edge(Function(lambda t: F.conv_transpose2d(t, t[0, :, None, :3, :3], dilation=3, output_padding=2)), (X,))
    assert "an output padding as large as the stride" in declined(program).values()


def test_experts_are_one_delegate() -> None:
    def experts(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grouped_mm(rows, weights, offs=ends)

    rows, weights = torch.randn(8, 16).bfloat16(), torch.randn(3, 16, 8).bfloat16()
    ends = torch.tensor([2, 2, 8], dtype=torch.int32)
    program = edge(Function(experts), (rows, weights, ends))
    assert declined(program) == {}
    (ours,) = Lowered(program)(rows, weights, ends)
    expected = torch.cat([rows[:2].float() @ weights[0].float(), rows[2:].float() @ weights[2].float()])
    np.testing.assert_allclose(ours.astype(np.float32), expected.bfloat16().float().numpy(), rtol=2**-7)


INDEXED: dict[str, Any] = {
    "embedding": lambda t, i: F.embedding(i, t),
    "embedding_bag": lambda t, i: F.embedding_bag(i, t, torch.tensor([0]), mode="sum"),
    "index_select": lambda t, i: t.index_select(0, i),
    "gather": lambda t, i: t.gather(0, i[:, None]),
    "scatter": lambda t, i: t.scatter(0, i[:, None], 1.0),
    "scatter_add": lambda t, i: t.scatter_add(0, i[:, None], t[:2]),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("name", INDEXED)
def test_indices_that_torch_refuses_are_refused(name: str, dtype: torch.dtype) -> None:
    """ONNX counts those below 0 from the end: a token of -1 would be the last one."""
    if dtype == torch.int32 and name in ("gather", "scatter", "scatter_add"):
        dtype = torch.int64  # the only ones that torch takes
    table, index = torch.randn(8, 4), torch.tensor([3, 7], dtype=dtype)
    lowered = Lowered(edge(Function(INDEXED[name]), (table, index)))
    np.testing.assert_allclose(lowered(table, index)[0], INDEXED[name](table, index).numpy(), rtol=1e-6)
    for wrong in (-1, -8, 8, 1000):
        with pytest.raises(DelegraphError):
            lowered(table, torch.tensor([3, wrong], dtype=dtype))
