"""Module -> lowered as one delegate -> loaded and run: what the tests of this distribution share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

import delegraph
from delegraph_openvino.blob import BACKEND_ID

OPTIONS: Mapping[str, Any] = {"num_threads": 1}
"""What tests load with: two cores are shared with the other test process."""


class Function(torch.nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def as_module(function: Callable[..., Any]) -> torch.nn.Module:
    """`function` itself if it is a module."""
    return (function if isinstance(function, torch.nn.Module) else Function(function)).eval()


def lower(
    function: Callable[..., Any], args: Sequence[torch.Tensor], dynamic_shapes: Any = None, backend: str = "openvino"
) -> Any:
    """Lowered, views alone as well."""
    if dynamic_shapes is not None and not isinstance(function, torch.nn.Module):
        dynamic_shapes = (dynamic_shapes,)
    name = f"{backend}{{allow_trivial=true}}" if backend == "openvino" else backend
    return delegraph.lower(as_module(function), tuple(args), dynamic_shapes=dynamic_shapes, backends=[name])


def load(lowered: Any, **options: Any) -> Any:
    """Loaded with one thread."""
    return delegraph.load(bytes(lowered), backend_options={BACKEND_ID: {**OPTIONS, **options}})


def declined(lowered: Any) -> dict[str, str]:
    """Node -> reason, for all that the backend left, but for sizes: those are computed outside on purpose."""
    reasons = {left.name: left.reasons["openvino"] for left in lowered.report.methods["forward"].leftovers}
    return {name: reason for name, reason in reasons.items() if not reason.startswith("computes a size")}


def check(
    function: Callable[..., Any],
    *args: torch.Tensor,
    dynamic_shapes: Any = None,
    others: Sequence[tuple[torch.Tensor, ...]] = (),
    rtol: float = 1e-5,
    atol: float = 1e-5,
) -> None:
    """`function` is one delegate, and gives what eager gives; dtypes and shapes as well."""
    lowered = lower(function, args, dynamic_shapes)
    assert declined(lowered) == {}
    assert len(lowered.report.methods["forward"].delegates) == 1
    program = load(lowered)
    for given in (args, *others):
        compare(program(*(arg.numpy() for arg in given)), as_module(function)(*given), rtol, atol)


def compare(got: Any, wanted: Any, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Both are the same structure of equal tensors."""
    results, expected = pytree.tree_leaves(got), pytree.tree_leaves(wanted)
    assert len(results) == len(expected)
    for result, tensor in zip(results, expected, strict=True):
        array = tensor.detach().numpy()
        assert (result.dtype, result.shape) == (array.dtype, array.shape)
        np.testing.assert_allclose(result, array, rtol=rtol, atol=atol)
