"""The table of converters: which operators become ONNX, how, and when. One module per family."""

from delegraph_onnx.converters import (  # noqa: F401
    antialiasing,
    attention,
    bits,
    complex_numbers,
    control_flow,
    convolution,
    counting,
    creation,
    distances,
    division,
    embedding_bag,
    experts,
    fourier,
    indexing,
    language_models,
    matmul,
    normalization,
    numbers,
    pointwise,
    pooling,
    powers,
    quantization,
    recurrent,
    reductions,
    resampling,
    sampling,
    scatter,
    shapes,
    sigmoid,
)
from delegraph_onnx.converters.table import TABLE, TargetTable

__all__ = ["TABLE", "TargetTable"]
