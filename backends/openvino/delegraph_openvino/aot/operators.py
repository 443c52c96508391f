"""OpenVINO's operations that differ from ONNX's: their names in a graph, and how OpenVINO's reader makes them.

Clamp(x, low, high)              one operation; ONNX's Clip becomes a maximum and a minimum
MatMul(x, w, transpose_b)        ONNX's would have a Transpose between a weight and its product
FakeQuantize(x, …, levels)       OpenVINO's own domain, which its reader knows already
"""

from __future__ import annotations

from typing import Any, Final

from delegraph_openvino.engine import openvino
from delegraph_openvino.engine import opset15 as opset

__all__ = ["DOMAIN", "OPENVINO_DOMAIN", "reading_core"]

DOMAIN: Final = "delegraph.openvino"
OPENVINO_DOMAIN: Final = "org.openvinotoolkit"


def _clamp(node: Any) -> Any:
    return opset.clamp(node.get_input(0), node.get_attribute("low"), node.get_attribute("high")).outputs()


def _matmul(node: Any) -> Any:
    return opset.matmul(node.get_input(0), node.get_input(1), False, True).outputs()


_OPERATIONS: Final = {"Clamp": _clamp, "MatMul": _matmul}


def reading_core() -> openvino.Core:
    """A reader of graphs with operators of `DOMAIN`."""
    from openvino.frontend.onnx import ConversionExtension  # behind `engine`, which leaves its telemetry out

    core = openvino.Core()
    for name, convert in _OPERATIONS.items():
        core.add_extension(ConversionExtension(name, DOMAIN, convert))
    return core
