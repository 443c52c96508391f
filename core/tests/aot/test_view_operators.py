"""The table of view operators: each column checked against torch itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from delegraph.aot.graph.fake_values import fake_tensor, fake_values
from delegraph.aot.graph.view_operators import VIEW_OPERATORS, ViewOperator

aten = torch.ops.aten

ARGUMENTS: dict[OpOverload, tuple[Any, ...]] = {
    aten.view.default: ([4, 3],),
    aten._unsafe_view.default: ([4, 3],),
    aten.reshape.default: ([4, 3],),
    aten._reshape_copy.default: ([4, 3],),
    aten.flatten.using_ints: (0, 1),
    aten.unflatten.int: (1, [2, 2]),
    aten.squeeze.dim: (0,),
    aten.squeeze.dims: ([0],),
    aten.unsqueeze.default: (1,),
    aten.permute.default: ([1, 0],),
    aten.transpose.int: (0, 1),
    aten.expand.default: ([3, 4],),
    aten.slice.Tensor: (1, 1, 3),
    aten.narrow.default: (1, 1, 2),
    aten.select.int: (1, 2),
    aten.as_strided.default: ([2, 2], [4, 1], 1),
    aten.unfold.default: (1, 2, 2),
    aten.split.Tensor: (2,),
    aten.split_with_sizes.default: ([1, 2],),
    aten.view.dtype: (torch.int32,),
}


def _value(tensor: torch.Tensor) -> Node:
    """A graph value that is computed at once."""
    node = Graph().placeholder("value")
    node.meta["val"] = tensor
    return node


def _call(op: OpOverload, *args: Any, **kwargs: Any) -> Node:
    return _value(op(*fake_values(args), **kwargs))


WITH_INVERSE = [row for row in VIEW_OPERATORS if row.inverse is not None]


def _given(row: ViewOperator) -> tuple[torch.Tensor, tuple[Any, ...]]:
    x = torch.arange(12.0).reshape(3, 4)
    if row.view is aten.view_as_complex.default:
        x = x.reshape(6, 2)
    if row.view in (aten.view_as_real.default, aten._conj.default):
        x = x.to(torch.complex64)
    return x, ARGUMENTS.get(row.view, ())


@pytest.mark.parametrize("row", [row for row in VIEW_OPERATORS if row.copy is not None], ids=lambda row: str(row.view))
def test_the_copy_gives_the_views_elements_in_new_memory(row: ViewOperator) -> None:
    assert row.copy is not None
    x, args = _given(row)
    for shown, copied in zip(_leaves(row.view(x, *args)), _leaves(row.copy(x, *args)), strict=True):
        assert torch.equal(shown, copied)
        assert copied.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


@pytest.mark.parametrize("row", WITH_INVERSE, ids=lambda row: str(row.view))
def test_the_inverse_does_what_a_write_through_the_view_does(row: ViewOperator) -> None:
    assert row.inverse is not None
    x, args = _given(row)
    written = x.clone()
    view = row.view(written, *args)
    if view.untyped_storage().data_ptr() == written.untyped_storage().data_ptr():  # `reshape` may copy
        view.mul_(-1)
    else:
        written.mul_(-1)
    value = row.view(x, *args) * -1
    assert torch.equal(fake_tensor(row.inverse(_call, _value(x), _value(value), args, {})), written)


@pytest.mark.parametrize("row", [row for row in VIEW_OPERATORS if row.keeps_order], ids=lambda row: str(row.view))
def test_elements_keep_their_order(row: ViewOperator) -> None:
    x, args = _given(row)
    numbers = row.view(x, *args).flatten()
    assert torch.equal(numbers, numbers.sort().values)


def _leaves(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)
