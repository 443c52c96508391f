"""Kernels over whole dims: many elements -> one, or running results.

reduce.py   `sum`, `mean`, `var`, `amax`, `argmax`, `any` …
scans.py    `cumsum`, `cumprod`, `cummax`, `logcumsumexp` …
norms.py    `linalg_vector_norm`, `dist`, `_cdist_forward`, `_pdist_forward`
"""

from . import norms, reduce, scans  # noqa: F401  importing them registers their kernels
