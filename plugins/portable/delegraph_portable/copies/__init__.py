"""Kernels that compute nothing: the same elements in another shape, place or dtype.

views.py         views, copied: `view_copy`, `permute_copy`, `slice_copy`, `expand_copy` …
joining.py       `cat`, `stack`, `split_copy`, `unbind_copy`, `repeat`, `roll`, `flip`
conversions.py   `clone`, `_to_copy`, `copy_`, `dim_order_ops::*`
"""
