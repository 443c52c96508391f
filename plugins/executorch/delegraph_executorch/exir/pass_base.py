"""ExecuTorch's `executorch.exir.pass_base`: what passes are written with."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch.fx import GraphModule

from delegraph.aot import (
    PROTECTED_KEYS,
    EdgeOpOverload,
    ExportedProgramPassBase,
    ExportedProgramPassResult,
    ExportPass,
    NodeMetadata,
    PassBase,
    PassResult,
    ProxyValue,
)
from delegraph.errors import LoweringError as ExportPassBaseError

__all__ = [
    "PROTECTED_KEYS",
    "ArgSchema",
    "Argument",
    "EdgeOpOverload",
    "ExportPass",
    "ExportPassBaseError",
    "ExportedProgramPassBase",
    "ExportedProgramPassResult",
    "Fn",
    "NodeMetadata",
    "NodeMetadataValue",
    "PassBase",
    "PassResult",
    "PassType",
    "ProxyValue",
    "Value",
    "map_args",
]

Fn: TypeAlias = Callable[..., Any]
Argument: TypeAlias = Any
Value: TypeAlias = Any
NodeMetadataValue: TypeAlias = Any
PassType: TypeAlias = Callable[[GraphModule], PassResult | None]


@runtime_checkable
class ArgSchema(Protocol):
    """What `map_args` tells of a parameter of an operator."""

    name: str
    kwarg_only: bool
    type: Any


def map_args(
    op: torch._ops.OpOverload, fn: Fn, args: tuple[Argument, ...], kwargs: dict[str, Argument]
) -> tuple[tuple[Argument, ...], dict[str, Argument]]:
    """`args` and `kwargs` of a call of `op` with `fn(argument, its schema)` in the place of each argument."""
    positional, named = list(args), dict(kwargs)

    def update(held: MutableMapping[Any, Any] | list[Any], key: Any, schema: Any) -> None:
        held[key] = fn(held[key], schema)

    for position, schema in enumerate(op._schema.arguments):
        if schema.name in named:
            update(named, schema.name, schema)
        elif not schema.kwarg_only and position < len(positional):
            update(positional, position, schema)
    return tuple(positional), named
