"""`ir.Graph` -> fewer operators: tables, limits and padding become part of the operator before or behind them.

convolution -> table           a convolution with a table in its output stage
convolution -> copy [0, 127]   a convolution that limits
pad -> convolution             a convolution with more padding
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from delegraph_npu.aot import ir
from delegraph_npu.aot.operators.layers import check_window

__all__ = ["fuse"]

COMPUTING: Final = (ir.Convolution, ir.Matmul, ir.Pool, ir.Binary, ir.Copy, ir.Reduce, ir.Resize, ir.Table)
"""Operators whose results go through the output stage."""


def fuse(graph: ir.Graph) -> ir.Graph:
    """Fuse each operator into the one before it, or the one before into it, as long as any can be fused."""
    outputs = {laid.tensor for laid in graph.outputs}
    operators: list[ir.Operator] = []
    maker: dict[ir.Tensor, int] = {}
    uses: dict[ir.Tensor, int] = {tensor: len(readers) for tensor, readers in graph.readers().items()}
    for operator in graph.operators:
        fused = operator
        place = maker.get(operator.inputs[0])
        if place is not None and uses[operator.inputs[0]] == 1 and operator.inputs[0] not in outputs:
            together = _fused(operators[place], operator)
            if together is not None:
                fused = together
                if together.inputs == operators[place].inputs:  # in the place of the first one
                    operators[place] = together
                    maker[together.output] = place
                    continue
        maker[fused.output] = len(operators)
        operators.append(fused)
    return replace(graph, operators=_needed(operators, outputs))


def _fused(first: ir.Operator, second: ir.Operator) -> ir.Operator | None:
    for rule in RULES:
        fused = rule(first, second)
        if fused is not None:
            return replace(fused, debug_handles=tuple(dict.fromkeys((*first.debug_handles, *second.debug_handles))))
    return None


def _table_behind(first: ir.Operator, second: ir.Operator) -> ir.Operator | None:
    if not isinstance(second, ir.Table) or not isinstance(first, COMPUTING) or first.table is not None:
        return None
    if isinstance(first, ir.Table) or first.output.dtype != np.int8:
        return None
    entries = np.clip(second.entries, second.low, second.high).astype(np.int8)
    return replace(first, output=second.output, table=entries, before_table=first.output)


def _limits_behind(first: ir.Operator, second: ir.Operator) -> ir.Operator | None:
    if not isinstance(second, ir.Copy) or not isinstance(first, COMPUTING) or second.table is not None:
        return None
    if first.table is not None or not first.output.same_grid(second.output):
        return None
    low, high = max(first.low, second.low), min(first.high, second.high)
    return replace(first, output=second.output, low=min(low, second.high), high=max(high, second.low))


def _padding_before(first: ir.Operator, second: ir.Operator) -> ir.Operator | None:
    if not isinstance(first, ir.Pad) or not isinstance(second, ir.Convolution):
        return None
    source, padded = first.inputs[0], first.output
    behind = [padded.shape[i] - source.shape[i] - first.before[i] for i in range(4)]
    if first.before[0] or first.before[3] or behind[0] or behind[3] or first.value != source.zero_point:
        return None
    top, left, bottom, right = second.window.padding
    more = (top + first.before[1], left + first.before[2], bottom + behind[1], right + behind[2])
    window = replace(second.window, padding=more)
    if second.window.upscale != (1, 1) or check_window(window) is not None:
        return None
    return replace(second, inputs=(source,), window=window)


RULES: Final[Sequence[Callable[[ir.Operator, ir.Operator], ir.Operator | None]]] = (
    _table_behind,
    _limits_behind,
    _padding_before,
)


def _needed(operators: Sequence[ir.Operator], outputs: set[ir.Tensor]) -> tuple[ir.Operator, ...]:
    """The operators whose results somebody reads."""
    needed = set(outputs)
    kept: list[ir.Operator] = []
    for operator in reversed(operators):
        if operator.output in needed:
            needed.update(operator.inputs)
            kept.append(operator)
    return tuple(reversed(kept))
