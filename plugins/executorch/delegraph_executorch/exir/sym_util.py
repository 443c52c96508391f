"""Symbolic sizes -> numbers (ExecuTorch `exir/sym_util.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._sympy.value_ranges import bound_sympy

__all__ = ["collect_free_symbols", "eval_expr", "eval_shape", "eval_shape_upper_bound", "eval_upper_bound"]


def eval_expr(symint: int | torch.SymInt) -> int | None:
    """The size in the example that the model was exported with; None for one that depends on data."""
    if isinstance(symint, int):
        return symint
    node: Any = symint.node
    try:
        hint = node.hint
    except GuardOnDataDependentSymNode:
        return None
    return None if hint is None else int(hint)


def eval_upper_bound(maybe_symint: int | torch.SymInt) -> int:
    """The largest value that the size can take, or, without an upper bound, that in the example.

    Raises RuntimeError where there is neither.
    """
    if isinstance(maybe_symint, int):
        return maybe_symint
    node: Any = maybe_symint.node
    upper = bound_sympy(node.expr, node.shape_env.var_to_range).upper
    if isinstance(upper, sympy.Integer):
        return int(upper)
    if (hint := eval_expr(maybe_symint)) is not None:
        return hint
    raise RuntimeError(
        f"{node.expr} has no upper bound ({upper}) and depends on data; state one in the model:"
        f" torch._check({node.expr} <= 1024)"
    )


def eval_shape(shape: Iterable[int | torch.SymInt]) -> list[int | None]:
    """`eval_expr` of every size."""
    return [eval_expr(size) for size in shape]


def eval_shape_upper_bound(shape: Iterable[int | torch.SymInt]) -> list[int]:
    """`eval_upper_bound` of every size."""
    return [eval_upper_bound(size) for size in shape]


def collect_free_symbols(shape: Iterable[int | torch.SymInt]) -> set[sympy.Symbol]:
    """The symbols that the sizes are made of."""
    symbolic: list[Any] = [size for size in shape if isinstance(size, torch.SymInt)]
    return {symbol for size in symbolic for symbol in size.node.expr.free_symbols}
