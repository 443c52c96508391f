"""Operators that ExecuTorch's tests load from libraries of its own build: defined here, by their schemas alone.

my_awesome_3rdparty_ns::…                                      exir/tests/test_lib.cpp
//executorch/kernels/quantized:custom_ops_generated_lib        what `delegraph_executorch.kernels.quantized` defines
"""

from __future__ import annotations

import importlib
from typing import Any, Final

import torch

__all__ = ["register"]

SCHEMAS: Final = (
    "my_awesome_op.func(Tensor input) -> Tensor",
    "my_awesome_op.out(Tensor input, *, Tensor(a!) out) -> Tensor(a!)",
    "schema_mismatch_op(Tensor input, Scalar scalar=1) -> Tensor",
    "schema_mismatch_op.out(Tensor input, Scalar scalar, *, Tensor(a!) out) -> Tensor(a!)",
    "awesome_op(Tensor input) -> (Tensor, Tensor)",
    "awesome_op.out(Tensor input, Tensor(a!) out1, Tensor(b!) out2) -> (Tensor(a!), Tensor(b!))",
)
LIBRARY: Final = torch.library.Library("my_awesome_3rdparty_ns", "FRAGMENT")
QUANTIZED: Final = "//executorch/kernels/quantized:custom_ops_generated_lib"


def register() -> None:
    """Define them in this process."""
    for schema in SCHEMAS:
        LIBRARY.define(schema)
    load = torch.ops.load_library

    def load_library(path: Any) -> None:
        if path == QUANTIZED:
            importlib.import_module("delegraph_executorch.kernels.quantized")
        else:
            load(path)

    torch.ops.load_library = load_library  # type: ignore[method-assign]
