"""A tapped tensor -> what is kept of it: all, or thirteen statistics.

Each reducer says it twice: `eager` on a tensor, `emit` as calls of core operators in a graph; both in float32, so that
backends' precisions compare.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch.fx import Graph, Node

from delegraph.aot import exir_ops

__all__ = ["FULL_TENSOR", "STATS", "StatReducer", "get_reducer"]


@dataclass(frozen=True)
class StatReducer:
    """A reducer by name. `emit(graph, node)` puts calls where the graph inserts, and gives the node with the result;
    `fields` name its elements, and are empty where it is as large as the source."""

    name: str
    fields: tuple[str, ...]
    emit: Callable[[Graph, Node], Node]
    eager: Callable[[torch.Tensor], torch.Tensor]


FULL_TENSOR: Final = StatReducer("FULL_TENSOR", (), lambda _graph, source: source, torch.Tensor.detach)
"""The whole tensor."""

_FIELDS: Final = (
    "min",
    "max",
    "mean",
    "abs_max",
    "abs_mean",
    "std",
    "rms",
    "l1_norm",
    "l2_norm",
    "nan_count",
    "inf_count",
    "zero_count",
    "p99_abs",
)
PERCENT: Final = 100
"""`p99_abs` is the least of the largest hundredth, rounded up."""


def _statistics(x: Any, count: int, ops: Any) -> Any:
    """The fields, in order. `x` is a tensor and `ops` calls torch, or a node and `ops` appends calls to a graph."""
    values = ops.float32(x)
    size = ops.abs(values)
    square = ops.mul(values, values)
    mean, mean_square = ops.mean(values), ops.mean(square)
    largest = ops.topk(ops.flat(size), max(1, -(-count // PERCENT)))
    return ops.stack(
        [
            ops.amin(values),
            ops.amax(values),
            mean,
            ops.amax(size),
            ops.mean(size),
            ops.sqrt(ops.abs(ops.sub(mean_square, ops.mul(mean, mean)))),  # rounding may leave it below 0
            ops.sqrt(mean_square),
            ops.sum(size),
            ops.sqrt(ops.sum(square)),
            ops.count(ops.isnan(values)),
            ops.count(ops.isinf(values)),
            ops.count(ops.is_zero(values)),
            ops.last(largest, max(1, -(-count // PERCENT)) - 1),
        ]
    )


class _Eager:
    """Calls on tensors."""

    abs, mul, sub, mean, sqrt = torch.abs, torch.mul, torch.sub, torch.mean, torch.sqrt
    amin, amax, sum, isnan, isinf = torch.amin, torch.amax, torch.sum, torch.isnan, torch.isinf
    stack = torch.stack

    @staticmethod
    def float32(x: torch.Tensor) -> torch.Tensor:
        return x.detach().to(torch.float32)

    @staticmethod
    def flat(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1)

    @staticmethod
    def topk(x: torch.Tensor, k: int) -> torch.Tensor:
        return torch.topk(x, k).values

    @staticmethod
    def last(x: torch.Tensor, index: int) -> torch.Tensor:
        return x[index]

    @staticmethod
    def is_zero(x: torch.Tensor) -> torch.Tensor:
        return x == 0

    @staticmethod
    def count(mask: torch.Tensor) -> torch.Tensor:
        return mask.to(torch.float32).sum()


class _Emitting:
    """The same calls, appended to a graph; each node has a fake value, for whoever lowers it further."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def _call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        node = self.graph.call_function(target, args, kwargs)
        values = torch.fx.map_arg((args, kwargs), lambda one: one.meta.get("val"))
        if all("val" in source.meta for source in node.all_input_nodes):
            node.meta["val"] = target(*values[0], **values[1])
        return node

    def float32(self, x: Node) -> Node:
        return self._call(exir_ops.edge.aten._to_copy.default, x, dtype=torch.float32)

    def flat(self, x: Node) -> Node:
        return self._call(exir_ops.edge.aten.view_copy.default, x, [-1])

    def topk(self, x: Node, k: int) -> Node:
        return self._call(operator.getitem, self._call(exir_ops.edge.aten.topk.default, x, k), 0)

    def last(self, x: Node, index: int) -> Node:
        return self._call(exir_ops.edge.aten.select_copy.int, x, 0, index)

    def is_zero(self, x: Node) -> Node:
        return self._call(exir_ops.edge.aten.eq.Scalar, x, 0.0)

    def count(self, mask: Node) -> Node:
        return self.sum(self.float32(mask))

    def sum(self, x: Node) -> Node:
        return self._call(exir_ops.edge.aten.sum.dim_IntList, x, [])

    def __getattr__(self, name: str) -> Callable[..., Node]:
        return partial(self._call, _CALLED[name])


_CALLED: Final = {
    "abs": exir_ops.edge.aten.abs.default,
    "amax": exir_ops.edge.aten.amax.default,
    "amin": exir_ops.edge.aten.amin.default,
    "isinf": exir_ops.edge.aten.isinf.default,
    "isnan": exir_ops.edge.aten.isnan.default,
    "mean": exir_ops.edge.aten.mean.default,
    "mul": exir_ops.edge.aten.mul.Tensor,
    "sqrt": exir_ops.edge.aten.sqrt.default,
    "stack": exir_ops.edge.aten.stack.default,
    "sub": exir_ops.edge.aten.sub.Tensor,
}
"""Operators that take the arguments of torch's function of that name."""


def _emit_statistics(graph: Graph, source: Node) -> Node:
    value = source.meta.get("val")
    emitted: Node = _statistics(source, 1 if value is None else int(value.numel()), _Emitting(graph))
    return emitted


def _eager_statistics(tensor: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = _statistics(tensor, tensor.numel(), _Eager)
    return result


STATS: Final = StatReducer("STATS", _FIELDS, _emit_statistics, _eager_statistics)
"""Thirteen statistics, float32."""

_BUILT_IN: Final = {reducer.name: reducer for reducer in (FULL_TENSOR, STATS)}


def get_reducer(name_or_reducer: str | StatReducer) -> StatReducer:
    """The reducer of that name, or the one that is given. Raises `ValueError` for an unknown name."""
    if isinstance(name_or_reducer, StatReducer):
        return name_or_reducer
    if name_or_reducer not in _BUILT_IN:
        raise ValueError(f"Unknown reducer {name_or_reducer!r}; available: {sorted(_BUILT_IN)}")
    return _BUILT_IN[name_or_reducer]
