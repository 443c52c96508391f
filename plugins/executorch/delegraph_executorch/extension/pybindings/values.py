"""What ExecuTorch's bindings are given and give back <-> what a `delegraph.runtime.Method` takes and gives."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from delegraph.runtime import to_torch

__all__ = ["flat_inputs", "torch_outputs"]


def flat_inputs(inputs: Any) -> Sequence[Any]:
    """A sequence of inputs; a single tensor or array is the only one."""
    return inputs if isinstance(inputs, list | tuple) or not hasattr(inputs, "shape") else (inputs,)


def torch_outputs(outputs: list[Any], inputs: Sequence[Any]) -> list[Any]:
    """Outputs as torch tensors, which ExecuTorch always gives; as arrays where the caller works without torch.

    That is where an input is a NumPy array, or nobody has imported torch into this process.
    """
    torch = sys.modules.get("torch")
    is_numpy = any(hasattr(value, "__array_interface__") and not _is_torch(value) for value in inputs)
    return outputs if torch is None or is_numpy else to_torch(outputs)


def _is_torch(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)
