"""NaN, infinities, signed zeros and denormals through every converter: who takes a node does not decide the answer.

Every case of `test_converters.CASES` is a property: one element of each float operand in turn becomes a special value,
at the begin, in the middle (where vector instructions work) and at the end (where they do not), or all of them do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from backends.cpu.tests.harness import Function, Lowered, edge, run
from backends.cpu.tests.test_converters import CASES, x
from numpy.typing import NDArray
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import delegraph

pytestmark = pytest.mark.models

SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "-0": -0.0, "denormal": 1e-40}

# What backends/cpu/README.md says: case -> the special values for which it differs, and why.
ATTENTION = "torch's kernel for CPUs makes 0 of NaN"
POOL = "onnxruntime's max pooling ignores NaN, and has a lowest number where torch has -inf"
RESIZE = "a neighbour whose weight is 0 counts"
GATES = "gates saturate where torch subtracts infinities"
DIFFERENT: dict[str, tuple[frozenset[str], str]] = {
    **{name: (frozenset({"nan", "inf", "-inf"}), ATTENTION) for name in CASES if name.startswith("attention")},
    **{name: (frozenset({"nan", "-inf"}), POOL) for name in CASES if name.startswith("max_pool")},
    "adaptive_max_pool2d": (frozenset({"nan", "-inf"}), POOL),
    **{
        name: (frozenset({"nan", "inf", "-inf"}), RESIZE)
        for name in CASES
        if name.startswith(("upsample_", "antialiased_"))
    },
    **{name: (frozenset({"inf", "-inf"}), GATES) for name in CASES if name.startswith(("lstm", "gru"))},
    **{
        name: (frozenset({"inf", "-inf"}), "torch through oneDNN has NaN, on CPUs where that has a gelu")
        for name in ("gelu", "gelu_tanh")
    },
    "var_mean": (frozenset({"inf", "-inf"}), "torch's running mean of infinities is NaN"),
    "remainder": (frozenset({"denormal"}), "torch's vector instructions have NaN where the quotient overflows"),
    "remainder_by_negative": (frozenset({"denormal"}), "the same"),
    "fmod": (frozenset({"denormal"}), "the same"),
}


def specials(args: tuple[torch.Tensor, ...], value: float) -> Iterator[list[torch.Tensor]]:
    """`args` with `value` in one place of one float operand that has elements, or in all of its places."""
    for index, argument in enumerate(args):
        if not argument.is_floating_point() or not argument.numel():
            continue
        last = argument.numel() - 1
        for place in (0, last // 2, last, slice(None)):
            changed = [a.clone(memory_format=torch.contiguous_format) for a in args]
            changed[index].view(-1)[place] = value
            yield changed


def same(results: list[NDArray[Any]], expected: Any, half: bool) -> None:
    """Equal up to rounding, NaN where NaN is; zeros have no sign here."""
    tolerance = 1e-2 if half else 1e-4
    for result, reference in zip(results, torch.utils._pytree.tree_leaves(expected), strict=True):
        np.testing.assert_allclose(result, reference.detach().numpy(), rtol=tolerance, atol=tolerance / 10)


def ties(name: str) -> bool:
    """Whether the result says where an element stood: of equal ones torch may take any."""
    return name.startswith(("topk", "sort", "arg", "max_dim", "min_dim"))


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # torch's remark on its own copy
@pytest.mark.parametrize("name", [n for n, (_, args) in CASES.items() if any(a.is_floating_point() for a in args)])
def test_special_values_are_torchs(name: str) -> None:
    function, args = CASES[name]
    lowered = Lowered(edge(Function(function), args))
    half = any(a.dtype == torch.float16 for a in args)
    stated, _ = DIFFERENT.get(name, (frozenset(), ""))
    for kind in SPECIAL.keys() - stated:
        for changed in specials(args, SPECIAL[kind]):
            if not (ties(name) and all(a.isnan().all() or len(a.unique()) == 1 for a in changed)):
                same(lowered(*changed), function(*changed), half)


# ---- every pair of values, for operators of two operands; long enough for vector instructions -----------------------

VALUES = torch.tensor(
    [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, -2.0, -0.5, 0.5, 2.5, 1.0, -1.0, 1e30, -1e30, 3.0]
)
PAIRS = torch.tensor(list(itertools.product(VALUES.tolist(), repeat=2)))

NAMES = "add sub mul div maximum minimum pow remainder fmod floor_divide eq ne lt le gt ge"
OF_TWO: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    **{name: getattr(torch, name) for name in NAMES.split(" ")},
    "div_floor": partial(torch.div, rounding_mode="floor"),
    "div_trunc": partial(torch.div, rounding_mode="trunc"),
    "clamp": lambda a, b: a.clamp(b, b + 1),
    "clamp_min": lambda a, b: a.clamp(min=0.5) + b,
    "clamp_max": lambda a, b: a.clamp(max=-0.5) + b,
    "sign": lambda a, b: a.sign() + b.sgn(),
    "pow_minus_half": lambda a, b: a**-0.5 + b**0.5,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", OF_TWO)
def test_pairs_of_special_values_are_torchs(name: str, dtype: torch.dtype) -> None:
    a, b = (column.contiguous() for column in PAIRS.to(dtype).unbind(1))
    same(run(OF_TWO[name], a, b), OF_TWO[name](a, b), half=False)


def test_floor_division_does_not_round_up_first() -> None:
    """1.0 / 0.1 is 10 in floating point, but 0.1 fits 9 times only."""
    a, b = torch.tensor([1.0, -1.0, 6.0, 0.3], dtype=torch.float64), torch.tensor([0.1, 0.1, 0.1, 0.1]).double()
    same(run(torch.floor_divide, a, b), torch.floor_divide(a, b), half=False)
    x32 = torch.arange(1.0, 200.0)
    same(run(lambda t: t // 0.1, x32), x32 // 0.1, half=False)


# ---- positions and orders ------------------------------------------------------------------------------------------

INF, NAN = math.inf, math.nan
ROWS = torch.tensor([[1.0, NAN, 2.0, NAN, INF], [INF, 1.0, 4.0, NAN, -INF], [5.0, 3.0, -INF, 4.0, INF]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [ROWS, ROWS[2:]], ids=["with NaN", "without NaN"])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_an_extreme_and_its_position(kind: str, rows: torch.Tensor, dtype: torch.dtype) -> None:
    def extremes(t: torch.Tensor) -> Any:
        arg = getattr(t, f"arg{kind}")
        values, positions = getattr(t, kind)(1)
        return values, positions, getattr(t, kind)(), getattr(t, f"a{kind}")(1), arg(1, keepdim=True), arg()

    same(run(extremes, rows.to(dtype)), extremes(rows.to(dtype)), half=False)


@pytest.mark.parametrize("descending", [False, True])
def test_nan_is_beyond_infinity_in_an_order(descending: bool) -> None:
    def ordered(t: torch.Tensor) -> Any:
        return t.sort(1, descending=descending)[0], t.topk(3, 1, largest=descending), t.T.topk(2, 0, descending)[0]

    rows = ROWS.clone()
    rows[0, 3] = 7.0  # one NaN in a row: of two, torch may name either
    same(run(ordered, rows), ordered(rows), half=False)


# ---- where no case of the converters has it -------------------------------------------------------------------------


@pytest.mark.parametrize(("hidden", "number", "both"), [(5, 1, True), (16, 2, False), (4, 2, True)])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_nan_stays_in_a_recurrent_state(
    kind: type[nn.LSTM] | type[nn.GRU], hidden: int, number: int, both: bool
) -> None:
    torch.manual_seed(0)
    layers = kind(4, hidden, number, bidirectional=both).eval()
    sequence, state = x(6, 3, 4), x(number * (1 + both), 3, hidden)

    def step(t: torch.Tensor, h: torch.Tensor, *c: torch.Tensor) -> Any:
        return layers(t, (h, *c) if c else h)

    arguments = (sequence, state, state * 2) if kind is nn.LSTM else (sequence, state)
    lowered = Lowered(edge(Function(step), arguments))
    same(lowered(*arguments), step(*arguments), half=False)
    for index in (0, 1):
        changed = [a.clone() for a in arguments]
        changed[index][2 - index, 1, 3] = NAN
        expected = step(*changed)
        assert expected[0].isnan().any() and not expected[0].isnan().all()
        same(lowered(*changed), expected, half=False)


def test_safe_softmax_hides_no_nan() -> None:
    """Rows of nothing but -inf are zero; a row with a NaN is NaN."""
    rows = torch.tensor([[-INF, -INF, -INF], [NAN, -INF, -INF], [-INF, NAN, 1.0], [1.0, -INF, 2.0], [INF, 1.0, 2.0]])

    def safe_softmax(t: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._safe_softmax(t, 1)

    same(run(safe_softmax, rows), safe_softmax(rows), half=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_log_softmax_hides_no_nan(dtype: torch.dtype) -> None:
    rows = torch.tensor([[1.0, 2.0, NAN], [NAN, -INF, 0.0], [0.0, INF, 1.0], [-INF, 1.0, 2.0], [-INF, -INF, -INF]])
    same(run(lambda t: t.log_softmax(1), rows.to(dtype)), rows.to(dtype).log_softmax(1), half=False)


def test_no_coordinates_that_differ_are_counted_among_nan() -> None:
    a, b = torch.tensor([[NAN, 1.0], [1.0, INF]]), torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    same(run(lambda a, b: torch.cdist(a, b, 0.0), a, b), torch.cdist(a, b, 0.0), half=False)


@pytest.mark.parametrize("activation", [F.relu, F.relu6, F.hardswish, F.silu, lambda t: t.clamp(min=0)])
@pytest.mark.parametrize("channels", [5, 16])
def test_a_fused_activation_keeps_nan_and_infinity(channels: int, activation: Callable[..., torch.Tensor]) -> None:
    """Convolutions of 16 channels run in a layout of their own, with kernels of their own."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(channels, 32, 3, padding=1).eval()
    lowered = Lowered(edge(Function(lambda t: activation(convolution(t))), (x(1, channels, 9, 9),)))
    for value in (NAN, INF, -INF):
        image = x(1, channels, 9, 9)
        image[0, 3, 4, 5] = value
        same(lowered(image), activation(convolution(image)), half=False)


POOLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "overlapping": lambda t: F.max_pool2d(t, 3, 2, 1),
    "dilated, places": lambda t: F.max_pool2d(t, 3, 1, 1, 2, return_indices=True),
    "places": lambda t: F.max_pool2d(t, 2, return_indices=True),
    "ceil": lambda t: F.max_pool2d(t, 3, 2, 1, ceil_mode=True),
    "one dim": lambda t: F.max_pool1d(t[0], 2),
    "three dims": lambda t: F.max_pool3d(t, 2, 2, (0, 1, 1)),
    "adaptive": lambda t: F.adaptive_max_pool2d(t, (3, 4)),
    "behind a convolution": lambda t: F.max_pool2d(F.relu(F.conv2d(t, torch.ones(8, 3, 1, 1))), 2),
}


@pytest.mark.parametrize("name", POOLS)
def test_max_pooling_sees_nan_and_nothing_but_infinity(name: str) -> None:
    image = x(2, 3, 9, 8)
    image[0, 0, 2:4, 3:5], image[0, 1] = NAN, -INF
    image[1, 0, 4, 4:6] = torch.tensor([INF, NAN])
    image[1, 2, :, 1] = torch.finfo(torch.float32).min
    got, expected = run(POOLS[name], image), POOLS[name](image)
    same(got, expected, half=False)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_a_row_counts_in_its_own_bag_alone(mode: str) -> None:
    rows = x(4, 3)
    rows[0, 1], rows[3] = NAN, INF
    members, starts = torch.tensor([0, 1, 2, 1, 3, 2]), torch.tensor([0, 1, 1, 4])

    def bags(table: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(members, table, starts, mode=mode)

    same(run(bags, rows), bags(rows), half=False)


def test_pooling_to_one_element_is_exact() -> None:
    image = x(2, 3, 5, 5)
    image[0, 0, 2, 3], image[1, 1] = NAN, -INF

    def pooled(t: torch.Tensor) -> torch.Tensor:
        return F.adaptive_max_pool2d(t, 1)

    same(run(pooled, image), pooled(image), half=False)


def test_celu_in_half_precision() -> None:
    """onnxruntime has Celu for float32 alone."""
    same(run(F.celu, x(3, 4).half()), F.celu(x(3, 4).half()), half=True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [3, 8])
@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_attention_with_a_scale_that_is_not_positive(scale: float, rows: int, causal: bool) -> None:
    """onnxruntime's operators take none. Held against torch's own parts: its fused kernel for the CPU scales the causal
    mask as well, and gives NaN."""

    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(x, x * 0.5, x + 1, is_causal=causal, scale=scale)

    x = torch.randn(1, 2, rows, 8, generator=torch.Generator().manual_seed(0))
    lowered = delegraph.lower(Scaled(), (x,), backends=["cpu"])
    assert not lowered.report.methods["forward"].leftovers
    with sdpa_kernel(SDPBackend.MATH):
        expected = Scaled()(x).numpy()
    np.testing.assert_allclose(delegraph.load(bytes(lowered))(x.numpy()), expected, rtol=1e-5, atol=1e-6)


def test_the_logarithm_of_a_product_with_a_small_sigmoid() -> None:
    class Gate(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.log(x.abs() * torch.sigmoid(x))

    x = torch.tensor([-80.0, -30.0, -18.5, -17.0, 0.5])
    lowered = delegraph.lower(Gate(), (x,), backends=["cpu"])
    np.testing.assert_allclose(delegraph.load(bytes(lowered))(x.numpy()), Gate()(x).numpy(), rtol=1e-5)
