"""torch dtypes -> ONNX element types, the dtypes of computation, and the sets of dtypes that the converters admit."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir
import torch

__all__ = [
    "ALL",
    "COMPLEX",
    "FLOATS",
    "HALVES",
    "INDICES",
    "INT64_MAX",
    "NARROW",
    "NUMBERS",
    "NUMBERS_OR_BOOL",
    "ONNX_TYPES",
    "REALS",
    "computed_in",
]

ONNX_TYPES: Final[dict[torch.dtype, ir.DataType]] = {
    torch.float32: ir.DataType.FLOAT,
    torch.float64: ir.DataType.DOUBLE,
    torch.float16: ir.DataType.FLOAT16,
    torch.bfloat16: ir.DataType.BFLOAT16,
    torch.int64: ir.DataType.INT64,
    torch.int32: ir.DataType.INT32,
    torch.int16: ir.DataType.INT16,
    torch.int8: ir.DataType.INT8,
    torch.uint8: ir.DataType.UINT8,
    torch.bool: ir.DataType.BOOL,
}
"""The dtypes of the inputs and outputs of a delegate."""

HALVES: Final = frozenset({torch.float16, torch.bfloat16})
"""Float32 within a delegate, rounded where they leave it: onnxruntime has no kernels for them on most CPUs, and casts
around each operator cost more than the operators. The results are torch's without the rounding between operators."""

COMPLEX: Final = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""Pairs of these dtypes within a delegate, and at its border."""

NARROW: Final = frozenset({torch.int8, torch.int16, torch.uint8})
"""Moved as they are; an operator that computes with them does so in int32, and wraps the result as torch does."""

FLOATS: Final = frozenset({torch.float32})
REALS: Final = FLOATS | {torch.float64}
INDICES: Final = frozenset({torch.int64, torch.int32})
NUMBERS: Final = REALS | INDICES
NUMBERS_OR_BOOL: Final = NUMBERS | {torch.bool}
ALL: Final = frozenset(ONNX_TYPES) - HALVES

INT64_MAX: Final = torch.iinfo(torch.int64).max
"""The end of a Slice that goes on to the end of the dim."""


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """The dtype of tensors of `dtype` within a delegate."""
    return torch.float32 if dtype in HALVES else COMPLEX.get(dtype, dtype)
