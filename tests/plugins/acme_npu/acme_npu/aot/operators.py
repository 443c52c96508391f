"""`acme::double`, as torch knows it: import this module before a model that uses it is exported.

The out variant is what runs on planned memory; its kernel for the device is in `acme_npu.runtime.kernels`.
"""

from __future__ import annotations

import torch

_library = torch.library.Library("acme", "DEF")
_library.define("double(Tensor self) -> Tensor")
_library.define("double.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)")


def _double(self: torch.Tensor) -> torch.Tensor:
    return self * 2


def _double_out(self: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return torch.mul(self, 2, out=out)


_library.impl("double", _double, "CompositeExplicitAutograd")
_library.impl("double.out", _double_out, "CompositeExplicitAutograd")
