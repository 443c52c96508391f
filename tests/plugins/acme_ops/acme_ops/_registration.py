"""The kernel library 'acme_ops': what ../kernels.yaml lists.

`delegraph codegen` generated this module; to change it, change that file and generate it again.
"""

# isort: skip_file
from __future__ import annotations

from delegraph.interfaces import KernelLibrary

from acme_ops.kernels import (
    scaled,
    scaled_contiguous,
    update_cache,
)

library = KernelLibrary("acme_ops")

library.kernel(
    "acme_ops::scaled.out",
    dtypes=["float32", "float32"],
    dim_orders=[(0, 1), (0, 1)],
)(scaled_contiguous)
library.kernel(
    "acme_ops::scaled.out",
    dtypes=["float64", "float64"],
    dim_orders=[(0, 1), (0, 1)],
)(scaled_contiguous)
library.kernel("acme_ops::scaled.out")(scaled)
library.kernel("acme_ops::update_cache.out")(update_cache)
