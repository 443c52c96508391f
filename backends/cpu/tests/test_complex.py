"""Complex tensors, pairs within a delegate: rotary embeddings, Fourier transforms, and what crosses the border."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from backends.cpu.tests.harness import Batches, Function, Lowered, as_array, declined, edge, run
from torch.export import Dim

import delegraph

torch.manual_seed(0)
X = torch.randn(2, 6, 8)
Z = torch.randn(2, 6, 8, dtype=torch.complex64)
W = torch.randn(6, 8, dtype=torch.complex64)


def rotated(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2)


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "rotary": (rotated, (X, torch.polar(torch.ones(6, 4), torch.randn(6, 4)))),
    "rotary_made_inside": (lambda x, a: rotated(x, torch.polar(torch.ones_like(a), a)), (X, torch.randn(6, 4))),
    "parts": (lambda z: (z.real, z.imag, z.abs(), z.angle()), (Z,)),
    "without_dims": (
        lambda z: (z[0].squeeze(), z[0].squeeze(0), z[0].t(), z[0].mean(0), z[0].sum(0), z[0].unsqueeze(-1)),
        (Z[0, 0],),
    ),
    "made": (torch.complex, (X, X.flip(0))),
    "made_of_parts_of_different_shapes": (torch.complex, (X, X[0, :, :1])),
    "arithmetic": (lambda z, w: (z + w, z - w, z * w, -z, z.conj() * 2, z / 3, z * 2j, z / w), (Z, W)),
    "with_real": (lambda z, x: (z * x, z + x, x - z, z / (x.abs() + 1)), (Z, X)),
    "exp": (torch.exp, (Z,)),
    "multiples": (lambda z, x: (torch.add(z, x, alpha=2), torch.sub(x, z, alpha=0.5), 1 / z), (Z, X)),
    "reduced": (lambda z: (z.sum(1), z.mean((0, 2), keepdim=True), z.sum(), z.cumsum(-1)), (Z,)),
    "chosen": (lambda z: torch.where(z.real > 0, z, torch.full((6, 8), 2 - 1j)), (Z,)),
    "matmul": (lambda z, w: z @ w.T, (Z, W)),
    "moved": (
        lambda z: (z.permute(2, 0, 1), z[:, 1:4], z[..., 2], z.reshape(3, 4, 8), z.unsqueeze(-1), z.transpose(-1, 0)),
        (Z,),
    ),
    "turned": (lambda z: (z.flip(0, -1), torch.roll(z, 2, -1), torch.nn.functional.pad(z, (1, 2, 0, 1))), (Z,)),
    "joined": (lambda z, w: (torch.cat([z[0], w], -1), torch.stack([z[0], w]), w.expand(3, 6, 8)), (Z, W)),
    "joined_with_real": (lambda z, x: torch.cat([x, z, x.double()], 1), (Z, X)),
    "written_into": (
        lambda z: (torch.slice_scatter(z, z[..., :2] * 2, -1, 1, 3), torch.select_scatter(z, z[..., 0].real, -1, -2)),
        (Z,),
    ),
    "split": (lambda z: (*z.chunk(2, -1), *z.unbind(0)), (Z,)),
    "picked": (lambda z, i: z[i], (W, torch.tensor([1, 0, 5]))),
    "cast": (lambda x: x.to(torch.complex64) * 1j, (X,)),
    "fft": (lambda z: (torch.fft.fft(z), torch.fft.ifft(z, dim=1, norm="ortho")), (Z,)),
    "fft_of_odd_length": (lambda z: torch.fft.fft(z[..., :7]), (Z,)),
    "fft2": (lambda x: torch.fft.fft2(x).real, (X,)),
    "rfft": (lambda x: (torch.fft.rfft(x), torch.fft.rfftn(x, norm="forward")), (X,)),
    "irfft": (lambda x: (torch.fft.irfft(torch.fft.rfft(x)), torch.fft.irfft(torch.fft.rfft(x[..., :7]), 7)), (X,)),
    "irfft2": (lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 2, norm="ortho"), (X,)),
    "stft": (
        lambda x: torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True).abs(), (torch.randn(2, 64),),
    ),
    "double": (lambda z: z * z, (Z.to(torch.complex128),)),
}  # fmt: skip


def compare(ours: list[np.ndarray], wanted: Any) -> None:
    for result, reference in zip(ours, torch.utils._pytree.tree_leaves(wanted), strict=True):
        expected = as_array(reference.resolve_conj())
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)


BATCHES = Batches(CASES)


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str) -> None:
    function, args = CASES[name]
    compare(BATCHES.run(name), function(*args))


def test_a_complex_weight_and_a_dynamic_length() -> None:
    class Rotary(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turns", torch.polar(torch.ones(16, 4), torch.randn(16, 4)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return rotated(x, self.turns[: x.shape[1]])

    model, length = Rotary(), Dim("length", min=2, max=16)
    lowered = delegraph.lower(model, (X,), dynamic_shapes=({1: length},), backends=["cpu"])
    assert len(lowered.report.methods["forward"].delegates) == 1, str(lowered.report)
    loaded = delegraph.load(bytes(lowered))
    for size in (3, 16):
        x = torch.randn(2, size, 8)
        compare([loaded(x.numpy())], model(x))


def test_a_complex_result_of_dynamic_size() -> None:
    program = edge(Function(lambda z: z * z), (W,), (({0: Dim("n", min=2, max=8)},),))
    for n in (2, 5):
        compare(Lowered(program)(W[:n].clone()), W[:n] * W[:n])


def test_a_length_whose_square_fits_no_float() -> None:
    real = torch.tensor([3e30, 3e-30, 0.0, float("inf"), float("nan"), 1e-30, float("-inf")])
    imag = torch.tensor([4e30, 4e-30, 0.0, float("nan"), float("inf"), 1e30, float("inf")])
    np.testing.assert_allclose(
        run(torch.abs, torch.complex(real, imag))[0], np.hypot(real.numpy(), imag.numpy()), rtol=1e-6
    )


TRANSFORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one_side": torch.fft.rfft,
    "both_sides": lambda x: torch.fft.fft(x.to(torch.complex64)),
    "back": lambda x: torch.fft.ifft(x.to(torch.complex64)),
    "back_to_real": lambda x: torch.fft.irfft(x[:, : x.shape[1] // 2 + 1].to(torch.complex64), x.shape[1]),
    "along_the_first_dim": lambda x: torch.fft.rfft(x.T, dim=0),
}


INF, NAN, MOST = math.inf, math.nan, torch.finfo(torch.float32).max
INFINITE: dict[str, tuple[Callable[..., Any], list[list[complex]]]] = {
    "quotients": (torch.div, [[1, 0, 1j, 2 + 1j, 0], [complex(0, INF), complex(0, INF), complex(INF, 1), -INF, 0]]),
    "one_by_infinity": (torch.reciprocal, [[complex(0, INF), complex(INF, 2), complex(1, -INF), MOST, 0]]),
    "exponentials_of_minus_infinity": (torch.exp, [[complex(-INF, INF), complex(-INF, 1), complex(-INF, NAN), 1j]]),
    "signs_of_what_is_too_long": (lambda z: z / z.abs(), [[complex(MOST, MOST), complex(1, MOST), 0, 2j]]),
}


@pytest.mark.parametrize("name", INFINITE)
def test_infinite_parts(name: str) -> None:
    """Which part of a number that is not finite is infinite or NaN, no standard says."""
    function, operands = INFINITE[name]
    tensors = tuple(torch.tensor(values, dtype=torch.complex64) for values in operands)
    expected, actual = function(*tensors), torch.from_numpy(run(function, *tensors)[0])
    torch.testing.assert_close(actual.isfinite(), expected.isfinite())
    torch.testing.assert_close(actual[expected.isfinite()], expected[expected.isfinite()])


def test_a_term_next_to_0() -> None:
    """onnxruntime would compare it with 0 in 32 bits."""
    z = torch.zeros(2, dtype=torch.complex128)
    np.testing.assert_array_equal(run(lambda z: z + 1e-300, z)[0], np.full(2, 1e-300 + 0j))


def test_a_difference_with_infinity_is_not_a_number() -> None:
    """torch multiplies by a complex -1, which makes NaN of both parts."""
    a, b = torch.zeros(3, dtype=torch.complex64), torch.tensor([complex(NAN, INF), complex(1, INF), 2 + 1j])
    np.testing.assert_array_equal(run(lambda a, b: (a - b).abs().isnan(), a, b)[0], (a - b).abs().isnan().numpy())


def test_quarter_turns_of_a_transform_add_nothing() -> None:
    """The largest number at the frequency half way, whose sine is 0, as it would be times the sine of a rounded pi."""
    x = torch.randn(16, generator=torch.Generator().manual_seed(0))
    x[8] = 1e38
    compare(run(torch.fft.hfft, x), torch.fft.hfft(x))


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("size", [100, 770, 2048])
def test_fourier_transforms_of_sizes_are_exact(kind: str, size: int) -> None:
    """By a product, by a DFT in double, by one that halves the size: to 2 units of the largest result's last place."""
    x = torch.randn(2, size, generator=torch.Generator().manual_seed(size))
    (got,) = run(TRANSFORMS[kind], x)
    exact = TRANSFORMS[kind](x.double()).numpy()  # but for what is cast to complex64
    assert np.abs(got - exact).max() <= 2e-6 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (torch.sin, "no converter"),
        (lambda z: torch.add(z, z, alpha=2j), "a complex alpha"),
        (lambda z: torch.angle(z.to(torch.complex128)), "an arc tangent in double precision"),
        (lambda z: z[0, 0, 0].cumsum(0), "a complex number without dims"),
        (lambda z: torch.nn.functional.pad(z, (1, 2), value=3.0), "a padding other than 0"),
    ],
)  # fmt: skip
def test_what_is_left(function: Callable[..., Any], reason: str) -> None:
    reasons = declined(edge(Function(function), (Z,)))
    assert any(reason in text for text in reasons.values()), reasons
