"""GraphModule -> the same, calls of constants alone done now: their results are attributes of the module."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.ao.quantization.fx._decomposed import quantized_decomposed_lib

from delegraph_executorch.exir.common import no_dispatch
from delegraph_executorch.exir.operator.util import _QUANT_PRIMITIVES
from delegraph_executorch.exir.pass_base import ExportPass, NodeMetadata

__all__ = ["ConstPropPass", "quantized_decomposed_lib"]

_CONSTANTS = (float, int, bool, str, torch.Tensor, torch.device, torch.dtype, torch.layout)


class ConstPropPass(ExportPass):
    """Folds what depends on constants of the graph; with `propogate_quant`, quantize and dequantize calls alone."""

    def __init__(self, propogate_quant: bool = False) -> None:
        super().__init__()
        self.propogate_quant = propogate_quant

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> Any:
        """The result itself where all arguments are constants: it becomes an argument of what follows."""
        if (op in _QUANT_PRIMITIVES) is not self.propogate_quant or not _is_const([args, kwargs]):
            return super().call_operator(op, args, kwargs, meta)
        with no_dispatch():
            return op(*args, **kwargs)


def _is_const(argument: Any) -> bool:
    if isinstance(argument, (tuple, list)):
        return all(map(_is_const, argument))
    if isinstance(argument, dict):
        return all(map(_is_const, argument.values()))
    return isinstance(argument, _CONSTANTS) and not isinstance(argument, FakeTensor)
