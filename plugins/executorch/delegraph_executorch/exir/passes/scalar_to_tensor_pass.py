"""GraphModule -> the same, numbers where the schema has a tensor as constant tensors of the module."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from delegraph_executorch.exir.pass_base import ExportPass, NodeMetadata, PassResult, ProxyValue, map_args

__all__ = ["ScalarToTensorPass"]


class ScalarToTensorPass(ExportPass):
    """Makes numbers tensors. `to_edge` has done it already; this is for graphs that a pass has made."""

    _modified = False

    def call(self, graph_module: GraphModule) -> PassResult:
        """The graph traced anew; `modified` tells whether there was such a number."""
        self._modified = False
        return PassResult(super().call(graph_module).graph_module, self._modified)

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call on tensors."""

        def tensor(value: Any, schema: Any) -> Any:
            if not isinstance(value, (bool, int, float)) or not isinstance(schema.type, torch.TensorType):
                return value
            self._modified = True
            with _disable_current_modes():  # a constant, not a fake tensor
                return torch.tensor(value)

        return super().call_operator(op, *map_args(op, tensor, args, kwargs), meta)
