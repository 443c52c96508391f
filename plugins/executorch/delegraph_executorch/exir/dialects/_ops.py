"""`ops`: the operators of all dialects, and patterns that stand for operators (`exir/dialects/_ops.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import torch
from torch.library import Library

from delegraph.aot import exir_ops as ops

__all__ = ["bind_pattern_to_op", "ops"]

_Ops: Final = type(ops)
_DialectNamespace: Final = type(ops.edge)

_Pattern = TypeVar("_Pattern", bound=Callable[..., Any])

_KERNEL_KEYS: Final = (
    torch._C.DispatchKey.CompositeExplicitAutograd,
    torch._C.DispatchKey.CompositeImplicitAutograd,
    torch._C.DispatchKey.Meta,
)


def bind_pattern_to_op(library: Library, schema_or_name: str) -> Callable[[_Pattern], _Pattern]:
    """The decorated function is what an operator of `library` stands for.

    `schema_or_name` is the schema of an operator that is defined by it, or the name of one that is there. The function
    becomes its kernel where it has none, so that a graph that calls it can be traced again into the pattern. It is the
    operator's `_equivalent_callable`.
    """
    text = schema_or_name.rpartition("::")[2]
    name = text.partition("(")[0]

    def bind(pattern: _Pattern) -> _Pattern:
        if "(" in text:
            library.define(text)
        packet, _, overload = name.partition(".")
        overload = overload or "default"
        op = getattr(getattr(getattr(torch.ops, library.ns), packet), overload)
        if not any(op.has_kernel_for_dispatch_key(key) for key in _KERNEL_KEYS):
            library.impl(name, pattern, "CompositeImplicitAutograd")
        getattr(getattr(getattr(ops.backend, library.ns), packet), overload)._equivalent_callable = pattern
        return pattern

    return bind
