"""Values and arguments at which engines differ: integers beyond 24 bits, NaN, infinity, next to zero, odd windows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from backends.openvino.tests.harness import as_module, check, compare, declined, load, lower
from torch import nn
from torch.nn import functional as F

import delegraph

Function = Callable[..., Any]

WIDE = torch.tensor(
    [2**31 - 1, 2**31 - 2, -(2**31), -(2**31) + 1, 2**24 + 1, 2**24, -(2**24) - 1, 16777219, 7, 0, -3, 1],
    dtype=torch.int32,
)
OTHER = WIDE.roll(1)
DIVISOR = torch.where((OTHER == 0) | (OTHER == -1), 3, OTHER)

ON_INTEGERS: dict[str, Function] = {
    "eq": lambda a, b: (a == b, a != b),
    "lt": lambda a, b: (a < b, a <= b),
    "gt": lambda a, b: (a > b, a >= b),
    "compared with a number": lambda a, b: (a > 2**24, a <= 16777219, a == 2**24, a < 7),
    "compared with the next": lambda a, b: a.eq(a + 1),
    "maximum": lambda a, b: (torch.maximum(a, b), torch.minimum(a, b)),
    "clamp": lambda a, b: (a.clamp(-(2**24) - 1, 2**24 + 3), a.clamp(min=0), a.clamp(max=2**30 + 1)),
    "relu": lambda a, b: torch.relu(a * 3) + b,
    "where": lambda a, b: torch.where(a < b, a * 3, b) + 1,
    "amax": lambda a, b: (a.amax(0), a.view(3, 4).amin((0, 1)), a.max()),
    "max dim": lambda a, b: tuple(a.view(3, 4).max(1)),
    "argmax": lambda a, b: (a.argmax().to(torch.int32), a.argmin().to(torch.int32)),
    "sort": lambda a, b: a.sort()[0],
    "sum": lambda a, b: (a // 8).sum(dtype=torch.int32),
    "pad": lambda a, b: F.pad(a, (1, 2), value=2**24 + 1),
    "copy": lambda a, b: a.clone(),
}
ON_INT16: dict[str, Function] = {
    "add": lambda a, b: (a + b) / 2,
    "mul": lambda a, b: a * b > 0,
    "neg": lambda a, b: (-a).float(),
    "abs": lambda a, b: a.abs().float(),
    "cast": lambda a, b: (a.int() * 3).to(torch.int16).float(),
}
ON_QUOTIENTS: dict[str, Function] = {
    "floor_divide": lambda a, b: a // b,
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": lambda a, b: a % b,
    "fmod": torch.fmod,
    "by a number": lambda a, b: (a // 100003, a % 7, torch.fmod(a, -(2**24) - 1)),
}


@pytest.mark.parametrize("name", ON_INTEGERS)
def test_integers_beyond_24_bits(name: str) -> None:
    check(ON_INTEGERS[name], WIDE, OTHER)


@pytest.mark.parametrize("name", ON_INT16)
def test_integers_of_16_bits_wrap_where_they_are_read_on(name: str) -> None:
    """OpenVINO has 32 bits for them, and cuts them to 16 only where they leave a delegate."""
    args = torch.tensor([2**15 - 1, -(2**15), 6, 300], dtype=torch.int16), torch.tensor([7, -5, 5, 300]).short()
    lowered = lower(ON_INT16[name], args)
    assert all("int16 in 32 bits" in reason for reason in declined(lowered).values()) and declined(lowered)
    result = load(lowered)(*(arg.numpy() for arg in args))
    assert np.array_equal(result, ON_INT16[name](*args).numpy())


@pytest.mark.parametrize("name", ON_QUOTIENTS)
def test_quotients_beyond_24_bits(name: str) -> None:
    check(ON_QUOTIENTS[name], WIDE, DIVISOR)


NAN, INF = float("nan"), float("inf")
FLOATS = torch.tensor([[NAN, 1.0, -INF, INF], [0.0, -0.0, 2.5, NAN], [-3.0, 1e-8, 1e-4, 100.0], [-INF] * 4])

ON_FLOATS: dict[str, Function] = {
    "compared with a number": lambda a: (a > 0.5, a >= 0.5, a < 0.5, a <= 0.5, a == 0.5, a != 0.5),
    "compared": lambda a: (a > a.flip(0), a >= a.flip(1), a < a.flip(0), a <= a.flip(1), a == a.flip(0)),
    "exp": torch.exp,
    "exp in a chain": lambda a: torch.exp(a * 0.5) * 3,
    "maximum": lambda a: (torch.maximum(a, a.flip(0)), torch.minimum(a, a.flip(1))),
    "clamp below": lambda a: (a.clamp(min=0.5) * 3, a.clamp(max=0.5)),
    "amax": lambda a: (a.amax(1), a.amin(1), a.amax(), a[2:].amax(1)),
    "argmax": lambda a: (a.argmax(1).to(torch.int32), a.argmin(1).to(torch.int32)),
    "softmax": lambda a: a.softmax(1),
    "log_softmax": lambda a: a.log_softmax(1),
    "logsumexp": lambda a: a.logsumexp(1),
    "normalize": F.normalize,
    "sort": lambda a: torch.sort(a, dim=1, stable=True)[0],
    "topk": lambda a: a.topk(2, 1)[0],
    "sign": torch.sign,
    "copy": lambda a: a.view(1, 1, 1, 2, 2, 4).clone(),
    "relu": F.relu,
    "clamp": lambda a: (a.clamp(-1, 2), F.relu6(a), F.hardtanh(a)),
    "hard": lambda a: (F.hardsigmoid(a), F.hardswish(a)),
    "max pooling": lambda a: F.max_pool2d(a.view(-1, 1, 2, 2), (1, 2), return_indices=True),
    "max pooling to one": lambda a: F.max_pool2d(a.view(-1, 1, 2, 2), 2),
    "log1p": lambda a: torch.log1p(a * 1e-4),
    "expm1": lambda a: torch.expm1(a * 1e-2),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", ON_FLOATS)
def test_what_is_no_number_or_infinite(name: str, dynamic: bool) -> None:
    if dynamic and name in ("copy", "amax"):
        pytest.skip("its sizes are written out")
    shapes = ({0: torch.export.Dim("rows", min=2, max=9)},) if dynamic else None
    check(ON_FLOATS[name], FLOATS, dynamic_shapes=shapes, rtol=2e-6, atol=1e-37)  # what is smaller is 0 to OpenVINO


@pytest.mark.parametrize("activation", [F.relu, F.relu6, lambda a: F.max_pool2d(F.relu(a), 2)])
def test_behind_a_layer_nan_is_one_if_it_has_to_be(activation: Function) -> None:
    """Otherwise OpenVINO computes layer and activation in one, and gives a number."""
    layer = nn.Conv2d(3, 8, 1)
    image = torch.randn(1, 3, 6, 6)
    image[0, 1, 2, 2], image[0, 2, 4, 4], image[0, 0, 1, 5] = NAN, INF, -INF
    expected = activation(layer(image)).detach()
    lowered = delegraph.lower(
        as_module(lambda a: activation(layer(a))), (image,), backends=["openvino{exact_nan=true}"]
    )
    compare(load(lowered)(image.numpy()), expected)
    assert expected.isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_factor_of_a_product_is_not_one_of_an_operand(dtype: torch.dtype) -> None:
    a, b = torch.full((2, 3, 4), 1e-3).to(dtype), torch.full((2, 4, 5), 2e38).to(dtype)
    scaled = as_module(lambda a, b: torch.bmm(a, b) * 4)
    lowered = delegraph.lower(scaled, (a, b), backends=["openvino{exact_nan=true}"])
    torch.testing.assert_close(delegraph.load(bytes(lowered))(a, b), scaled(a, b))


@pytest.mark.parametrize("function", [torch.log1p, torch.expm1])
def test_next_to_zero_the_last_digits_are_right(function: Function) -> None:
    tiny = torch.tensor([1e-8, -1e-8, 1e-4, -1e-4, 1e-20, 0.0, 0.3, -0.49, 0.51, 5.0])
    check(function, tiny, rtol=1e-6, atol=0)


LIMITS: dict[str, Function] = {
    "relu6": F.relu6,
    "hardtanh": lambda a: F.hardtanh(a, -2, 5),
    "clamp": lambda a: a.clamp(-3, 4),
    "shift": lambda a: a << torch.tensor([2], dtype=torch.int32),
    "not of a constant": lambda a: a + ~torch.tensor([5], dtype=torch.int32),
}


@pytest.mark.parametrize("shape", [(), (1,), (5,)])
@pytest.mark.parametrize("name", LIMITS)
def test_a_run_leaves_constants_as_they_are(name: str, shape: tuple[int, ...]) -> None:
    """OpenVINO computes ~c of a constant with one element in each run, over the constant: every other run was wrong."""
    runs = [torch.full(shape, number, dtype=torch.int32) for number in (0, 1, 9, -3, 1, 7, 5)]
    check(LIMITS[name], runs[0], others=[(run,) for run in runs[1:]])


@pytest.mark.parametrize("product", ["addmv", "addbmm", "mm"])
def test_products_of_integers_are_left(product: str) -> None:
    """They are computed as float32."""
    shapes = {"addmv": [(3,), (3, 4), (4,)], "addbmm": [(3, 5), (2, 3, 4), (2, 4, 5)], "mm": [(3, 4), (4, 5)]}[product]
    operands = [torch.full(shape, 3, dtype=torch.int32) for shape in shapes]
    reasons = declined(lower(getattr(torch, product), tuple(operands), None))
    assert any("multiplies matrices of integers as float32" in str(reason) for reason in reasons.values())


# ---- layers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cell", [nn.GRUCell(5, 4), nn.LSTMCell(5, 4), nn.RNNCell(5, 4)], ids=lambda c: type(c).__name__
)
def test_a_recurrent_cell_is_one_delegate(cell: nn.Module) -> None:
    x = torch.randn(3, 5)
    check(cell, x)
    state = torch.randn(3, 4)
    check(lambda a, h: cell(a, (h, h + 1) if isinstance(cell, nn.LSTMCell) else h), x, state)


def test_a_slice_is_written_into() -> None:
    x, part = torch.randn(4, 6), torch.randn(4, 2)
    check(lambda a, b: torch.slice_scatter(a, b, 1, 1, 5, 2), x, part)
    check(lambda a, b: torch.select_scatter(a, b[:, 0], 1, -1), x, part)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.yes, self.no = nn.Linear(30, 20), nn.Linear(30, 20)

    def forward(self, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda a: self.yes(a).relu(), lambda a: torch.exp(self.no(a)), [x])


def test_branches_have_weights_of_their_own() -> None:
    x = torch.randn(2, 30).abs()
    check(Branches(), x, others=[(-x,)])


def test_branches_of_which_only_the_shape_is_asked() -> None:
    class Filled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            chosen = torch.cond(x.sum() > 0, lambda a: -a, lambda a: a.cumsum(0), (x,))
            return torch.full_like(chosen, 0.5)

    check(Filled(), torch.ones(2, 3))


@pytest.mark.parametrize(
    "layer",
    [
        nn.AvgPool2d(8, ceil_mode=True),
        nn.AvgPool2d(8, ceil_mode=True, count_include_pad=False),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        nn.MaxPool2d(8, ceil_mode=True),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
    ],
    ids=str,
)
def test_a_window_that_is_larger_than_the_image(layer: nn.Module) -> None:
    """Taken or declined, and right."""
    x = torch.randn(1, 4, 2, 2)
    compare(load(lower(layer, (x,)))(x.numpy()), layer(x))
    flat = x.view(1, 4, 4)
    one = {nn.AvgPool2d: nn.AvgPool1d, nn.MaxPool2d: nn.MaxPool1d}[type(layer)](8, ceil_mode=True)  # type: ignore[index]
    compare(load(lower(one, (flat,)))(flat.numpy()), one(flat))


def test_places_that_are_known_before_the_cut_are_known_behind_it() -> None:
    def boxes(c: torch.Tensor) -> Any:
        values, order = c.sort(stable=True)
        chosen = (values > 0.5).nonzero().squeeze(1)
        return values[chosen], order[chosen]

    c = torch.rand(9)
    compare(load(lower(boxes, (c,)))(c.numpy()), boxes(c))


@pytest.mark.parametrize("before", [nn.ReLU(), nn.Sigmoid(), nn.Identity()], ids=str)
def test_a_convolution_of_single_pixels_with_stride_and_padding(before: nn.Module) -> None:
    x = torch.randn(2, 3, 7, 6)
    check(nn.Sequential(before, nn.Conv2d(3, 4, 1, stride=2, padding=1)), x)
    check(nn.Sequential(before, nn.Conv2d(3, 4, 1, stride=(1, 2), padding=(0, 1))), x)
    check(nn.Sequential(before, nn.Conv1d(3, 4, 1, stride=2, padding=1)), x[:, :, 0].clone())


def test_a_convolution_of_single_pixels_with_stride_and_padding_on_integers() -> None:
    x = torch.randn(2, 3, 8, 8)
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 1, stride=2, padding=1)).eval()
    quantized = delegraph.quantize(model, [(x,)], backends=["openvino"])
    program = load(delegraph.lower(quantized.program, backends=["openvino"]))
    np.testing.assert_allclose(program(x.numpy()), model(x).detach().numpy(), atol=0.1)


def test_bfloat16_of_a_size_that_is_computed() -> None:
    x = torch.randn(3, 4).to(torch.bfloat16)
    shapes = ({0: torch.export.Dim("batch", min=2, max=9)},)
    lowered = lower(lambda a: a.repeat(2, 1).reshape(-1) * 2, (x,), shapes)
    assert declined(lowered) == {}
    from delegraph.aot.authoring import as_array

    got = load(lowered)(as_array(x))
    wanted = x.repeat(2, 1).reshape(-1) * 2
    np.testing.assert_array_equal(got.astype(np.float32), wanted.float().numpy())


@pytest.mark.parametrize("mode", ["trunc", "floor", "fmod", "remainder"])
def test_quotients_of_floats_are_left_where_they_are_cut(mode: str) -> None:
    """OpenVINO's 2 x / x is below 2 for some."""
    function = getattr(torch, mode) if mode in ("fmod", "remainder") else partial(torch.div, rounding_mode=mode)
    x = torch.linspace(-8, 8, 400) * 1.297
    lowered = lower(as_module(lambda a: function(a * 2, a)), (x,))
    assert "cut to another number" in str(lowered.report)
    compare(load(lowered)(x.numpy()), function(x * 2, x))


def test_values_are_put_along_the_last_dim() -> None:
    places = torch.tensor([3, 0, 2, 3])
    check(lambda a, v: torch.ops.aten.index_put(a, [None, places], v, True), torch.zeros(2, 5), torch.randn(2, 4))


def test_magnitudes_of_what_is_known_when_it_is_compiled() -> None:
    def mirrored(x: torch.Tensor) -> torch.Tensor:
        return 2 - (2 - torch.arange(-1, 5).abs()).abs()

    x = torch.zeros(3)
    compare(load(lower(mirrored, (x,)))(x.numpy()), mirrored(x))
    shapes = ({0: torch.export.Dim("rows", min=2, max=9)},)
    program = load(lower(lambda x: (x.size(0) - torch.arange(5)).abs(), (x,), shapes))
    compare(program(x[:2].numpy()), torch.tensor([2, 1, 0, 1, 2]))


@pytest.mark.parametrize("parts", [1, 2])
def test_magnitudes_of_what_is_joined_and_read_as_it_is(parts: int) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        joined = torch.cat([a, b])
        whole = joined if parts == 1 else torch.cat([b, joined])
        return joined, whole, whole.abs(), whole * 2, torch.stack([a, a]).abs()

    check(function, torch.tensor([-1.0, 2, -0.0, float("nan")]), torch.tensor([-5.0, 0.0, -float("inf")]))


def test_magnitudes_of_a_constant_that_lies_outside_the_graph() -> None:
    """Constants of more than 256 bytes are inputs of the graph until it is loaded."""
    x = torch.complex(torch.arange(40.0), torch.ones(40))
    check(lambda x: F.pad(x[None], (5, 5), mode="reflect"), x)


ON_CONSTANTS: dict[str, Function] = {
    "not": lambda c: ~c,
    "and": lambda c: c & 3,
    "or": lambda c: (c | 5) ^ (c & 6),
    "shift": lambda c: c << 1,
    "clamp": lambda c: c.clamp(3, 7),
    "relu": torch.relu,
    "minimum": lambda c: torch.minimum(c, c * 2),
    "elu": lambda c: F.elu(c * 0.1),
    "selu": lambda c: F.selu(c * 0.1),
    "hardsigmoid": lambda c: F.hardsigmoid(c * 0.1),
    "atan2": lambda c: torch.atan2(c.float(), c + 1.5),
    "sort": lambda c: torch.sort((c * 7 % 5).float())[0],
    "topk": lambda c: torch.topk((c * 7 % 5).float(), 3)[0],
}


@pytest.mark.parametrize("size", [9, 100])
@pytest.mark.parametrize("name", ON_CONSTANTS)
def test_constants_are_the_same_in_each_run(name: str, size: int) -> None:
    """OpenVINO computes some operations in the run, over the constant. Those of 100 elements lie outside the graph."""
    constant = torch.arange(size, dtype=torch.int32) - 4
    beside = as_module(lambda x: ON_CONSTANTS[name](constant) + x)
    x = torch.tensor([5], dtype=torch.int32)
    program = load(lower(beside, (x,)))
    for _ in range(3):
        compare(program(x.numpy()), beside(x))


def test_pixels_of_a_mirror_image_that_are_as_near() -> None:
    image, places = torch.randn(1, 1, 5, 20), torch.tensor([[[[1.5, -1.265625], [1.5, 0.2]]]])
    for mode in ("nearest", "bilinear"):
        sample = as_module(lambda x, p, mode=mode: F.grid_sample(x, p, mode, "reflection", align_corners=False))
        compare(
            delegraph.load(bytes(lower(sample, (image, places))))(image.numpy(), places.numpy()), sample(image, places)
        )
    sampled = partial(F.grid_sample, align_corners=False)
    volume, places = torch.randn(1, 1, 3, 4, 5), torch.rand(1, 2, 2, 2, 3)
    compare(
        delegraph.load(bytes(lower(sampled, (volume, places))))(volume.numpy(), places.numpy()),
        sampled(volume, places),
    )


def test_bytes_are_limited_and_a_number_without_dims_repeated() -> None:
    check(lambda x: (x.clamp(3, 200), x.clamp(2.5, 99.5)), torch.arange(256, dtype=torch.uint8))
    check(lambda x: x.repeat(()) + 1, torch.tensor(2.0))


def test_truths_that_are_filled_with_a_number() -> None:
    x = torch.tensor([True, False, False])
    function = as_module(lambda a: a.masked_fill(~a, 2))
    compare(load(lower(function, (x,)))(x.numpy()), function(x))


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
def test_scales_that_contradict_the_size(kind: str) -> None:
    x = torch.randn(1, 2, 8, 8)
    operator = getattr(torch.ops.aten, f"_upsample_{kind}2d_aa")
    function = as_module(lambda a: operator(a, [4, 4], False, 0.9, 0.3))
    compare(load(lower(function, (x,)))(x.numpy()), function(x), rtol=1e-4, atol=1e-4)


def test_what_bounds_an_index_is_known_where_it_is_compiled_beside_another_backend() -> None:
    """The places of maxima fit 32 bits; the call that finds them is not taken, and the program is rewritten behind it
    for the backend that comes next."""

    def largest(x: torch.Tensor) -> torch.Tensor:
        rows = F.pad(x % 2, (1, 1), value=2).view((-1, 2, 1))
        return torch.take_along_dim(rows, rows.argmax(-2, keepdim=True), -2)

    lowered = delegraph.lower(as_module(largest), (torch.arange(4),), backends=["openvino", "cpu"])
    assert not lowered.report.refusals
    assert any(e.backend == "OpenVinoIR" for e in lowered.report.methods["forward"].delegates)
