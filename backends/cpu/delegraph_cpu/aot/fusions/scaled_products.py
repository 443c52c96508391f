"""Scales of scales in a graph under construction -> scales of what the first one scales.

    s = Mul(x, 2); t = Div(s, 3)        s = Mul(x, 2); t = Div(x, 3/2)
    MatMul(k, s); MatMul(t, k)          MatMul(k, s); MatMul(t, k)

onnxruntime makes scales of matrix products numbers of these (its `MatMulScaleFusion`, up to 1.31 at least). Where
products read both, it may take `s` away while `t` still reads it, and refuses the graph then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["part_scales"]

_PRODUCTS: Final = ("MatMul", "Transpose")
"""Readers of the scales: products, or turned matrices of theirs."""


def part_scales(nodes: Sequence[ir.Node], constant: Callable[[NDArray[Any]], ir.Value]) -> None:
    """Edit `nodes`, which stand in the order in which they run; `constant` makes constants of their graph."""
    for outer in filter(None, map(_scale_of, nodes)):
        producer = outer.scaled.producer()
        inner = None if producer is None else _scale_of(producer)
        if inner is not None and _is_read_by_products(inner.node) and _is_read_by_products(outer.node):
            with np.errstate(divide="ignore", invalid="ignore"):
                factor = inner.number if inner.node.op_type == "Mul" else 1 / inner.number
                joined = outer.number * factor if outer.node.op_type == "Mul" else outer.number / factor
            outer.node.replace_input_with(outer.place, inner.scaled)
            outer.node.replace_input_with(1 - outer.place, constant(joined.astype(outer.dtype)))


@dataclass(frozen=True, slots=True)
class _Scale:
    """A node that multiplies `scaled`, its input at `place`, by a number or divides it by one; `dtype` is that of the
    number in the graph."""

    node: ir.Node
    place: int
    scaled: ir.Value
    number: NDArray[np.float64]
    dtype: np.dtype[Any]


def _scale_of(node: ir.Node) -> _Scale | None:
    for place in {"Mul": (0, 1), "Div": (0,)}.get(node.op_type, ()):
        scaled, number = node.inputs[place], node.inputs[1 - place]
        tensor = None if number is None else number.const_value
        if scaled is not None and tensor is not None and tensor.size == 1 and tensor.dtype.is_floating_point():
            return _Scale(node, place, scaled, tensor.numpy().astype(np.float64), tensor.dtype.numpy())
    return None


def _is_read_by_products(node: ir.Node) -> bool:
    return any(reader.op_type in _PRODUCTS for reader, _ in node.outputs[0].uses())
