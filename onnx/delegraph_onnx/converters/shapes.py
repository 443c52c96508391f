"""Views and other changes of shape: reshape, permute, expand, slice, split, concatenate, pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from torch.fx import Node

from delegraph_onnx.converters.empty_results import is_empty
from delegraph_onnx.converters.table import convert_with, name_of, unless
from delegraph_onnx.dtypes import ALL, INT64_MAX, NUMBERS, NUMBERS_OR_BOOL
from delegraph_onnx.graph_builder import GraphBuilder, Size, TensorLike
from delegraph_onnx.node_facts import are_known, dtype_of, rank_of, same_sizes, shape_of

# ---- reshapes -----------------------------------------------------------------------------------------------------


@convert_with("view view_copy _unsafe_view reshape", dtypes=ALL)
def view(g: GraphBuilder, node: Node, self: Node, size: Sequence[Size]) -> ir.Value:
    return g.reshape(g.value(self), shape_of(node), lambda: g.sizes(size))


@convert_with("flatten.using_ints unflatten.int", dtypes=ALL, check=lambda node, *_: _one_unknown(node))
def flatten(g: GraphBuilder, node: Node, self: Node, *_: object) -> ir.Value:
    return g.reshape(g.value(self), shape_of(node))


def _one_unknown(node: Node) -> str | None:
    unknown = sum(not isinstance(dim, int) for dim in shape_of(node))
    return f"the result has {unknown} dynamic dims" if unknown > 1 else None


@convert_with("unsqueeze unsqueeze_copy", dtypes=ALL)
def unsqueeze(g: GraphBuilder, node: Node, self: Node, dim: int) -> ir.Value:
    if _is_static(node):
        return g.reshape(g.value(self), shape_of(node))
    return g.op("Unsqueeze", g.value(self), g.ints([dim % rank_of(node)]))


@convert_with("squeeze squeeze.dim squeeze.dims squeeze_copy squeeze_copy.dim squeeze_copy.dims", dtypes=ALL)
def squeeze(g: GraphBuilder, node: Node, self: Node, dim: Any = None) -> ir.Value:
    shape, rank = shape_of(self), rank_of(self)
    if _is_static(node):
        return g.reshape(g.value(self), shape_of(node))
    dims = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
    ones = [d % rank for d in dims if isinstance(shape[d], int) and shape[d] == 1]
    return g.op("Squeeze", g.value(self), g.ints(ones)) if ones else g.value(self)


@convert_with("clone alias alias_copy detach detach_copy contiguous lift_fresh_copy lift_fresh", dtypes=ALL)
def identity(g: GraphBuilder, node: Node, self: Node, *_: object) -> ir.Value:
    return g.value(self)


@convert_with("dropout", dtypes=ALL, check=lambda node, input, p, train: "dropout in training" if train else None)
def dropout(g: GraphBuilder, node: Node, input: Node, *_: object) -> ir.Value:
    return g.value(input)


# ---- permutations -------------------------------------------------------------------------------------------------


@convert_with("permute permute_copy transpose.int transpose_copy.int t t_copy", dtypes=ALL)
def permute(g: GraphBuilder, node: Node, self: Node, *dims: Any) -> ir.Value:
    return g.transpose(g.value(self), permutation(rank_of(node), *dims))


def permutation(rank: int, *dims: Any) -> list[int]:
    """The order of dims that the arguments of `permute`, `transpose` or `t` mean."""
    order = list(range(rank))
    if not dims or not order:
        return order[::-1]
    if isinstance(dims[0], Sequence):
        return [dim % rank for dim in dims[0]]
    order[dims[0]], order[dims[1]] = order[dims[1]], order[dims[0]]
    return order


@convert_with("flip", dtypes=NUMBERS_OR_BOOL)
def flip(g: GraphBuilder, node: Node, self: Node, dims: Sequence[int]) -> ir.Value:
    if not dims or not rank_of(node):
        return g.value(self)
    axes = [dim % rank_of(node) for dim in dims]
    n = len(axes)
    return g.op("Slice", g.value(self), g.ints([-1] * n), g.ints([-INT64_MAX] * n), g.ints(axes), g.ints([-1] * n))


@convert_with("roll", dtypes=ALL, keep=True, check=lambda node, self, *_: (
    "a lookup of known places does it" if _is_static(self) else None))  # fmt: skip
def roll(g: GraphBuilder, node: Node, self: Node, shifts: Sequence[Size], dims: Sequence[int]) -> ir.Value:
    """Each dim is cut in two and the parts are swapped; without dims, all elements are rolled as one row."""
    if not dims:
        flat = _rolled(g, g.op("Reshape", g.value(self), g.ints([-1])), 0, shifts[0])
        return g.op("Reshape", flat, g.op("Shape", g.value(self)))
    value = g.value(self)
    for shift, dim in zip(shifts, dims, strict=True):
        value = _rolled(g, value, dim % rank_of(self), shift)
    return value


def _rolled(g: GraphBuilder, value: ir.Value, axis: int, shift: Size) -> ir.Value:
    """The end of the dim is cut off and put in front. The least size is 1, since onnxruntime divides by it."""
    size = g.op("Max", g.op("Shape", value, start=axis, end=axis + 1), g.ints([1]))
    cut, axes = g.op("Mod", g.op("Neg", g.sizes([shift])), size), g.ints([axis])
    front = g.op("Slice", value, cut, g.ints([INT64_MAX]), axes)
    return g.op("Concat", front, g.op("Slice", value, g.ints([0]), cut, axes), axis=axis)


@convert_with("pixel_shuffle", keep=True, check=lambda node, *_: (
    None if rank_of(node) == 4 else f"the result has {rank_of(node)} dims, not 4"))  # fmt: skip
def pixel_shuffle(g: GraphBuilder, node: Node, self: Node, upscale_factor: int) -> ir.Value:
    return g.op("DepthToSpace", g.value(self), blocksize=upscale_factor, mode="CRD")


@convert_with(
    "channel_shuffle", keep=True, check=unless(lambda node, *_: _is_static(node), "the result's shape is dynamic")
)
def channel_shuffle(g: GraphBuilder, node: Node, self: Node, groups: int) -> ir.Value:
    shape = [int(dim) for dim in shape_of(node)]
    grouped = g.reshape(g.value(self), [shape[0], groups, shape[1] // groups, *shape[2:]])
    return g.reshape(g.transpose(grouped, [0, 2, 1, *range(3, len(shape) + 1)]), shape)


# ---- expansion ----------------------------------------------------------------------------------------------------


@convert_with("expand expand_copy", dtypes=ALL)
def expand(g: GraphBuilder, node: Node, self: Node, size: Sequence[Size], *_: object) -> ir.Value:
    shape, before = shape_of(node), shape_of(self)
    if same_sizes(shape, before):
        return g.value(self)
    # 1 stands for "as it is" in Expand, so that a dynamic dim that stays need not be computed.
    offset = len(shape) - len(before)
    new_sizes = [1 if i >= offset and str(before[i - offset]) == str(dim) else s
              for i, (dim, s) in enumerate(zip(shape, size, strict=True))]  # fmt: skip
    if all(isinstance(size, int) and size == 1 for size in new_sizes):
        return g.op("Unsqueeze", g.value(self), g.ints(range(offset)))  # OpenVINO takes an Expand to ones for nothing
    return g.op("Expand", g.value(self), g.sizes(new_sizes))


@convert_with("repeat", dtypes=NUMBERS_OR_BOOL)
def repeat(g: GraphBuilder, node: Node, self: Node, repeats: Sequence[Size]) -> ir.Value:
    value, extra = g.value(self), len(repeats) - rank_of(self)
    if extra:
        value = g.op("Unsqueeze", value, g.ints(range(extra)))
    return g.op("Tile", value, g.sizes(repeats)) if repeats else value


# ---- parts --------------------------------------------------------------------------------------------------------


@convert_with("slice.Tensor slice_copy.Tensor", dtypes=ALL)
def slice_(
    g: GraphBuilder, node: Node, self: Node, dim: int, start: Size | None, end: Size | None, step: int
) -> ir.Value:
    axis = dim % rank_of(self)
    if start in (0, None) and step == 1 and str(shape_of(node)[axis]) == str(shape_of(self)[axis]):
        return g.value(self)
    first, last = g.sizes([0 if start is None else start]), g.sizes([INT64_MAX if end is None else end])
    return g.op("Slice", g.value(self), first, last, g.ints([axis]), g.ints([step]))


@convert_with("select.int select_copy.int", dtypes=ALL)
def select(g: GraphBuilder, node: Node, self: Node, dim: int, index: Size) -> ir.Value:
    chosen = g.constant(np.array(index)) if isinstance(index, int) else g.value(index)
    return g.op("Gather", g.value(self), chosen, axis=dim % rank_of(self))


@convert_with("narrow", dtypes=ALL, check=lambda node, self, dim, start, length: (
    None if isinstance(start, int) and isinstance(length, int) else "start or length is not known"))  # fmt: skip
def narrow(g: GraphBuilder, node: Node, self: Node, dim: int, start: int, length: int) -> ir.Value:
    first = start if start >= 0 else start + int(shape_of(self)[dim])
    return slice_(g, node, self, dim, first, first + length, 1)


@convert_with("split_with_sizes split_with_sizes_copy", dtypes=ALL)
def split_with_sizes(g: GraphBuilder, node: Node, self: Node, sizes: Sequence[Size], dim: int) -> Sequence[ir.Value]:
    return g.ops("Split", len(sizes), g.value(self), g.sizes(sizes), axis=dim % rank_of(self))


_KNOWN_PIECES: Final = unless(
    lambda node, self, *how: isinstance(shape_of(self)[how[-1]], int), "the dim that is split is dynamic"
)


@convert_with("split.Tensor split_copy.Tensor chunk", dtypes=ALL, check=_KNOWN_PIECES)
def split(g: GraphBuilder, node: Node, self: Node, _count: int, dim: int) -> Sequence[ir.Value]:
    sizes = [int(piece.shape[dim]) for piece in node.meta["val"]]
    return split_with_sizes(g, node, self, sizes, dim)


@convert_with("unbind.int unbind_copy.int", dtypes=ALL, check=_KNOWN_PIECES)
def unbind(g: GraphBuilder, node: Node, self: Node, dim: int) -> Sequence[ir.Value]:
    value, axis = g.value(self), dim % rank_of(self)
    return [g.op("Gather", value, g.constant(np.array(i)), axis=axis) for i in range(len(node.meta["val"]))]


# ---- joins --------------------------------------------------------------------------------------------------------


@convert_with("cat concat", dtypes=ALL, takes_empty=True)
def cat(g: GraphBuilder, node: Node, tensors: Sequence[Node], dim: int) -> ir.Value:
    parts = [g.tensor(tensor, dtype_of(node)) for tensor in tensors if not is_empty(tensor.meta["val"])]
    return parts[0] if len(parts) == 1 else g.op("Concat", *parts, axis=dim % rank_of(node))


@convert_with("stack", dtypes=ALL)
def stack(g: GraphBuilder, node: Node, tensors: Sequence[Node], dim: int) -> ir.Value:
    dtype, axis = dtype_of(node), dim % rank_of(node)
    raised = (g.op("Unsqueeze", g.tensor(tensor, dtype), g.ints([axis])) for tensor in tensors)
    return g.op("Concat", *raised, axis=axis)


# ---- padding ------------------------------------------------------------------------------------------------------

PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _edges_are_left(node: Node, self: Node, pad: Sequence[Size], mode: str = "replicate", *_: object) -> str | None:
    """torch repeats edges that it cuts off as well."""
    sides = zip(reversed(shape_of(self)), pad[::2], pad[1::2], strict=False)
    known = [side for side in sides if are_known(*side)]
    cut = any(size + min(before, 0) + min(after, 0) <= 0 for size, before, after in known)  # type: ignore[operator]
    return "edges repeated that are cut off" if mode == "replicate" and cut else None


@convert_with("constant_pad_nd", dtypes=NUMBERS_OR_BOOL)
@convert_with("pad", dtypes=NUMBERS_OR_BOOL, check=_edges_are_left, keep=True)
def pad(g: GraphBuilder, node: Node, self: Node, pad: Sequence[Size], *how: Any) -> ir.Value:
    *mode, value = how
    return padded(g, node, self, pad, PAD_MODES[mode[0] if mode else "constant"], value or 0)


@convert_with("reflection_pad1d reflection_pad2d reflection_pad3d", dtypes=NUMBERS)
@convert_with("replication_pad1d replication_pad2d replication_pad3d", dtypes=NUMBERS, check=_edges_are_left)
def pad_edges(g: GraphBuilder, node: Node, self: Node, padding: Sequence[Size]) -> ir.Value:
    return padded(g, node, self, padding, "reflect" if "reflection" in name_of(node) else "edge")


def padded(
    g: GraphBuilder, node: Node, self: Node, amounts: Sequence[Size], mode: str, fill: TensorLike = 0
) -> ir.Value:
    """torch lists (before, after) from the last dim on; ONNX all befores, then all afters, for the dims named."""
    if all(amount == 0 for amount in amounts):
        return g.value(self)
    if mode not in g.target.pad_modes or (mode == "wrap" and are_known(*amounts) and _may_be_empty(g, self)):
        return _wrapped(g, self, amounts)
    constant = g.tensor(fill, dtype_of(node)) if mode == "constant" else None
    if are_known(*amounts):
        # for all dims: where onnxruntime moves a Transpose through a Pad, it takes no notice of axes
        rest = [0] * (rank_of(self) - len(amounts) // 2)
        pads = g.ints([*rest, *amounts[-2::-2], *rest, *amounts[::-2]])  # type: ignore[list-item]
        return g.op("Pad", g.value(self), pads, constant, mode=mode)
    axes = [rank_of(self) - 1 - i for i in range(len(amounts) // 2)]
    pads = g.sizes([*amounts[::2], *amounts[1::2]])
    return g.op("Pad", g.value(self), pads, constant, g.ints(axes), mode=mode)


def _may_be_empty(g: GraphBuilder, self: Node) -> bool:
    """Whether there may be no elements, which onnxruntime's Pad cannot repeat (1.31: "Unexpected mode")."""
    return any(not isinstance(size, int) and g.may_run_with_none(size) for size in shape_of(self))


def _wrapped(g: GraphBuilder, self: Node, amounts: Sequence[Size]) -> ir.Value:
    """The end of a dim before its beginning, the beginning behind its end; negative amounts are cut off first."""
    value, most = g.value(self), g.ints([INT64_MAX])
    for place, (before, after) in enumerate(zip(amounts[::2], amounts[1::2], strict=True)):
        assert isinstance(before, int) and isinstance(after, int)
        axis = g.ints([rank_of(self) - 1 - place])
        # [a b c], 1 before and 1 behind:   [c] [a b c] [a]
        middle = g.op("Slice", value, g.ints([max(0, -before)]), g.ints([after]) if after < 0 else most, axis)
        front = [g.op("Slice", middle, g.ints([-before]), most, axis)] if before > 0 else []
        back = [g.op("Slice", middle, g.ints([0]), g.ints([after]), axis)] if after > 0 else []
        value = g.op("Concat", *front, middle, *back, axis=rank_of(self) - 1 - place)
    return value


# ---- helpers ------------------------------------------------------------------------------------------------------


def _is_static(node: Node) -> bool:
    return are_known(*shape_of(node))
