"""Operators that make tensors of nothing -> OpenVINO; what has fixed sizes is a constant."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from openvino import Output
from torch.fx import Node

from delegraph.aot.authoring import numpy_dtype
from delegraph_openvino.aot.graph_builder import GraphBuilder, dtype_of
from delegraph_openvino.aot.table import ALL, NUMBERS, converts


@converts("full.default", dtypes=ALL)
def full(g: GraphBuilder, node: Node, size: Any, value: Any, *_: Any) -> Output:
    return g.op("broadcast", g.cast(value, dtype_of(node)), g.sizes(size))


@converts("zeros.default", "ones.default", dtypes=ALL)
def zeros_or_ones(g: GraphBuilder, node: Node, size: Any, *_: Any) -> Output:
    return full(g, node, size, int("ones" in str(node.target)))


@converts("full_like.default", dtypes=ALL, indexes=(0,))
def full_like(g: GraphBuilder, node: Node, x: Node, value: Any, *_: Any) -> Output:
    return g.op("broadcast", g.cast(value, dtype_of(node)), g.shape(x))


@converts("zeros_like.default", "ones_like.default", dtypes=ALL, indexes=(0,))
def zeros_or_ones_like(g: GraphBuilder, node: Node, x: Node, *_: Any) -> Output:
    return full_like(g, node, x, int("ones" in str(node.target)))


@converts("scalar_tensor.default", dtypes=ALL)
def scalar_tensor(g: GraphBuilder, node: Node, value: Any, *_: Any) -> Output:
    return g.cast(value, dtype_of(node))


def _whole_steps(node: Node, start: Any, end: Any, step: Any, *_: Any) -> str | None:
    whole = all(isinstance(value, int | Node) for value in (start, end, step))
    return None if whole or not dtype_of(node).is_floating_point else "its steps are not whole numbers"


@converts("arange.start_step", dtypes=NUMBERS, check=_whole_steps)
def arange(g: GraphBuilder, node: Node, start: Any, end: Any, step: Any, *_: Any) -> Output:
    if all(isinstance(value, int | float) for value in (start, end, step)):
        return g.tensor(np.arange(start, end, step).astype(numpy_dtype(dtype_of(node))))
    bounds = (g.cast(value, torch.int64) for value in (start, end, step))
    return g.cast(g.op("range", *bounds, output_type="i64"), dtype_of(node))
