"""What is scaled twice and read by matrix products, of which onnxruntime 1.31 refuses some graphs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import delegraph

FORMS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "attention of a product": lambda x: (attention(0.3 * x),),
    "attention of a quotient": lambda x: (attention(x / 3),),
    "a number in front": lambda x: products(x, -3 * x, lambda y: 2 * y),
    "a quotient of a product": lambda x: products(x, x * 2, lambda y: y / 3),
    "a product of a quotient": lambda x: products(x, x / 4, lambda y: y * 3),
    "three scales": lambda x: products(x, x / 2, lambda y: y / 3 * 5),
    "by nothing": lambda x: products(x, x * 0, lambda y: y * 3),
}


def attention(y: torch.Tensor) -> torch.Tensor:
    return scaled_dot_product_attention(y, y, y)


def products(
    x: torch.Tensor, y: torch.Tensor, scaled: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    return x @ y, scaled(y) @ x, y


class Form(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = FORMS[form]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.form(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("form", FORMS)
def test_products_of_what_is_scaled_twice(form: str, dtype: torch.dtype) -> None:
    x = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    lowered = delegraph.lower(Form(form), (x,), backends=["cpu"])
    assert not lowered.report.refusals
    results = delegraph.load(bytes(lowered))(x)
    results = results if isinstance(results, tuple) else (results,)
    half = dtype == torch.float16  # whose sums of four products, of 36 at most, are off by an eps of these
    for result, expected in zip(results, FORMS[form](x), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-3 if half else 1e-5, atol=2e-2 if half else 1e-5)
