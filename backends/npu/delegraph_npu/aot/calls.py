"""Edge (or ATen) graph -> quantized calls: dequantize -> operator [-> clamp] -> quantize, read as one integer operator.

    int8 -> dq -> convolution -> relu -> q -> int8        is one call: head `convolution`, clamp `relu`, out grid of `q`
    weight -> dq -/

The nodes of a call alone decide what belongs to it, so that a partitioner can ask for any of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch.fx import Node

from delegraph.aot import lifted_number, schema_arguments
from delegraph.aot.authoring import Granularity, clamp_limits, quantize_call

__all__ = [
    "Grid",
    "QuantizedCall",
    "call_at",
    "dtype_of",
    "grid_of",
    "head_of",
    "is_clamp",
    "is_dequantize",
    "is_quantize",
    "operator_name",
    "shape_of",
]


@dataclass(frozen=True, slots=True)
class Grid:
    """Parameters of a tensor: real = (integer - zero_point) * scale, low <= integer <= high."""

    scale: float
    zero_point: int
    low: int
    high: int
    dtype: torch.dtype

    def step(self, number: float) -> int:
        """The integer nearest to `number`, limited to the grid."""
        if math.isinf(number):
            return self.low if number < 0 else self.high
        return int(np.clip(np.round(number / self.scale) + self.zero_point, self.low, self.high))


@dataclass(frozen=True, slots=True)
class QuantizedCall:
    """An operator on integers, as a quantized graph writes it: `nodes`, in graph order, of which `head` computes.

    `results` are the quantize calls, all on `out`; `clamps` lie between them and the head.
    """

    head: Node
    clamps: tuple[Node, ...]
    results: tuple[Node, ...]
    dequantizes: tuple[Node, ...]
    out: Grid

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes of the call."""
        head = () if self.head in self.results else (self.head,)
        return (*self.dequantizes, *head, *self.clamps, *self.results)

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and the highest integer that the grid and the clamps, one behind the other, let through."""
        low, high = self.out.low, self.out.high
        for limits in filter(None, map(clamp_limits, (self.head, *self.clamps))):
            least, most = map(self.out.step, limits)
            low, high = (min(max(step, least), most) for step in (low, high))
        return low, high


# ---- what a node is -------------------------------------------------------------------------------------------------


def operator_name(node: Node) -> str:
    """ "aten::view_copy.default" -> "view": without "aten", overload, and the suffix of copies."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return ""
    name = str(schema.name).removeprefix("aten::")
    return _COPIES.get(name, name.removesuffix("_copy"))


_COPIES: Final = {"dim_order_ops::_clone_dim_order": "clone", "_softmax": "softmax", "unsafe_view": "view"}


def is_quantize(node: Node) -> bool:
    """Whether `node` rounds a float tensor to one grid."""
    call = quantize_call(node)
    return call is not None and call.quantizes and call.granularity is Granularity.TENSOR


def is_dequantize(node: Node) -> bool:
    """Whether `node` computes a float tensor of integers."""
    call = quantize_call(node)
    return call is not None and not call.quantizes and call.granularity in (Granularity.TENSOR, Granularity.CHANNEL)


def grid_of(node: Node) -> Grid | None:
    """The grid of a call that quantizes or dequantizes a whole tensor; None if it is not known ahead of time."""
    call = quantize_call(node)
    if call is None or call.granularity is not Granularity.TENSOR or call.qmin is None or call.qmax is None:
        return None
    if isinstance(call.scale, Node) or not isinstance(call.zero_point, int):
        return None
    return Grid(float(np.float32(call.scale)), call.zero_point, call.qmin, call.qmax, call.dtype)


def shape_of(node: Node) -> tuple[int, ...]:
    """The shape of the result of `node`."""
    return tuple(node.meta["val"].shape)


def dtype_of(node: Node) -> torch.dtype:
    """The dtype of the result of `node`."""
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


def is_clamp(node: Node) -> bool:
    """Whether `node` only limits values by numbers: the operator before it can do that at no cost."""
    return clamp_limits(node) is not None


# ---- which call a node is part of -----------------------------------------------------------------------------------


def head_of(node: Node) -> Node:
    """The node that computes in the call to which `node` belongs; itself if `node` belongs to none, or to several.

    A quantize call behind a dequantize call heads a call of its own: it changes grids.
    """
    if is_dequantize(node):
        users = [user for user in node.users if user.op == "call_function"]
        return head_of(users[0]) if len(users) == 1 else node
    source = _source(node)
    if is_quantize(node):
        return node if source is None or is_dequantize(source) else head_of(source)
    if is_clamp(node) and source is not None and not is_dequantize(source):
        return head_of(source)
    return node


def _source(node: Node) -> Node | None:
    source = node.args[0] if node.args else None
    return source if isinstance(source, Node) and source.op == "call_function" else None


def call_at(head: Node) -> QuantizedCall | str:
    """The call that `head` computes, or the reason why it cannot be computed on integers."""
    clamps, last = [], head
    while not is_quantize(last) and len(last.users) == 1 and is_clamp(next(iter(last.users))):
        last = next(iter(last.users))
        clamps.append(last)
    results = (head,) if is_quantize(head) else tuple(last.users)
    if not results or not all(is_quantize(result) for result in results):
        return "its result is not quantized" if not clamps else f"the result of {last.name} behind it is not quantized"
    grids = {grid_of(result) for result in results}
    out = grids.pop()
    if grids or out is None:
        return "its result is quantized in several ways, or in one that is not known ahead of time"
    dequantizes = []
    for source in _tensors(head):
        if not is_dequantize(source):
            return f"its operand {source.name} is not quantized"
        dequantizes.append(source)
    return QuantizedCall(head, tuple(clamps), results, tuple(dequantizes), out)


def _tensors(head: Node) -> Iterator[Node]:
    """The float operands except biases and numbers, which need no grid."""
    bias = _BIAS.get(operator_name(head))
    arguments = schema_arguments(head)
    seen: dict[Node, None] = {}
    for position, argument in enumerate(arguments):
        for source in argument if isinstance(argument, list | tuple) else (argument,):
            if isinstance(source, Node) and position != bias and lifted_number(source) is None:
                seen[source] = None
    yield from seen


_BIAS: Final = {"convolution": 2, "linear": 2, "addmm": 0}
"""Operator -> the position of its bias, a float constant."""
