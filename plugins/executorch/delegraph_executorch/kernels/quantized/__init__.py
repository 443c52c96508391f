"""ExecuTorch's `executorch.kernels.quantized`: importing it makes the quantized operators known.

ExecuTorch loads a library here that registers their out variants with torch. Lowering works those out from the
operators' schemas; what is left to do is to define these in torch, and to look whether a kernel library has kernels.
"""

import logging

import torch.ao.quantization.fx._decomposed  # noqa: F401  # defines quantized_decomposed::*

from delegraph.runtime import Runtime

_OPERATORS = frozenset(
    f"quantized_decomposed::{name}"
    for name in (
        "quantize_per_tensor.out",
        "quantize_per_tensor.Tensor_out",
        "quantize_per_channel.out",
        "quantize_per_token.out",
        "dequantize_per_tensor.out",
        "dequantize_per_tensor.Tensor_out",
        "dequantize_per_channel.out",
        "dequantize_per_token.out",
        "choose_qparams.Tensor_out",
        "choose_qparams_per_token_asymmetric.out",
    )
)
"""Those of ExecuTorch `kernels/quantized/quantized.yaml` whose functional form torch defines, but embeddings."""

if _missing := sorted(_OPERATORS - Runtime.get().operator_registry.operator_names):
    logging.getLogger(__name__).warning(
        "no installed kernel library has %s: pip install delegraph-portable to run quantized programs",
        ", ".join(_missing),
    )
