"""Pooling in one to three dims.

forward.py    `avg_pool2d`, `max_pool2d_with_indices` …
adaptive.py   `_adaptive_avg_pool2d`, `adaptive_max_pool2d`, `fractional_max_pool2d` …
backward.py   their gradients
windows.py    what a window sees of a padded tensor
"""
