"""Operators that only move integers -> views where the order allows it, else the fewest copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch.fx import Node

from delegraph_npu.aot import ir
from delegraph_npu.aot.calls import QuantizedCall, shape_of
from delegraph_npu.aot.folding import Folding
from delegraph_npu.aot.ir import Laid
from delegraph_npu.aot.layout import in_rows, permuted, placed, rows
from delegraph_npu.aot.operators.table import Annotate, operator

__all__ = ["on_grid"]


def on_grid(f: Folding, call: QuantizedCall, laid: Laid) -> Laid:
    """The moved integers on the grid of the call's result: themselves, unless grids or limits differ."""
    result = f.result(call, laid.order, laid.shape)
    if laid.tensor.same_grid(result.tensor) and call.limits == laid.tensor.bounds:
        return laid
    f.add(ir.Copy(call.head.name, (laid.tensor,), result.tensor, *call.limits))
    return result


@operator("view reshape flatten unflatten unsqueeze squeeze", Annotate.MOVES, int16=True)
def reshape(f: Folding, call: QuantizedCall, input: Node, *arguments: Any) -> Laid:
    """A reshape needs its operand in the program's order."""
    laid, shape = f.operand(input), shape_of(call.head)
    several = [dim for dim, size in enumerate(laid.shape) if size > 1]
    if [laid.shape[dim] for dim in several] == [size for size in shape if size > 1]:  # dims of one element come or go
        new_dims = dict(zip(several, (dim for dim, size in enumerate(shape) if size > 1), strict=True))
        single = iter([dim for dim, size in enumerate(shape) if size == 1])
        n, h, w, c = (new_dims[dim] if dim in new_dims else next(single, None) for dim in laid.order)
        if next(single, None) is None:
            laid = f.ordered(laid, laid.order)
            return on_grid(f, call, Laid(laid.tensor, shape, (n, h, w, c)))
    laid = f.ordered(laid, laid.order if in_rows(laid) else rows(len(laid.shape)))
    order = rows(len(shape))
    source = laid.tensor
    target = ir.Tensor(f.name(call.head.name), placed(shape, order), source.dtype, source.scale, source.zero_point)
    f.add(ir.Reshape(call.head.name, (source,), target, *source.bounds))
    return on_grid(f, call, Laid(target, shape, order))


@operator("clone contiguous dropout alias", Annotate.MOVES, int16=True)
def same(f: Folding, call: QuantizedCall, input: Node, *arguments: Any) -> Laid:
    """Nothing moves: the compiler chooses where elements lie."""
    return on_grid(f, call, f.settled(input))


@operator("permute", Annotate.MOVES, int16=True)
def permute(f: Folding, call: QuantizedCall, input: Node, dims: Sequence[int]) -> Laid:
    """Another order of the same integers."""
    laid = f.settled(input)
    return on_grid(f, call, permuted(laid, [dim % len(laid.shape) for dim in dims]))


@operator("transpose", Annotate.MOVES, int16=True)
def transpose(f: Folding, call: QuantizedCall, input: Node, first: int, second: int) -> Laid:
    """A permutation of two dims."""
    dims = list(range(len(shape_of(input))))
    dims[first], dims[second] = dims[second], dims[first]
    return permute(f, call, input, dims)


# ---- parts ----------------------------------------------------------------------------------------------------------


def _slice(f: Folding, call: QuantizedCall, laid: Laid, dim: int, begin: int, size: int, step: int) -> Laid:
    axis = laid.order.index(dim)
    source = laid.tensor
    sizes, first, steps = list(source.shape), [0] * 4, [1] * 4
    sizes[axis], first[axis], steps[axis] = size, begin, step
    n, h, w, c = sizes
    part = f.part("part", (n, h, w, c), source)
    begins, strides = (first[0], first[1], first[2], first[3]), (steps[0], steps[1], steps[2], steps[3])
    f.add(ir.Slice(call.head.name, (source,), part, *source.bounds, begins, strides))
    shape = (*laid.shape[:dim], size, *laid.shape[dim + 1 :])
    return Laid(part, shape, laid.order)


@operator("slice", Annotate.MOVES, int16=True)
def slice_(
    f: Folding, call: QuantizedCall, input: Node, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Laid:  # fmt: skip
    """A view."""
    laid = f.settled(input)
    dim %= len(laid.shape)
    begin, _, _ = slice(start, end, step).indices(laid.shape[dim])
    return on_grid(f, call, _slice(f, call, laid, dim, begin, shape_of(call.head)[dim], step))


@operator("select", Annotate.MOVES, int16=True)
def select(f: Folding, call: QuantizedCall, input: Node, dim: int, index: int) -> Laid:
    """A view of one element along `dim`, which is removed."""
    laid = f.settled(input)
    dim %= len(laid.shape)
    part = _slice(f, call, laid, dim, index % laid.shape[dim], 1, 1)
    n, h, w, c = (None if d is None or d == dim else d - (d > dim) for d in part.order)
    return on_grid(f, call, Laid(part.tensor, shape_of(call.head), (n, h, w, c)))


@operator("cat", Annotate.MOVES, int16=True)
def cat(f: Folding, call: QuantizedCall, inputs: Sequence[Node], dim: int = 0) -> Laid:
    """The operands behind each other, all in the order of the first."""
    operands = [f.operand(input) for input in inputs]
    order = max(operands, key=lambda laid: int(np.prod(laid.shape))).order
    result = f.result(call, order)
    tensors = tuple(_regrid(f, call, f.ordered(laid, order).tensor, result.tensor) for laid in operands)
    axis = order.index(dim % len(operands[0].shape))
    f.add(ir.Concat(call.head.name, tensors, result.tensor, *call.limits, axis))
    return result


def _regrid(f: Folding, call: QuantizedCall, tensor: ir.Tensor, target: ir.Tensor) -> ir.Tensor:
    if tensor.same_grid(target) and call.limits == tensor.bounds:
        return tensor
    copied = f.part("part", tensor.shape, target)
    f.add(ir.Copy(call.head.name, (tensor,), copied, *call.limits))
    return copied


# ---- around ---------------------------------------------------------------------------------------------------------


def _check_pad(node: Node, input: Node, amounts: Sequence[int], *options: Any) -> str | None:
    mode = options[0] if options and isinstance(options[0], str) else "constant"
    if mode != "constant":
        return f"padding by {mode}: the NPU's is a constant"
    return "padding that cuts off" if min(amounts, default=0) < 0 else None


@operator("constant_pad_nd pad", Annotate.MOVES, _check_pad, "pad", int16=True)
def pad(f: Folding, call: QuantizedCall, input: Node, amounts: Sequence[int], *options: Any) -> Laid:
    """Padded with the integer nearest to the number."""
    laid = f.settled(input)
    numbers = [option for option in options if isinstance(option, int | float)]
    source = laid.tensor
    before, sizes = [0] * 4, list(source.shape)
    for pair in range(len(amounts) // 2):
        axis = laid.order.index(len(laid.shape) - 1 - pair)
        before[axis] = amounts[2 * pair]
        sizes[axis] += amounts[2 * pair] + amounts[2 * pair + 1]
    n, h, w, c = sizes
    target = f.part("padded", (n, h, w, c), source)
    number = numbers[0] if numbers else 0.0
    value = int(np.clip(np.round(number / source.scale) + source.zero_point, *source.bounds))
    first = (before[0], before[1], before[2], before[3])
    f.add(ir.Pad(call.head.name, (source,), target, *source.bounds, first, value))
    return on_grid(f, call, Laid(target, shape_of(call.head), laid.order))
