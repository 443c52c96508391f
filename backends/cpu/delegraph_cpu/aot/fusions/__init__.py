"""Calls of a partition -> one operator of onnxruntime's for several of them.

rms_norm.py, skip_norms.py      root mean square norms, and those of sums
rotary.py, rotary_embedding.py  heads that are rotated by their positions
attention_parts.py, masks.py    attention, as one call or written out, and what its mask says
scaled_products.py              matrix products of what is scaled twice
cached_attention.py             attention to a cache into which rows are put
"""
