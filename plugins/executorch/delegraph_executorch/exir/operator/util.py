"""ExecuTorch's `executorch.exir.operator.util`: a schema -> its out variant's, and the operators of quantization."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.ao.quantization.fx._decomposed import quantized_decomposed_lib  # noqa: F401 - registers the operators
from torchgen.model import FunctionSchema, SchemaKind
from torchgen.native_function_generation import (
    functional_to_out_signature,
    mutable_to_out_signature,
    self_to_out_signature,
)

__all__ = ["gen_out_variant_schema"]

_quantized = torch.ops.quantized_decomposed

_DEQUANT_OPS: Final[tuple[Any, ...]] = (
    _quantized.dequantize_per_tensor.default,
    _quantized.dequantize_per_channel.default,
)
_QUANT_OPS: Final[tuple[Any, ...]] = (
    _quantized.quantize_per_tensor.default,
    _quantized.quantize_per_channel.default,
)
_QUANT_PRIMITIVES: Final[list[Any]] = [
    *_DEQUANT_OPS,
    *_QUANT_OPS,
    _quantized.dequantize_per_tensor.tensor,
    _quantized.quantize_per_tensor.tensor,
    _quantized.convert_element_type.no_fuse,
    _quantized.choose_qparams.tensor,
]


def gen_out_variant_schema(func_op_schema: str) -> str:
    """The schema of the overload that writes what `func_op_schema` gives into tensors it is handed (torchgen's)."""
    namespace, _, entity = func_op_schema.rpartition("::")
    schema = FunctionSchema.parse(entity)
    made = {
        SchemaKind.inplace: self_to_out_signature,
        SchemaKind.functional: functional_to_out_signature,
        SchemaKind.mutable: mutable_to_out_signature,
    }.get(schema.kind())
    out = schema if made is None else made(schema)
    return f"{namespace}::{out}" if namespace else str(out)
