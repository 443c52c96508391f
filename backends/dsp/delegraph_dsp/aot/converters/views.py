"""Operators that move elements: most are views and cost nothing; cat and pad copy parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from delegraph_dsp.aot.kernel_calls import View
from delegraph_dsp.aot.kernel_graph import MOVES, TABLE, KernelGraph, Unsupported, shape_of

__all__: list[str] = []

aten = torch.ops.aten


VIEWS = (
    aten.view_copy.default, aten.unsqueeze_copy.default, aten.squeeze_copy.dim, aten.squeeze_copy.dims,
    aten.squeeze_copy.default, "dim_order_ops::_clone_dim_order", "dim_order_ops::_to_dim_order_copy",
    aten.clone.default,
)  # fmt: skip
"""Operators that keep the elements and their order."""

MOVES.update(
    VIEWS,
    {aten.permute_copy.default, aten.transpose_copy.int, aten.expand_copy.default, aten.slice_copy.Tensor},
    {aten.select_copy.int, aten.split_with_sizes_copy.default},
)


@TABLE.converts(*VIEWS)
def view(graph: KernelGraph, node: Node, source: Node, *_: Any, **__: Any) -> View:
    result, before = node.meta["val"], source.meta["val"]
    if result.dtype != before.dtype:
        raise Unsupported(f"converts {before.dtype} to {result.dtype}")
    if not result.is_contiguous():
        raise Unsupported("its result does not lie contiguously")
    return graph.reshaped(graph.value(source), shape_of(node))


@TABLE.converts(aten.permute_copy.default)
def permute(graph: KernelGraph, node: Node, source: Node, dims: Sequence[int]) -> View:
    return graph.value(source).permute(dims)


@TABLE.converts(aten.transpose_copy.int)
def transpose(graph: KernelGraph, node: Node, source: Node, first: int, second: int) -> View:
    x = graph.value(source)
    order = list(range(len(x.shape)))
    order[first], order[second] = order[second], order[first]
    return x.permute(order)


@TABLE.converts(aten.expand_copy.default)
def expand(graph: KernelGraph, node: Node, source: Node, *_: Any) -> View:
    return graph.value(source).expand(shape_of(node))


@TABLE.converts(aten.slice_copy.Tensor)
def slices(graph: KernelGraph, node: Node, source: Node, dim: int, start: Any, end: Any, step: int) -> View:
    x = graph.value(source)
    dim %= len(x.shape)
    first, last, _ = slice(start, end, step).indices(x.shape[dim])
    return x.slice(dim, first, max(first, last), step)


@TABLE.converts(aten.select_copy.int)
def select(graph: KernelGraph, node: Node, source: Node, dim: int, index: int) -> View:
    x = graph.value(source)
    dim %= len(x.shape)
    index %= x.shape[dim]
    return graph.reshaped(x.slice(dim, index, index + 1), shape_of(node))


@TABLE.converts(aten.split_with_sizes_copy.default)
def split(graph: KernelGraph, node: Node, source: Node, sizes: Sequence[int], dim: int) -> list[View]:
    x = graph.value(source)
    dim %= len(x.shape)
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return [x.slice(dim, start, start + size) for start, size in zip(starts, sizes, strict=True)]


@TABLE.converts(aten.cat.default)
def cat(graph: KernelGraph, node: Node, sources: Sequence[Node], dim: int) -> View:
    shape = shape_of(node)
    dim %= len(shape)
    codes = [graph.codes(source) for source in sources]
    if all(part is not None for part in codes):
        out = graph.on_grid(graph.grid_of(node), shape)
    elif any(part is not None for part in codes):
        raise Unsupported("one of its operands is quantized and another is not")
    else:
        dtypes = list(dict.fromkeys(graph.value(source).dtype for source in sources))
        if len(dtypes) > 1:
            raise Unsupported(f"joins {' and '.join(dtypes)}")
        out = graph.made(dtypes[0], shape)
    start = 0
    for source in sources:
        size = int(source.meta["val"].shape[dim])
        put(graph, graph.value(source), out.slice(dim, start, start + size))
        start += size
    return out


def put(graph: KernelGraph, part: View, out: View) -> None:
    """Write a part of a value; codes are rescaled to the value's grid."""
    if part.grid is not None and out.grid is not None and part.grid != out.grid:
        graph.regrid(part, out.grid, out)
    else:
        graph.copy(part, out)


@TABLE.converts(aten.constant_pad_nd.default)
def pad(graph: KernelGraph, node: Node, source: Node, sizes: Sequence[int], value: Any) -> View:
    x, shape = graph.value(source), shape_of(node)
    if any(size < 0 for size in sizes):
        raise Unsupported("cuts off where it pads")
    codes = graph.codes(source)
    out = graph.made(x.dtype, shape) if codes is None else graph.on_grid(graph.grid_of(node), shape)
    filled = _filled(value, node.meta["val"].dtype) if out.grid is None else int(out.grid.quantize(_array(value)))
    graph.pointwise("fill", [], out, (filled,), (float(value),))
    inner = out
    for number, size in enumerate(sizes[::2]):
        dim = len(shape) - 1 - number
        inner = inner.slice(dim, size, size + x.shape[dim])
    put(graph, x, inner)
    return out


def _filled(value: float, dtype: torch.dtype) -> int:
    """The integer that torch fills integers or booleans with: cut off towards zero; every number but zero is True.
    0 for floats, which are filled with a real."""
    return 0 if dtype.is_floating_point else int(bool(value) if dtype == torch.bool else value)


def _array(value: float) -> Any:
    import numpy as np

    return np.array(value, np.float32)


@TABLE.converts(aten.full.default)
def full(graph: KernelGraph, node: Node, *_: Any) -> View:
    content = graph.constants.array(node)
    if content is None:
        raise Unsupported("fills with a number that is not known")
    return graph.constant(node, content)
