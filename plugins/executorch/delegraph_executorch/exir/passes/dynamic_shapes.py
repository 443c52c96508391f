"""Graphs with symbolic sizes -> the passes that give their specs numbers."""

from __future__ import annotations

from typing import Any

from delegraph.errors import LoweringError
from delegraph_executorch.exir.dynamic_shape import DynamicMemoryPlanningMode
from delegraph_executorch.exir.passes.spec_prop_pass import SpecPropPass
from delegraph_executorch.exir.passes.sym_shape_eval_pass import HintBasedSymShapeEvalPass

__all__ = ["propagate_dynamic_shape"]


def propagate_dynamic_shape(
    dynamic_memory_planning_mode: DynamicMemoryPlanningMode = DynamicMemoryPlanningMode.UPPER_BOUND,
) -> list[Any]:
    """The passes, in order, for a backend that wants sizes as numbers."""
    if dynamic_memory_planning_mode is not DynamicMemoryPlanningMode.UPPER_BOUND:
        raise LoweringError("memory is planned by upper bounds: use DynamicMemoryPlanningMode.UPPER_BOUND")
    return [SpecPropPass(), HintBasedSymShapeEvalPass()]
