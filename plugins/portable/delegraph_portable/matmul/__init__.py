"""Matrix products, and attention, which is made of them.

products.py    `mm`, `bmm`, `addmm`, `baddbmm`, `addmv`, `_int_mm`, `linear`
grouped.py     the product of a mixture of experts
attention.py   `_native_multi_head_attention`, `_transformer_encoder_layer_fwd`
"""
