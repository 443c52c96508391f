"""An activation that only limits -> its limits."""

from __future__ import annotations

import math

from torch.fx import Node

from delegraph.aot.authoring.node_values import operator_name
from delegraph.aot.edge.tensor_operands import lifted_number
from delegraph.aot.graph.schema_binding import named_arguments

__all__ = ["clamp_limits"]


def clamp_limits(node: Node) -> tuple[float, float] | None:
    """The limits between which a call of relu, relu6, hardtanh or clamp keeps its input, infinite where there is none.

    The lower is not above the upper: of two that cross, the upper counts, as in torch. None for another call, and for
    limits that are tensors or NaN.
    """
    name, arguments = operator_name(node).removeprefix("aten::").partition(".")[0], named_arguments(node)
    match name:
        case "relu":
            return 0.0, math.inf
        case "relu6":
            return 0.0, 6.0
        case "hardtanh":
            low, high = arguments["min_val"], arguments["max_val"]
        case "clamp":
            low, high = arguments["min"], arguments["max"]
        case _:
            return None
    limits = _limit(low, -math.inf), _limit(high, math.inf)
    return None if limits[0] is None or limits[1] is None else (min(limits[0], limits[1]), limits[1])


def _limit(value: object, absent: float) -> float | None:
    number = lifted_number(value) if isinstance(value, Node) else value
    if value is None:
        return absent
    return float(number) if isinstance(number, int | float) and not math.isnan(number) else None
