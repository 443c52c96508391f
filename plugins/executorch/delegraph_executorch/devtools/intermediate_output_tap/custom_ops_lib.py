"""Registers `executorch_devtools::tap.Tensor`: what stands behind a tapped value until `strip_taps_` takes its place.

Eagerly it gives what the reducer does, so that an exported program that is tapped gives what the runtime is to give.
"""

from __future__ import annotations

import torch
from torch.library import Library

from delegraph_executorch.devtools.intermediate_output_tap._reducers import get_reducer

__all__ = ["lib"]

lib = Library("executorch_devtools", "FRAGMENT")

if not hasattr(torch.ops.executorch_devtools, "tap"):  # ExecuTorch's own package may be there too, and have done it
    lib.define("tap.Tensor(Tensor x, str reducer_name) -> Tensor")

    @torch.library.impl(lib, "tap.Tensor", "CompositeExplicitAutograd")
    def tap(x: torch.Tensor, reducer_name: str) -> torch.Tensor:
        return get_reducer(reducer_name).eager(x)
