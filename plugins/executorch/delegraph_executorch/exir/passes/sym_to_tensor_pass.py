"""GraphModule -> the same, symbolic numbers where the schema has a tensor made tensors by `scalar_tensor`."""

from __future__ import annotations

from typing import Any, Final

import torch

from delegraph_executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue, map_args

__all__ = ["SymToTensorPass"]

_DTYPES: Final = {torch.SymInt: torch.int32, torch.SymFloat: torch.float32, torch.SymBool: torch.bool}


class SymToTensorPass(ExportPass):
    """Puts `scalar_tensor` before symbolic numbers that stand for tensors."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call on tensors."""

        def tensor(value: Any, schema: Any) -> Any:
            dtype = _DTYPES.get(type(value.data)) if isinstance(value, ProxyValue) else None
            if dtype is None or not isinstance(schema.type, torch.TensorType):
                return value
            return super(SymToTensorPass, self).call_operator(
                torch.ops.aten.scalar_tensor.default, (value,), {"dtype": dtype}, meta
            )

        return super().call_operator(op, *map_args(op, tensor, args, kwargs), meta)
