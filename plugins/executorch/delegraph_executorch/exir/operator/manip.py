"""ExecuTorch's `executorch.exir.operator.manip`: what is attached to an operator for ExecuTorch's own compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

__all__ = ["ScratchTensorMetadata", "attach_calculate_upper_bound_shape_fn", "attach_get_scratch_metas_fn"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class ScratchTensorMetadata:
    """A tensor that an out variant needs for its own use."""

    dtype: torch.dtype
    shape: torch.Size
    layout: torch.layout = torch.strided
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    is_sparse: bool = False


def attach_get_scratch_metas_fn(out_variant: Any) -> Callable[[F], F]:
    """Set `out_variant.get_scratch_metas`. Kernels here ask their context for scratch memory instead."""

    def attached(function: F) -> F:
        out_variant.get_scratch_metas = function
        return function

    return attached


def attach_calculate_upper_bound_shape_fn(func_op: Any) -> Callable[[F], F]:
    """Set `func_op.calculate_upper_bound_shape`. Bounds here come from the ranges of symbols."""

    def attached(function: F) -> F:
        func_op.calculate_upper_bound_shape = function
        return function

    return attached
