"""Kernels in NumPy for core ATen and what ExecuTorch registers: `delegraph_portable:library`. One room per family;
`operators.py` says which module has which kernels, and the library imports it when one of them is looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .library import library

if TYPE_CHECKING:
    from .creation.random import manual_seed

__all__ = ["library", "manual_seed"]


def __getattr__(name: str) -> object:
    if name == "manual_seed":
        from .creation.random import manual_seed

        return manual_seed
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
