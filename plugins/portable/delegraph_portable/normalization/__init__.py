"""Normalization over batches, layers and groups.

forward.py    `_native_batch_norm_legit`, `native_layer_norm`, `native_group_norm` …
backward.py   their gradients
"""
