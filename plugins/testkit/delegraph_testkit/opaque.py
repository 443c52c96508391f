"""An operator that nobody can take, `delegraph_testkit::opaque`, so that graphs are cut where the kit wants it.

`opaque_operator` says it to torch; `kernel_order` has its kernel, and those of all nodes that a plug-in leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from delegraph.interfaces import KernelContext, KernelLibrary
from delegraph_testkit.arrays import Array

__all__ = ["kernel_order", "opaque_operator"]

_library = KernelLibrary("delegraph_testkit")


@_library.kernel("delegraph_testkit::opaque.out")
def opaque_out(context: KernelContext, x: Array, out: Array) -> None:
    """`out = 2 x`."""
    np.multiply(x, 2, out=context.resize(out, x.shape))


def kernel_order(first: Sequence[str] = ()) -> tuple[Any, ...]:
    """The kernels for all that a plug-in leaves: the kit's operator, and the portable ones; `first` go before them."""
    return (*first, _library, *(name for name in ("portable",) if name not in first))


@cache
def opaque_operator() -> Any:
    """The operator, registered once."""
    import torch

    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    operator = torch.library.custom_op(
        "delegraph_testkit::opaque", twice, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    operator.register_fake(torch.empty_like)
    return torch.ops.delegraph_testkit.opaque
