"""The operators that a call becomes -> about how many cycles they take on the NPU, and on a host instead: do they pay?

The NPU's are those of its own model, of commands that are not cut into tiles and find what they read in SRAM if it fits
there; what is only moved is a view, where it can be. The host's come from what its kernels multiply, read and write.
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
"""Of int8 in a cycle: what CMSIS-NN reaches on a Cortex-M with the DSP extension, whose SMLAD does two."""

HOST_ACCESS: Final = 2
"""Cycles of the host for an element that is read or written: a load or a store, and the loop around it."""


@dataclass(frozen=True, slots=True)
class Work:
    """Cycles of the NPU's clock: of its commands, of the host's kernels instead, and of the memory that has weights."""

    commands: float
    kernels: float
    weights: float

    @property
    def npu(self) -> float:
        """Of the NPU, with its call: weights come beside the commands."""
        return LAUNCH + max(self.commands, self.weights)

    @property
    def host(self) -> float:
        """Of the host, which waits for what it reads."""
        return self.kernels + self.weights


def work_of(operators: Sequence[ir.Operator], device: Device) -> Work:
    """The work of the operators that calls become (`alone`)."""
    constants = Constants(WeightBlocks(device.array.columns, compressed=False), RegionPool(BACKEND_ID))
    source, target = (device.memory(region).memory() for region in (Region.WEIGHTS, Region.SRAM))
    tiles = [_whole(one, device, constants) for one in lay_out(ir.Graph((), tuple(operators), ())).graph.operators]
    return Work(
        sum(cost_of(command, device).cycles for tile in tiles for command in instructions(tile.operator, tile)),
        sum(map(_host_cycles, operators)),
        sum(transfer_cycles(source, target, one.weight.nbytes) for one in operators if isinstance(one, ir.Convolution)),
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
    """Multiply-adds of sums whose operands several results share, so that none is read for one alone."""
    shared = isinstance(operator, ir.Matmul) or (isinstance(operator, ir.Convolution) and not operator.depthwise)
    return operator.multiply_adds if shared else 0  # type: ignore[attr-defined]  # both have them


def _read(operator: ir.Operator) -> int:
    """How many elements the host's kernel reads, but for those of `_products`."""
    made = prod(operator.output.shape)
    match operator:
        case ir.Matmul() | ir.Reshape():
            return 0
        case ir.Convolution():
            return operator.multiply_adds if operator.depthwise else 0
        case ir.Pool():
            return made * prod(operator.window.kernel)
        case ir.Reduce() | ir.Pad():
            return prod(operator.inputs[0].shape)
        case ir.Resize():
            return made * (4 if operator.kind == "bilinear" else 1)
        case ir.Binary():  # a number is in a register
            return made * sum(prod(tensor.shape) > 1 for tensor in operator.inputs)
        case _:
            return made
