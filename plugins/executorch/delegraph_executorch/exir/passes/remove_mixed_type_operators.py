"""GraphModule -> the same, operands of arithmetic cast to one dtype before it."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from delegraph_executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue, map_args

__all__ = ["RemoveMixedTypeOperators"]

aten = torch.ops.aten
_DEFAULT: Final = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
_TO_FLOAT: Final = ELEMENTWISE_TYPE_PROMOTION_KIND.INT_TO_FLOAT

_PROMOTION: Final = {
    aten.add.Tensor: _DEFAULT,
    aten.sub.Tensor: _DEFAULT,
    aten.mul.Tensor: _DEFAULT,
    aten.minimum.default: _DEFAULT,
    aten.div.Tensor: _TO_FLOAT,
    aten.div.Tensor_mode: _DEFAULT,
}
"""Operators of several operands, and what torch computes them in."""


class RemoveMixedTypeOperators(ExportPass):
    """Puts a cast before each operand of arithmetic whose dtype is not the one that torch computes in."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call on operands of one dtype."""
        kind = _PROMOTION.get(op)
        if kind is None or len(args) < 2:
            return super().call_operator(op, args, kwargs, meta)
        if op == aten.div.Tensor_mode and kwargs.get("rounding_mode") is None:
            kind = _TO_FLOAT
        dtype = elementwise_dtypes(*map(_operand, args), type_promotion_kind=kind)[1]

        def cast(value: Any, schema: Any) -> Any:
            tensor = value.data if isinstance(value, ProxyValue) else value
            if not isinstance(schema.type, torch.TensorType) or getattr(tensor, "dtype", dtype) == dtype:
                return value
            return super(RemoveMixedTypeOperators, self).call_operator(
                aten._to_copy.default, (value,), {"dtype": dtype}, meta
            )

        return super().call_operator(op, *map_args(op, cast, args, kwargs), meta)


def _operand(argument: Any) -> Any:
    """A tensor or number that has the dtype of `argument`."""
    data = argument.data if isinstance(argument, ProxyValue) else argument
    for symbolic, example in ((torch.SymInt, 0), (torch.SymFloat, 0.0), (torch.SymBool, False)):
        if isinstance(data, symbolic):
            return torch.tensor(example)
    return data
