"""`et_copy`: copies between the CPU's memory and a device's.

The names and schemas are those of ExecuTorch's runtime operators (`exir/passes/_device_copy_ops_registry.py`). Where
tensors are torch's, both memories are the CPU's, and a copy is a copy.
"""

from __future__ import annotations

from typing import Final

import torch

from delegraph.aot.edge.shared_operators import register_operators

__all__ = ["D2H_COPY", "H2D_COPY"]


def _copied(self: torch.Tensor) -> torch.Tensor:
    return self.clone()


def _copied_into(self: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return out.copy_(self)


_NAMES: Final = ("_h2d_copy", "_d2h_copy")

_LIBRARIES: Final = register_operators(
    [
        *(f"{name}(Tensor self) -> Tensor" for name in _NAMES),
        *(f"{name}.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)" for name in _NAMES),
    ],
    dict.fromkeys(_NAMES, _copied) | {f"{name}.out": _copied_into for name in _NAMES},
    "et_copy",
    "executorch.exir.passes._device_copy_ops_registry",
)

H2D_COPY: Final = torch.ops.et_copy._h2d_copy.default
"""From the CPU's memory ("host") to the device's."""

D2H_COPY: Final = torch.ops.et_copy._d2h_copy.default
"""From the device's memory to the CPU's."""
