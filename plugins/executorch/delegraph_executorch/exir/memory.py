"""What stands for memory in a graph of the execution dialect (ExecuTorch `exir/memory.py`)."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

from delegraph_executorch.exir.tensor import eval_shape

__all__ = ["AllocSpec", "TensorAllocSpec", "alloc", "free", "view"]

TensorAllocSpec: TypeAlias = tuple[tuple[int, ...], torch.dtype]
AllocSpec: TypeAlias = TensorAllocSpec | list[TensorAllocSpec]


def alloc(spec: AllocSpec) -> Any:
    """A new tensor of a shape and dtype, or a list of them: what an out variant writes into."""
    if isinstance(spec, list):
        return [alloc(one) for one in spec]
    shape, dtype = spec
    sizes: Any = eval_shape(shape)
    return torch.empty(sizes, dtype=dtype)


def free(spec: Any) -> None:
    """Nothing, when it is run; in a graph, where memory of unknown size is released."""


def view(base: torch.Tensor, size: list[int]) -> torch.Tensor:
    """`base` in another shape, over the same memory."""
    return base.view(size)
