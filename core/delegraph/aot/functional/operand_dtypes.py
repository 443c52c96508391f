"""Arguments of a call, as the user gave them -> in the dtype to which the operator itself brings them.

    before                                         after
    select_scatter(bool, int64, 0, 1)              select_scatter(bool, bool, 0, 1)
    index_add(bool, 0, index, bool, alpha=2)       index_add(bool, 0, index, bool, alpha=True)
    addcmul(int64, int64, int64, value=0.5)        addcmul(int64, int64, int64, value=0)
    addcmul(int64, float32, int64, value=0.5)      addcmul(float32, float32, int64, value=0.5)

torch's decompositions leave these conversions out: they promote to the other dtype instead, or refuse the number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.node import Argument

from delegraph.aot.graph.fake_values import Args, Kwargs
from delegraph.aot.graph.result_dtypes import result_dtypes

__all__ = ["CONVERTED", "in_operators_dtypes"]

aten = torch.ops.aten

CONVERTED: Final = {
    aten.select_scatter.default: ("src",),
    aten.slice_scatter.default: ("src",),
    aten.diagonal_scatter.default: ("src",),
    aten.as_strided_scatter.default: ("src",),
    aten.index_add.default: ("alpha",),
    aten.addcmul.default: ("self", "value"),
}
"""Operator, which gives a new tensor -> arguments that it brings to its result's dtype.

Among integers, the fraction of a number is lost.
"""


def in_operators_dtypes(
    op: OpOverload, args: Args, kwargs: Kwargs, cast: Callable[[Argument, torch.dtype], Argument]
) -> tuple[Args, Kwargs]:
    """`args` and `kwargs` of a call of `op`; `cast` gives a tensor of the graph in another dtype.

    Raises torch's RuntimeError for a number that the dtype cannot hold.
    """
    names = CONVERTED.get(op)
    dtypes = result_dtypes(op, args, kwargs) if names else None
    if not names or not dtypes:
        return args, kwargs
    (dtype,) = dtypes

    def converted(name: str, value: Argument) -> Argument:
        if name not in names:
            return value
        return cast(value, dtype) if isinstance(value, Node) else _number(value, dtype)

    positional = [argument.name for argument in op._schema.arguments]
    return (
        tuple(converted(name, value) for name, value in zip(positional, args, strict=False)),
        {name: converted(name, value) for name, value in kwargs.items()},
    )


def _number(number: Argument, dtype: torch.dtype) -> Argument:
    if not isinstance(number, (int, float)) or dtype.is_floating_point or dtype.is_complex:
        return number
    return torch.full((), number, dtype=dtype).item()
