"""The operators of a call -> estimates of their cycles on the NPU, and on a host instead: do they pay?

The NPU's cycles are those of its own model, for commands that are not cut into tiles and read SRAM if their operands
fit there; moves are views where possible. The host's follow from the multiply-adds, reads and writes of its kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from delegraph_machines.memories import transfer_cycles
from delegraph_machines.region_pool import RegionPool
from delegraph_npu.aot import ir
from delegraph_npu.aot.instructions import Constants, Tile, instructions
from delegraph_npu.aot.storage import lay_out
from delegraph_npu.aot.weight_blocks import WeightBlocks
from delegraph_npu.blob import BACKEND_ID
from delegraph_npu.commands import Block, Dtype, FeatureMap, Region, dense
from delegraph_npu.cost import cost_of
from delegraph_npu.device import Device

__all__ = ["LAUNCH", "Work", "work_of"]

LAUNCH: Final = 1000
"""Cycles of the host to start the NPU and to be told that it is done: two interrupts and a driver's queue."""

HOST_MULTIPLY_ADDS: Final = 2
"""Multiply-adds of int8 in a cycle: CMSIS-NN reaches this on a Cortex-M with the DSP extension, whose SMLAD does
two."""

HOST_ACCESS: Final = 2
"""Cycles of the host for an element that is read or written: a load or a store, and the loop around it."""


@dataclass(frozen=True, slots=True)
class Work:
    """Cycles of the NPU's clock: for its commands, for the host's kernels instead, and for loading the weights."""

    commands: float
    kernels: float
    weights: float

    @property
    def npu(self) -> float:
        """The NPU's cycles, with its call: weights are loaded beside the commands."""
        return LAUNCH + max(self.commands, self.weights)

    @property
    def host(self) -> float:
        """The host's cycles, which include the loading of weights."""
        return self.kernels + self.weights


def work_of(operators: Sequence[ir.Operator], device: Device) -> Work:
    """The work of the operators that calls become (`alone`)."""
    constants = Constants(WeightBlocks(device.array.columns, compressed=False), RegionPool(BACKEND_ID))
    source, target = (device.memory(region).memory() for region in (Region.WEIGHTS, Region.SRAM))
    tiles = [_whole(o, device, constants) for o in lay_out(ir.Graph((), tuple(operators), ())).graph.operators]
    return Work(
        sum(cost_of(command, device).cycles for tile in tiles for command in instructions(tile.operator, tile)),
        sum(map(_host_cycles, operators)),
        sum(transfer_cycles(source, target, o.weight.nbytes) for o in operators if isinstance(o, ir.Convolution)),
    )


# ---- the NPU --------------------------------------------------------------------------------------------------------


def _whole(operator: ir.Operator, device: Device, constants: Constants) -> Tile:
    """All of an operator, as one tile."""
    whole = operator.output.whole
    parts = [operator.reads(whole, number) for number in range(len(operator.inputs))]
    inputs = [_map(tensor, device) for tensor in operator.inputs]
    table = Block(Region.SRAM, 0, 256)
    return Tile(operator, whole, inputs, parts, _map(operator.output, device), 0, table, constants, 0)


def _map(tensor: ir.Tensor, device: Device) -> FeatureMap:
    region = Region.SRAM if tensor.nbytes <= device.sram_nbytes else Region.DRAM
    return dense(region, 0, tensor.shape, Dtype[tensor.dtype.name.upper()])


# ---- the host -------------------------------------------------------------------------------------------------------


def _host_cycles(operator: ir.Operator) -> float:
    written = 0 if isinstance(operator, ir.Reshape) else prod(operator.output.shape)
    return _products(operator) / HOST_MULTIPLY_ADDS + HOST_ACCESS * (_read(operator) + written)


def _products(operator: ir.Operator) -> int:
    """Multiply-adds of sums that share operands with other sums, so that no operand is read for one sum alone."""
    shared = isinstance(operator, ir.Matmul) or (isinstance(operator, ir.Convolution) and not operator.depthwise)
    return operator.multiply_adds if shared else 0  # type: ignore[attr-defined]  # both have them


def _read(operator: ir.Operator) -> int:
    """The number of elements that the host's kernel reads, without those of `_products`."""
    elements = prod(operator.output.shape)
    match operator:
        case ir.Matmul() | ir.Reshape():
            return 0
        case ir.Convolution():
            return operator.multiply_adds if operator.depthwise else 0
        case ir.Pool():
            return elements * prod(operator.window.kernel)
        case ir.Reduce() | ir.Pad():
            return prod(operator.inputs[0].shape)
        case ir.Resize():
            return elements * (4 if operator.kind == "bilinear" else 1)
        case ir.Binary():  # a single number stays in a register
            return elements * sum(prod(tensor.shape) > 1 for tensor in operator.inputs)
        case _:
            return elements
