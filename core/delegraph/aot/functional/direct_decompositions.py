"""Composite operators whose core form can be written down: no template needs to be traced for them.

Everything here could be left to `decompose.py`; these are the operators that a large model calls with dozens of
signatures. A form returns None where its short answer does not hold, and the template decides.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.node import Argument

from delegraph.aot.graph.fake_values import Args, Kwargs
from delegraph.aot.graph.windows import per_dim

__all__ = ["DIRECT_DECOMPOSITIONS"]

aten = torch.ops.aten


class Emit(Protocol):
    """Adds a call to the graph; `val` is its fake value where that is known already."""

    def __call__(self, target: Callable[..., object], args: Args, kwargs: Kwargs, val: object = None, /) -> Node: ...


DirectDecomposition: TypeAlias = Callable[[Emit, Args, object], Argument]
"""(emit, all arguments in schema order, the fake result) -> the result's graph value, or None."""


def _convolution(dims: int) -> DirectDecomposition:
    def form(emit: Emit, arguments: Sequence[Any], val: object) -> Argument:
        x, weight, bias, stride, padding, dilation, groups = arguments
        assert isinstance(val, torch.Tensor)
        if len(val.shape) != dims + 2:  # unbatched
            return None
        lists = [per_dim(value, dims) for value in (stride, padding, dilation)]
        return emit(aten.convolution.default, (x, weight, bias, *lists, False, [0] * dims, groups), {}, val)

    return form


def _batch_norm(emit: Emit, arguments: Args, val: object) -> Argument:
    x, weight, bias, mean, var, training, momentum, eps, _ = arguments
    if training or mean is None or var is None:
        return None
    assert isinstance(val, torch.Tensor)
    no_statistics = val.new_empty(0)
    outputs = emit(
        aten._native_batch_norm_legit_no_training.default,
        (x, weight, bias, mean, var, momentum, eps),
        {},
        (val, no_statistics, no_statistics),
    )
    return emit(operator.getitem, (outputs, 0), {}, val)


def _layer_norm(emit: Emit, arguments: Args, val: object) -> Argument:
    x, shape, weight, bias, eps, _ = arguments
    outputs = emit(aten.native_layer_norm.default, (x, shape, weight, bias, eps), {})
    return emit(operator.getitem, (outputs, 0), {}, val)


def _pad(emit: Emit, arguments: Args, val: object) -> Argument:
    x, amounts, mode, value = arguments
    return emit(aten.constant_pad_nd.default, (x, amounts, value or 0), {}, val) if mode == "constant" else None


def _item(emit: Emit, arguments: Args, val: object) -> Argument:
    """Traced anew, it would give a symbol of its own, without the bounds that the model stated."""
    return emit(aten._local_scalar_dense.default, (arguments[0],), {}, val)


def _dropout(_emit: Emit, arguments: Args, _val: object) -> Argument:
    x, _, train = arguments
    return None if train else x


DIRECT_DECOMPOSITIONS: dict[OpOverload, DirectDecomposition] = {
    aten.conv1d.default: _convolution(1),
    aten.conv2d.default: _convolution(2),
    aten.conv3d.default: _convolution(3),
    aten.batch_norm.default: _batch_norm,
    aten.layer_norm.default: _layer_norm,
    aten.dropout.default: _dropout,
    aten.pad.default: _pad,
    aten.item.default: _item,
}
