"""Operators that move elements, or give them another shape or dtype -> OpenVINO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from openvino import Output
from torch.fx import Node

from delegraph_openvino.aot.graph_builder import GraphBuilder, dtype_of, shape_of
from delegraph_openvino.aot.rounded_values import with_reals
from delegraph_openvino.aot.table import ALL, converts

LAST: Final = 2**31 - 1
"""The end of a slice that goes to the end."""


@converts("alias_copy.default", "clone.default", "dim_order_ops::_clone_dim_order", dtypes=ALL)
def same(g: GraphBuilder, node: Node, x: Node, *_: Any) -> Output:
    return g.value(x)


@converts("dim_order_ops::_to_dim_order_copy", "_to_copy.default", dtypes=ALL)
def cast(g: GraphBuilder, node: Node, x: Node, *_: Any) -> Output:
    return g.cast(x, dtype_of(node))


@converts("view_copy.default", "_unsafe_view.default", "reshape.default", dtypes=ALL)
def view(g: GraphBuilder, node: Node, x: Node, size: Sequence[Any]) -> Output:
    return g.reshape(x, size)


@converts("permute_copy.default", "permute.default", dtypes=ALL)
def permute(g: GraphBuilder, node: Node, x: Node, dims: Sequence[int]) -> Output:
    return g.op("transpose", x, g.vector([dim % len(dims) for dim in dims]))


@converts("transpose_copy.int", dtypes=ALL)
def transpose(g: GraphBuilder, node: Node, x: Node, first: int, second: int) -> Output:
    order = list(range(len(shape_of(node))))
    order[first], order[second] = order[second], order[first]
    return g.op("transpose", x, g.vector(order))


@converts("t_copy.default", dtypes=ALL)
def t(g: GraphBuilder, node: Node, x: Node) -> Output:
    return g.value(x) if len(shape_of(node)) < 2 else g.op("transpose", x, g.vector([1, 0]))


@converts("unsqueeze_copy.default", dtypes=ALL)
def unsqueeze(g: GraphBuilder, node: Node, x: Node, dim: int) -> Output:
    return g.op("unsqueeze", x, g.vector([dim % len(shape_of(node))]))


@converts("squeeze_copy.dims", "squeeze_copy.dim", "squeeze_copy.default", dtypes=ALL)
def squeeze(g: GraphBuilder, node: Node, x: Node, dims: Any = None) -> Output:
    shape = shape_of(x)
    wanted = range(len(shape)) if dims is None else [dims] if isinstance(dims, int) else dims
    ones = sorted({dim % len(shape) for dim in wanted if shape[dim] == 1}) if shape else []
    return g.op("squeeze", x, g.vector(ones)) if ones else g.value(x)


@converts("expand_copy.default", dtypes=ALL)
def expand(g: GraphBuilder, node: Node, x: Node, size: Sequence[Any], *_: Any) -> Output:
    return g.op(
        "broadcast",
        x,
        g.sizes([1 if isinstance(n, int) and n == -1 else n for n in size]),
        broadcast_spec="BIDIRECTIONAL",
    )


@converts("repeat.default", dtypes=ALL)
def repeat(g: GraphBuilder, node: Node, x: Node, repeats: Sequence[Any]) -> Output:
    return g.op("tile", x, g.sizes(repeats))


@converts("cat.default", dtypes=ALL)
def cat(g: GraphBuilder, node: Node, parts: Sequence[Node], dim: int) -> Output:
    rank = len(shape_of(node))
    return g.concat([g.cast(part, dtype_of(node)) for part in parts], dim % rank)


@converts("slice_copy.Tensor", dtypes=ALL)
def slice_copy(g: GraphBuilder, node: Node, x: Node, dim: int, start: Any, end: Any, step: int) -> Output:
    bounds = (0 if start is None else start, LAST if end is None else end, step)
    limits = [min(bound, LAST) if isinstance(bound, int) else bound for bound in bounds]
    axis = dim % len(shape_of(node))
    return g.op("slice", x, *(g.sizes([limit]) for limit in limits), axes=g.vector([axis]))


def _fixed_index(node: Node, x: Node, dim: int, index: object) -> str | None:
    return None if isinstance(index, int) else "its index is not a fixed number"


@converts("select_copy.int", dtypes=ALL, check=_fixed_index)
def select(g: GraphBuilder, node: Node, x: Node, dim: int, index: int) -> Output:
    return g.op("gather", x, g.axis(index), g.axis(dim % len(shape_of(x))))


@converts("split_with_sizes_copy.default", dtypes=ALL)
def split(g: GraphBuilder, node: Node, x: Node, sizes: Sequence[Any], dim: int) -> tuple[Output, ...]:
    made = g.results("variadic_split", x, g.axis(dim % len(shape_of(x))), g.sizes(sizes))
    return tuple(made)


@converts("unbind_copy.int", dtypes=ALL)
def unbind(g: GraphBuilder, node: Node, x: Node, dim: int) -> tuple[Output, ...]:
    axis = g.axis(dim % len(shape_of(x)))
    return tuple(g.op("gather", x, g.axis(i), axis) for i in range(len(node.meta["val"])))


@converts("flip.default", dtypes=ALL)
def flip(g: GraphBuilder, node: Node, x: Node, dims: Sequence[int]) -> Output:
    if not dims or not shape_of(x):
        return g.value(x)
    axes = [dim % len(shape_of(x)) for dim in dims]
    ends = ([-1] * len(axes), [-LAST] * len(axes), [-1] * len(axes), axes)
    return g.op("slice", x, *map(g.vector, ends))


_PADDING: Final = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


def _known_padding(node: Node, x: Node, pad: Sequence[Any], mode: object = "constant", *_: Any) -> str | None:
    if not isinstance(mode, str):
        mode = "constant"
    if mode not in _PADDING:
        return f"OpenVINO does not pad in mode {mode!r}"
    return None if all(isinstance(n, int) for n in pad) else "its padding is not fixed"


@converts("constant_pad_nd.default", dtypes=ALL, check=_known_padding)
def constant_pad(g: GraphBuilder, node: Node, x: Node, pad: Sequence[int], value: Any) -> Output:
    return pad_by(g, node, x, pad, "constant", value)


@converts("pad.default", dtypes=ALL, check=_known_padding, keep=True)
def pad_by(g: GraphBuilder, node: Node, x: Node, pad: Sequence[int], mode: str, value: Any) -> Output:
    before, after = list(pad[::2]), list(pad[1::2])
    missing = [0] * (len(shape_of(x)) - len(before))
    ends = (g.vector([*missing, *reversed(side)]) for side in (before, after))
    if mode != "constant":
        return g.op("pad", x, *ends, pad_mode=_PADDING[mode])
    padded = with_reals(g, x, node) if value else g.value(x)  # around integers there would be the integer next to it
    return g.op("pad", padded, *ends, pad_mode="constant", arg_pad_value=g.cast(value or 0, dtype_of(node)))


def _is_image(node: Node, x: Node, *_: Any) -> str | None:
    return None if len(shape_of(x)) == 4 else "its operand does not have four dims"


@converts("pixel_shuffle.default", check=_is_image, keep=True)
def pixel_shuffle(g: GraphBuilder, node: Node, x: Node, factor: int) -> Output:
    return g.op("depth_to_space", x, mode="depth_first", block_size=factor)


@converts("pixel_unshuffle.default", check=_is_image, keep=True)
def pixel_unshuffle(g: GraphBuilder, node: Node, x: Node, factor: int) -> Output:
    return g.op("space_to_depth", x, mode="depth_first", block_size=factor)


@converts("channel_shuffle.default", dtypes=ALL, check=_is_image, keep=True)
def channel_shuffle(g: GraphBuilder, node: Node, x: Node, groups: int) -> Output:
    return g.op("shuffle_channels", x, axis=1, group=groups)


@converts(
    "tril.default",
    "triu.default",
    check=lambda node, x, diagonal: (
        None if all(isinstance(n, int) for n in shape_of(x)[-2:]) else "its sizes are not fixed"
    ),
)
def triangle(g: GraphBuilder, node: Node, x: Node, diagonal: int) -> Output:
    part = np.tril if "tril" in str(node.target) else np.triu
    kept = g.tensor(part(np.ones(shape_of(x)[-2:], np.bool_), diagonal))
    return g.op("select", kept, x, g.cast(0, dtype_of(node)))
