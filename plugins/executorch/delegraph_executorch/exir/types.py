"""ExecuTorch's `executorch.exir.types`: specs of values, as type names."""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["LeafValueSpec", "ScalarSpec", "ValueSpec"]

ScalarSpec: TypeAlias = int | float
LeafValueSpec: TypeAlias = Any
"""A `TensorSpec` or a number."""
ValueSpec: TypeAlias = Any
"""A `LeafValueSpec`, or a list or tuple of such."""
