"""Normalizations -> OpenVINO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from openvino import Output
from torch.fx import Node

from delegraph.aot.authoring import used_results
from delegraph_openvino.aot.graph_builder import GraphBuilder, dtype_of, shape_of
from delegraph_openvino.aot.table import converts


def _first_only(node: Node, *_: Any) -> str | None:
    further = sorted(index for index in used_results(node) if index)
    return f"its results {further} are used" if further else None


def _frozen(node: Node, x: Node, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *_: Any) -> str | None:
    return "it is in training mode" if training or mean is None or var is None else None


@converts("batch_norm.default", check=_frozen, keep=True)
def batch_norm(
    g: GraphBuilder, node: Node, x: Node, weight: Node | None, bias: Node | None, mean: Node, var: Node, training: bool,
    momentum: float, eps: float, *_: Any,
) -> Output:  # fmt: skip
    return _batch_norm(g, node, x, weight, bias, mean, var, eps)


@converts("_native_batch_norm_legit_no_training.default", check=_first_only, keep=True)
def native_batch_norm(
    g: GraphBuilder, node: Node, x: Node, weight: Node | None, bias: Node | None, mean: Node, var: Node,
    momentum: float, eps: float,
) -> tuple[Output, None, None]:  # fmt: skip
    return _batch_norm(g, node, x, weight, bias, mean, var, eps), None, None


def _batch_norm(
    g: GraphBuilder, node: Node, x: Node, weight: Node | None, bias: Node | None, mean: Node, var: Node, eps: float
) -> Output:
    ones = g.op("broadcast", g.cast(1, torch.float32), g.vector(shape_of(mean)))
    filled = (ones if weight is None else weight, g.op("subtract", ones, ones) if bias is None else bias)
    wide = (g.cast(operand, torch.float32) for operand in (x, *filled, mean, var))
    return g.cast(g.op("batch_norm_inference", *wide, epsilon=eps), dtype_of(node))


@converts("layer_norm.default", keep=True)
def layer_norm(
    g: GraphBuilder,
    node: Node,
    x: Node,
    shape: Sequence[int],
    weight: Node | None,
    bias: Node | None,
    eps: float,
    *_: Any,
) -> Output:
    axes = list(range(-len(shape), 0))
    result = g.op("mvn", x, g.vector(axes), normalize_variance=True, eps=eps, eps_mode="inside_sqrt")
    return _scaled(g, result, weight, bias)


@converts("native_layer_norm.default", check=_first_only)
def native_layer_norm(g: GraphBuilder, node: Node, *arguments: Any) -> tuple[Output, None, None]:
    return layer_norm(g, node, *arguments), None, None


@converts("group_norm.default", keep=True)
def group_norm(
    g: GraphBuilder, node: Node, x: Node, groups: int, weight: Node | None, bias: Node | None, eps: float, *_: Any
) -> Output:
    _, channels, *sizes = shape_of(x)
    ones = [1] * len(sizes)
    split = g.op("reshape", x, g.vector([0, groups, -1]), special_zero=True)
    result = g.op("mvn", split, g.vector([2]), normalize_variance=True, eps=eps, eps_mode="inside_sqrt")
    whole = g.op("reshape", result, g.shape(x), special_zero=False)
    along = [g.reshape(w, [1, channels, *ones]) if w is not None else None for w in (weight, bias)]
    return _scaled(g, whole, *along)


def _of_input(
    node: Node, x: Node, weight: Any, bias: Any, mean: Any, var: Any, uses_input: bool, *_: Any
) -> str | None:
    return None if uses_input else "it normalizes by stored statistics"


@converts("instance_norm.default", check=_of_input, keep=True)
def instance_norm(
    g: GraphBuilder, node: Node, x: Node, weight: Node | None, bias: Node | None, mean: Any, var: Any, uses_input: bool,
    momentum: float, eps: float, *_: Any,
) -> Output:  # fmt: skip
    sizes = len(shape_of(x)) - 2
    result = g.op("mvn", x, g.vector(range(2, sizes + 2)), normalize_variance=True, eps=eps, eps_mode="inside_sqrt")
    along = [None if w is None else g.reshape(w, [-1, *[1] * sizes]) for w in (weight, bias)]
    return _scaled(g, result, *along)


@converts("rms_norm.default", keep=True)
def rms_norm(
    g: GraphBuilder, node: Node, x: Node, shape: Sequence[int], weight: Node | None, eps: float | None
) -> Output:
    dtype = dtype_of(node)
    small, wide = torch.finfo(dtype).eps if eps is None else eps, g.cast(x, torch.float32)
    square = g.op("power", wide, 2.0, dtype=torch.float32)
    mean = g.op("reduce_mean", square, g.vector(list(range(-len(shape), 0))), keep_dims=True)
    root = g.op("sqrt", g.op("add", mean, small, dtype=torch.float32))
    result = g.op("multiply", wide, g.op("divide", g.operand(1.0, torch.float32), root))
    return g.cast(_scaled(g, result, None if weight is None else g.cast(weight, torch.float32), None), dtype)


def _scaled(g: GraphBuilder, value: Output, weight: Any, bias: Any) -> Output:
    if weight is not None:
        value = g.op("multiply", value, weight)
    return value if bias is None else g.op("add", value, bias)


@converts("softmax.int", "_softmax.default", keep=True)
def softmax(g: GraphBuilder, node: Node, x: Node, dim: int, *_: Any) -> Output:
    return g.op("softmax", g.cast(x, dtype_of(node)), axis=dim % max(1, len(shape_of(x))))


@converts("log_softmax.int", "_log_softmax.default", keep=True)
def log_softmax(g: GraphBuilder, node: Node, x: Node, dim: int, *_: Any) -> Output:
    return g.op("log_softmax", g.cast(x, dtype_of(node)), axis=dim % max(1, len(shape_of(x))))
