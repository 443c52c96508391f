"""A partition -> about how many cycles it takes on the NPU, and on a host beside it: does it pay?

Coarser than the machine's own model, which counts commands: here there are none yet.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from torch.fx import Node

from delegraph_machines.memories import access_cycles
from delegraph_npu.aot.calls import is_dequantize, is_quantize, operator_name, shape_of
from delegraph_npu.aot.operators import Annotate, row_of
from delegraph_npu.commands import Region
from delegraph_npu.device import Device

__all__ = ["cycles_of"]

LAUNCH: Final = 1000
"""Cycles of the host to start the NPU and to be told that it is done: two interrupts and a driver's queue."""

HOST_MULTIPLY_ADDS: Final = 2
"""Of int8 in a cycle: what CMSIS-NN reaches on a Cortex-M with the DSP extension, whose SMLAD does two."""

HOST_ELEMENT: Final = 4
"""Cycles of the host for an element that is computed or moved: load, compute, store, loop."""


def cycles_of(group: Collection[Node], device: Device) -> tuple[int, int]:
    """On the NPU with its call, and on the host, in cycles of the NPU's clock."""
    inside = set(group)
    heads = [node for node in group if not is_dequantize(node) and (row_of(node) is not None)]
    products = sum(map(_multiply_adds, heads))
    elements = sum(math.prod(shape_of(node)) for node in heads if _computes(node))
    moved = sum(math.prod(shape_of(node)) for node in heads)
    crossing = {source for node in group for source in node.all_input_nodes if source not in inside}
    crossing |= {node for node in group if not inside.issuperset(node.users)}
    nbytes = sum(_nbytes(node) for node in crossing)
    array = device.macs_per_cycle
    stage = 1.0 if device.output_stage is None else device.output_stage.elements_per_cycle
    there = max(products / array, elements / stage) + access_cycles(device.memory(Region.DRAM).memory(), nbytes)
    return round(LAUNCH + there), round(products / HOST_MULTIPLY_ADDS + moved * HOST_ELEMENT)


def _computes(node: Node) -> bool:
    row = row_of(node)
    return row is not None and row.annotate is not Annotate.MOVES and not is_quantize(node)


def _nbytes(node: Node) -> int:
    value = node.meta["val"]
    return int(math.prod(value.shape)) * int(value.dtype.itemsize)


def _multiply_adds(node: Node) -> int:
    name, arguments = operator_name(node), node.args
    if name not in _PRODUCTS:
        return 0
    first = 1 if name == "addmm" else 0  # behind its bias
    left, right = (shape_of(operand) for operand in arguments[first : first + 2])  # type: ignore[arg-type]
    if name in ("matmul", "mm", "bmm", "addmm"):
        return math.prod(left) * right[-1]
    if name == "linear":
        return math.prod(left) * right[0]
    transposed = name.startswith("conv_transpose") or (name == "convolution" and bool(arguments[6]))
    places = left if transposed else shape_of(node)
    return places[0] * math.prod(places[2:]) * math.prod(right)


_PRODUCTS: Final = frozenset(
    [
        "matmul",
        "mm",
        "bmm",
        "addmm",
        "linear",
        "convolution",
        "conv1d",
        "conv2d",
        "conv_transpose1d",
        "conv_transpose2d",
    ]
)
