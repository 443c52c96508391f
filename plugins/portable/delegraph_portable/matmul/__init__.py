"""Matrix products, and attention, which is made of them.

products.py    `mm`, `bmm`, `addmm`, `baddbmm`, `addmv`, `_int_mm`, `linear`
attention.py   `_native_multi_head_attention`, `_transformer_encoder_layer_fwd`
"""

from . import attention, products  # noqa: F401  importing them registers their kernels
