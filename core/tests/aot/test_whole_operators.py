"""What torch.export leaves whole or half-traced: vmap, contractions, complex numbers, sizes that the data decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from core.tests.aot.propagation import assert_values_are_what_operators_give
from torch._higher_order_ops.associative_scan import associative_scan
from torch.nn.attention.flex_attention import flex_attention

import delegraph
from delegraph.aot.edge.to_edge_dialect import to_edge_dialect
from delegraph.aot.functional.functionalize import functionalize
from delegraph.aot.functional.trilinear import trilinear
from delegraph.aot.functional.vmap_regions import without_vmap
from delegraph.errors import LoweringError, UnsupportedOperator


class Does(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def run_lowered(function: Callable[..., Any], *args: torch.Tensor) -> Any:
    return delegraph.load(bytes(delegraph.lower(Does(function), args)))(*(x.numpy() for x in args))


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "vmap": (torch.vmap(lambda row: (row @ row.T).softmax(0)), (4, 3, 5)),
    "nested vmap": (torch.vmap(torch.vmap(lambda row: row.cumsum(0) + 1)), (4, 3, 5)),
    "associative_scan": (lambda x: associative_scan(torch.mul, x, 0, combine_mode="generic"), (5, 3)),
    "bilinear": (lambda x: torch.nn.functional.bilinear(x, x + 1, torch.ones(4, 3, 3), torch.ones(4)), (2, 3)),
    "times an imaginary number": (lambda x: torch.view_as_real(x * 2j), (2, 3)),
    "plus a complex number": (lambda x: torch.view_as_real(x + (1 - 2j)), (2, 3)),
    "chosen rows, turned": (lambda x: x[x[:, 0] > 0].T.sum(1), (6, 3)),
}


@pytest.mark.parametrize(("function", "shape"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_it_lowers_and_equals_eager(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(run_lowered(function, x), function(x).numpy(), rtol=1e-5, atol=1e-6)
    program = without_vmap(torch.export.export(Does(function), (x,)))
    assert_values_are_what_operators_give(to_edge_dialect(functionalize(program, {})))


def test_a_program_without_vmap_is_not_traced_again() -> None:
    program = torch.export.export(Does(torch.relu), (torch.randn(2),))
    assert without_vmap(program) is program


def test_flex_attention_is_named_with_its_line() -> None:
    with pytest.raises(
        UnsupportedOperator, match="higher-order operator flex_attention cannot run on a device"
    ) as error:
        run_lowered(lambda x: flex_attention(x, x, x), torch.randn(1, 1, 12, 16))
    assert "in forward: return self.function(*args)" in str(error.value)


@pytest.mark.parametrize(
    ("sizes", "expand", "summed"),
    [
        (((2, 3), (4, 3, 5), (2, 5)), ([1, 3], [0], [1, 2]), [2, 3]),  # nn.Bilinear's
        (((2, 3), (2, 3), (2, 3)), ([], [], []), [1]),
        (((2, 3), (3,), (2,)), ([], [0], [1]), []),
        (((2,), (3,), (4,)), ([1, 2], [0, 2], [0, 1]), [0, 2]),
    ],
)
def test_trilinear_is_the_sum_of_a_product(sizes: Any, expand: Any, summed: list[int]) -> None:
    tensors = [torch.randn(size) for size in sizes]
    wanted = torch.ops.aten._trilinear(*tensors, *expand, summed)
    torch.testing.assert_close(trilinear(*tensors, *expand, summed), wanted)


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("whole_operators_test", "DEF") as made:
        yield made


def test_what_torch_cannot_trace_is_named_with_its_line(library: torch.library.Library) -> None:
    exported = False

    def twice(x: torch.Tensor) -> torch.Tensor:
        if exported:
            raise RuntimeError("no such fake tensor\nand ten lines more")
        return x * 2

    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", twice, "CompositeImplicitAutograd")
    program = torch.export.export(Does(torch.ops.whole_operators_test.twice), (torch.randn(2),))
    exported = True
    with pytest.raises(
        LoweringError, match=r"torch cannot trace what \S+twice\S+ stands for: RuntimeError: no such"
    ) as error:
        functionalize(program, {})
    assert "in forward: return self.function(*args)" in str(error.value)
    assert "ten lines more" not in str(error.value)
