"""The kernel libraries that run a program without torch, as one: what the tests compare with torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import delegraph_portable
import delegraph_special
from delegraph.interfaces import KernelLibrary
from delegraph.runtime.resolution.kernels import KernelRegistry

__all__ = ["LIBRARY_OF", "REGISTRY"]

_LIBRARIES: Final = (delegraph_portable.library, delegraph_special.library)

REGISTRY: Final = KernelRegistry(_LIBRARIES)
"""All kernels."""

LIBRARY_OF: Final[Mapping[str, KernelLibrary]] = {
    operator: library for library in _LIBRARIES for operator in sorted(library.operator_names())
}
"""Operator -> the library that has its kernel."""
