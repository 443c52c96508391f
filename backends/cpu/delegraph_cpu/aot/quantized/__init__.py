"""Quantized edge nodes -> ONNX on integers: kernels for integers where onnxruntime has them, else float in between.

    table.py        which operators are tried on integers, and the parameters that a result is wanted in
    moves.py        what only moves elements, picks the largest, or limits a range; casts
    convolution.py  convolutions
    transposed.py   transposed convolutions
    products.py     linear layers and matrix products, calibrated or quantized at run time
    by_row.py       linear layers whose rows have scales of their own
    recurrent.py    LSTMs, quantized at run time
    packed.py       linear layers in float whose weights alone are quantized, to 8 or 4 bits
    packed_weights.py   these weights
    embedding.py    rows of quantized tables
    weights.py      the weights and biases that kernels for integers take
    pointwise.py    sums, products, activations, concatenations
    averages.py     averages, of windows or of everything

Every converted node has its value in float as before; what nothing needs of it is left out of the graph. A node whose
value is on a grid has integers as well, and the converters here go from integers to integers.
"""

from delegraph_cpu.aot.quantized import (  # noqa: F401
    averages,
    convolution,
    embedding,
    moves,
    packed,
    pointwise,
    products,
    recurrent,
)
from delegraph_cpu.aot.quantized.table import on_integers, wanted_grids

__all__ = ["on_integers", "wanted_grids"]
