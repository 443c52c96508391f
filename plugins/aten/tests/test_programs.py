"""Whole programs on the library, against eager."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.models import make, outputs
from torch.export import Dim
from torch.utils import _pytree as pytree

import delegraph
from delegraph.aot import ExecutorchBackendConfig
from delegraph.errors import InvalidArgument, OperatorMissing
from delegraph.interfaces import KernelLibrary
from delegraph_aten import library


def lowered(model: torch.nn.Module, args: tuple[Any, ...], dynamic_shapes: Any = None) -> bytes:
    config = ExecutorchBackendConfig(kernels=["aten"])
    return bytes(delegraph.lower(model, args, dynamic_shapes=dynamic_shapes, config=config))


def check(model: torch.nn.Module, *args: Any, others: tuple[Any, ...] = (), dynamic_shapes: Any = None) -> None:
    """Assert that the program gives on `args`, and on each of `others`, exactly what eager gives."""
    run = delegraph.load(lowered(model, args, dynamic_shapes), kernels=["aten"])
    for inputs in (args, *others, args):
        with torch.no_grad():
            expected = model(*inputs)
        for actual, eager in zip(pytree.tree_leaves(run(*inputs)), pytree.tree_leaves(expected), strict=True):
            torch.testing.assert_close(actual, eager, rtol=0, atol=0, equal_nan=True)


class Of(torch.nn.Module):
    """The model that is a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda x: x.sum(1, dtype=torch.float64), (torch.randn(2, 3),)),
        (lambda x: x.to(torch.int8), (torch.randn(2, 3),)),
        (lambda x: torch.full_like(x, 3, dtype=torch.int32), (torch.randn(2, 3),)),
        (lambda x: x.to(memory_format=torch.channels_last).relu(), (torch.randn(1, 2, 3, 4),)),
        (lambda x: x.contiguous(), (torch.randn(1, 2, 3, 4).to(memory_format=torch.channels_last),)),
        (lambda x, y: torch.cat([x, y.t()], 1), (torch.randn(2, 3), torch.randn(3, 2))),
        (lambda x, i: x[:, i], (torch.randn(2, 3), torch.tensor([2, 0]))),
        (lambda x: x.topk(2), (torch.randn(2, 3),)),
        (lambda x: torch.split(x, 2, 1), (torch.randn(2, 3),)),
        (lambda x: torch.nn.functional.layer_norm(x, (3,)), (torch.randn(2, 3),)),
        (lambda x: x.unbind(0), (torch.randn(2, 3),)),
        (lambda x: x.expand(4, 3).t() + 1, (torch.randn(1, 3),)),
        (lambda x: torch.linalg.svd(x).S, (torch.randn(3, 3),)),
        (lambda x: torch.view_as_real(torch.fft.rfft(x)), (torch.randn(2, 8),)),
        (lambda x: (x.bfloat16() * 3).exp().float(), (torch.randn(2, 3),)),
        (lambda x: x.to(torch.float8_e4m3fn).to(torch.float32), (torch.randn(2, 3),)),
        (lambda x: x.to(torch.uint16), (torch.tensor([1.0, 65535.0]),)),
        (lambda x: x[0:0].sum() + x, (torch.randn(2, 3),)),
        (lambda x: x + 1, (torch.tensor(2.0),)),
    ],
)
def test_programs_give_what_eager_gives(function: Any, args: tuple[Any, ...]) -> None:
    others = tuple(tuple(a.flip(-1) if a.dim() else a * 2 for a in args) for _ in range(1))
    check(Of(function), *args, others=others if all(a.is_contiguous() for a in args) else ())


def test_dynamic_sizes() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = torch.cat([x, y]).relu()
        return z.t() @ z, z.nonzero(), torch.split(z + z.sum(1, keepdim=True), 2, 1), z.bfloat16() * 2, z.sort(), z[-1]

    sizes = {0: Dim("n", min=1, max=9)}
    others = tuple((torch.randn(n, 4), torch.randn(n, 4)) for n in (5, 9, 1, 5))
    check(Of(function), torch.randn(3, 4), torch.randn(3, 4), others=others, dynamic_shapes=((sizes, sizes),))


def test_a_number_of_a_tensor_and_what_is_made_of_it() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        n = x.sum().item()
        torch._check(n >= 0)
        torch._check(n <= 6)
        return torch.arange(n) + x[0]

    check(Of(function), torch.tensor([1, 3]), others=((torch.tensor([0, 0]),), (torch.tensor([3, 3]),)))


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.total: torch.Tensor
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 2


def test_state_is_written_in_place() -> None:
    run = delegraph.load(lowered(Counter(), (torch.ones(2),)), kernels=["aten"])
    assert [run(torch.ones(2)).tolist() for _ in range(3)] == [[2, 2], [4, 4], [6, 6]]


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        # weights of linear layers are transposed ahead of time, and products then add in another order
        ("mlp", {"rtol": 1e-5, "atol": 1e-6}),
        ("mobilenet_v2", {"rtol": 1e-5, "atol": 1e-5}),
        # eager runs one fused operator for all steps
        ("lstm", {"rtol": 1e-5, "atol": 1e-6}),
    ],
)
def test_models(name: str, tolerance: dict[str, float]) -> None:
    model, args = make(name)
    run = delegraph.load(lowered(model, args), kernels=[library])
    with torch.no_grad():
        expected = outputs(model(*args))
    for actual, eager in zip(outputs(run(*args)), expected, strict=True):
        torch.testing.assert_close(actual, eager, **tolerance)


# ---- operators of one's own --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_operators() -> Iterator[Any]:
    """`aten_own::scaled` without an out variant, `negated` with one, and `count_` in place."""
    with torch.library._scoped_library("aten_own", "DEF") as definitions:
        definitions.define("scaled(Tensor self, float factor) -> Tensor")
        definitions.define("negated(Tensor self) -> Tensor")
        definitions.define("negated.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)")
        definitions.define("halves(Tensor self) -> (Tensor, Tensor)")

        weight = torch.nn.Parameter(torch.tensor(1.0))  # somebody's, who requires a gradient
        definitions.impl("scaled", lambda self, factor: self * factor * weight, "CompositeExplicitAutograd")
        definitions.impl("negated", torch.neg, "CompositeExplicitAutograd")
        definitions.impl("negated.out", lambda self, *, out: torch.neg(self, out=out), "CompositeExplicitAutograd")
        definitions.impl("halves", lambda self: tuple(h.clone() for h in self.chunk(2)), "CompositeExplicitAutograd")
        yield torch.ops.aten_own


def test_own_operators_with_an_out_variant_and_without(own_operators: Any) -> None:
    def function(x: torch.Tensor) -> Any:
        return own_operators.negated(own_operators.scaled(x, 3.0)), own_operators.halves(x)

    args = (torch.randn(4, 2),)
    check(Of(function), *args)
    sizes = {0: Dim("half", min=1, max=4) * 2}
    check(Of(function), *args, others=((torch.randn(8, 2),), (torch.randn(2, 2),)), dynamic_shapes=((sizes,),))


# ---- among other libraries ---------------------------------------------------------------------------


def test_what_one_library_lacks_the_next_one_runs(own_operators: Any) -> None:
    mine = KernelLibrary("mine")

    @mine.kernel("aten::relu.out")
    def relu(context: Any, self: Any, out: Any) -> None:
        np.maximum(self, 0, out=context.resize(out, self.shape))

    data = lowered(Of(lambda x: own_operators.negated(x.relu())), (torch.randn(3),))
    run = delegraph.load(data, kernels=[mine, "aten"])
    assert run(np.float32([-1, 0, 2])).tolist() == [0, 0, -2]
    with pytest.raises(OperatorMissing, match=r"aten_own::negated\.out"):
        delegraph.load(data, kernels=[mine])


def test_a_fault_says_where_and_why() -> None:
    data = lowered(Of(lambda x, i: x[i]), (torch.randn(3), torch.tensor([0])))
    run = delegraph.load(data, kernels=["aten"])
    with pytest.raises(InvalidArgument, match=r"method 'forward', instruction \d+, aten::index\S+_out.*index 7 is out"):
        run(torch.randn(3), torch.tensor([7]))
    assert run(torch.ones(3), torch.tensor([1])).tolist() == [1]
