"""`et_copy`: copies between the CPU's memory and a device's.

The names and schemas are those of ExecuTorch's runtime operators. Where ExecuTorch has been imported into the process
before, its registration is the one that stands.
"""

from __future__ import annotations

from typing import Final

import torch

__all__: list[str] = []


def _copied(self: torch.Tensor) -> torch.Tensor:
    return self.clone()


def _copied_into(self: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return out.copy_(self)


def _register() -> torch.library.Library | None:
    if hasattr(torch.ops.et_copy, "_h2d_copy"):
        return None
    library = torch.library.Library("et_copy", "FRAGMENT")
    for name in ("_h2d_copy", "_d2h_copy"):
        library.define(f"{name}(Tensor self) -> Tensor")
        library.define(f"{name}.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)")
        library.impl(name, _copied, "CompositeExplicitAutograd")
        library.impl(f"{name}.out", _copied_into, "CompositeExplicitAutograd")
    return library


_LIBRARY: Final = _register()  # torch unregisters the operators when the library object goes
