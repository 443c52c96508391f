"""torch dtypes <-> ONNX element types, and the sets of dtypes that the converters admit."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir
import torch

__all__ = ["ALL", "FLOATS", "INDICES", "NUMBERS", "ONNX_TYPES", "REALS", "onnx_type"]

ONNX_TYPES: Final[dict[torch.dtype, ir.DataType]] = {
    torch.float32: ir.DataType.FLOAT,
    torch.float64: ir.DataType.DOUBLE,
    torch.float16: ir.DataType.FLOAT16,
    torch.int64: ir.DataType.INT64,
    torch.int32: ir.DataType.INT32,
    torch.int16: ir.DataType.INT16,
    torch.int8: ir.DataType.INT8,
    torch.uint8: ir.DataType.UINT8,
    torch.bool: ir.DataType.BOOL,
}

# What onnxruntime's CPU kernels take; float16 runs natively where there is a kernel, else between casts to float32
# that onnxruntime itself puts in.
FLOATS: Final = frozenset({torch.float32, torch.float16})
REALS: Final = FLOATS | {torch.float64}
INDICES: Final = frozenset({torch.int64, torch.int32})
NUMBERS: Final = REALS | INDICES
ALL: Final = frozenset(ONNX_TYPES)


def onnx_type(dtype: torch.dtype) -> ir.DataType:
    """The ONNX element type of `dtype`, one of `ONNX_TYPES`."""
    return ONNX_TYPES[dtype]
