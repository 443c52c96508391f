"""`cut_attention`: attention in one call becomes its parts, which compute what torch does."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node

from delegraph.aot import annotate, cut_attention
from delegraph.aot.authoring import Constants, operator_name
from delegraph.aot.graph.known_values import known_value

WHOLE = "aten::scaled_dot_product_attention"
X = torch.randn(2, 3, 6, 8, generator=torch.Generator().manual_seed(0))
SEES_ALL = torch.ones(6, 6, dtype=torch.bool)
CAUSAL = SEES_ALL.tril()
BLIND = CAUSAL & (torch.arange(6) != 3)[:, None]
"""Row 3 sees nothing."""


class Attention(torch.nn.Module):
    """Of itself, with a mask that is a constant or what `make` makes of one; or with the settings of `F`'s."""

    def __init__(self, mask: torch.Tensor | None = None, make: Any = None, **settings: Any) -> None:
        super().__init__()
        self.mask, self.make, self.settings = mask, make or (lambda mask: mask), settings

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        mask = self.make(self.mask if mask is None else mask)
        return F.scaled_dot_product_attention(x, x * 2, x + 1, mask, **self.settings)


def exported(model: torch.nn.Module, *args: torch.Tensor, **settings: Any) -> GraphModule:
    module = torch.export.export(model, args, **settings).module(check_guards=False)
    assert isinstance(module, GraphModule)
    return module


def names(module: GraphModule) -> list[str]:
    return [operator_name(node) for node in module.graph.nodes if node.op == "call_function"]


def as_floats(mask: torch.Tensor | None) -> torch.Tensor:
    assert mask is not None
    return torch.where(mask, 0.0, float("-inf"))


PARTS = ("aten::mul.Tensor", "aten::transpose.int", "aten::matmul", "aten::softmax.int", "aten::matmul")
CUT: dict[str, tuple[Attention, tuple[torch.Tensor, ...], tuple[str, ...]]] = {
    "no mask": (Attention(), (X,), ()),
    "a scale": (Attention(scale=0.3), (X,), ()),
    "one head": (Attention(), (X[0, 0],), ()),
    "half": (Attention(CAUSAL), (X.bfloat16(),), ("aten::where.Scalar", "aten::to.dtype", "aten::add.Tensor")),
    "nothing is hidden": (Attention(make=lambda _: torch.arange(6)[:, None] >= 0), (X,), ()),
    "a constant": (Attention(CAUSAL), (X,), ("aten::where.Scalar", "aten::add.Tensor")),
    "a constant of floats": (Attention(as_floats(CAUSAL)), (X,), ("aten::add.Tensor",)),
    "a blind row": (
        Attention(BLIND), (X,), ("aten::where.Scalar", "aten::add.Tensor", "aten::any.dim", "aten::mul.Tensor"),
    ),
    "an input": (
        Attention(), (X, BLIND), ("aten::where.Scalar", "aten::add.Tensor", "aten::any.dim", "aten::mul.Tensor"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CUT)
def test_the_parts_compute_what_torch_does(name: str) -> None:
    model, args, of_the_mask = CUT[name]
    module = exported(model, *args)
    cut_attention(module)
    of_the_model = ["aten::mul.Tensor", "aten::add.Tensor"]  # `x * 2` and `x + 1`
    assert Counter(names(module)) == Counter([*of_the_model, *PARTS, *of_the_mask])
    near = 1e-2 if args[0].dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(module(*args), model(*args), atol=near, rtol=near)


LEFT: dict[str, tuple[Callable[[], GraphModule], dict[str, Any]]] = {
    "causal": (lambda: exported(Attention(is_causal=True), X), {}),
    "drops": (lambda: exported(Attention(dropout_p=0.5), X), {}),
    "floats from inputs": (lambda: exported(Attention(), X, as_floats(BLIND)), {}),
    "blind in floats": (lambda: exported(Attention(as_floats(BLIND)), X), {}),
    "of unknown length": (
        lambda: exported(Attention(), X, dynamic_shapes={"x": {2: torch.export.Dim("n", max=64)}}),
        {},
    ),
    "masked": (lambda: exported(Attention(CAUSAL), X), {"masked": False}),
    "not wanted": (lambda: exported(Attention(), X), {"wanted": lambda node: False}),
    "annotated": (lambda: annotated(exported(Attention(), X)), {}),
}


def annotated(module: GraphModule) -> GraphModule:
    for node in module.graph.nodes:
        annotate(node, {})
    return module


@pytest.mark.parametrize("name", LEFT)
def test_what_stays_whole(name: str) -> None:
    make, settings = LEFT[name]
    module = make()
    before = names(module)
    cut_attention(module, **settings)
    assert names(module) == before


def test_a_batch_of_any_size() -> None:
    module = exported(Attention(BLIND), X, dynamic_shapes={"x": {0: torch.export.Dim("b", max=64)}})
    cut_attention(module)
    x = torch.cat([X, X, X])
    torch.testing.assert_close(module(x), Attention(BLIND)(x), atol=1e-6, rtol=1e-6)


# ---- what is known of a mask ---------------------------------------------------------------------------------------


class Masks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.arange(4.0))
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.seen.add_(x)
        return (
            torch.ones_like(x) > 0.5,
            self.kept[None].expand(2, 4) >= torch.arange(2)[:, None],
            x > 0,
            torch.rand(4) > 0.5,
            torch.ones(2048, 2049),
            self.seen > 0,
        )


def test_only_what_constants_alone_give_is_known() -> None:
    """Not what depends on inputs, on chance or on what a run changes; nor what is large."""
    program = torch.export.export(Masks(), (torch.randn(4),)).run_decompositions({})
    constants = Constants.of(program)
    results = program.graph.output_node().args[0]
    assert isinstance(results, list | tuple)
    found = [constants.computed(node) for node in results[1:] if isinstance(node, Node)]  # the first is the buffer
    ones, compared, *unknown = found
    assert ones is not None and bool(ones.all())
    assert compared is not None and torch.equal(compared, torch.arange(4)[None] >= torch.arange(2)[:, None])
    assert unknown == [None] * 4


def test_an_input_is_known_if_somebody_says_so() -> None:
    program = torch.export.export(Masks(), (torch.randn(4),)).run_decompositions({})
    compared = program.graph.output_node().args[0][3]  # type: ignore[index]
    assert isinstance(compared, Node)
    found = known_value(compared, lambda leaf: torch.tensor([1.0, -1.0, 0.0, 2.0]))
    assert found is not None and found.tolist() == [True, False, False, True]


def test_parts_of_a_constant_are_known_and_a_bound_counts_all_on_the_way() -> None:
    graph = torch.fx.Graph()
    whole = graph.placeholder("whole")
    parts = graph.call_function(torch.ops.aten.split.Tensor, (whole, 2))
    second = graph.call_function(operator.getitem, (parts, 1))
    for node, value in ((whole, torch.empty(6)), (parts, [torch.empty(2)] * 3), (second, torch.empty(2))):
        node.meta["val"] = value
    content = torch.arange(6.0)
    found = known_value(second, lambda leaf: content)
    assert found is not None and found.tolist() == [2.0, 3.0]
    assert known_value(second, lambda leaf: content, largest=5) is None  # the whole has six
