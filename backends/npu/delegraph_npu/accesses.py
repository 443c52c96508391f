"""A command -> the feature maps and the bytes that it reads and writes."""

from __future__ import annotations

from math import prod

from delegraph_machines.hazards import Range
from delegraph_npu.commands import (
    Block,
    Computing,
    Conv,
    Depthwise,
    DmaStart,
    Elementwise,
    ElementwiseKind,
    FeatureMap,
    MatMul,
    Operand,
    Region,
    Table,
)

__all__ = ["constants_of", "dma_ranges", "inputs_of", "operands_of", "ranges_of", "reads_one"]


def reads_one(kind: ElementwiseKind) -> bool:
    """Whether an elementwise command of `kind` has no second operand."""
    return kind in (ElementwiseKind.COPY, ElementwiseKind.ABS, ElementwiseKind.COUNT_LEADING_ZEROS)


def operands_of(command: Elementwise) -> tuple[Operand, ...]:
    """One operand, or two."""
    return (command.a,) if reads_one(command.kind) else (command.a, command.b)


def inputs_of(command: Computing) -> tuple[FeatureMap, ...]:
    """The feature maps that a command reads."""
    if isinstance(command, Elementwise):
        return tuple(operand.feature_map for operand in operands_of(command))
    if isinstance(command, MatMul):
        return command.ifm, command.ifm2
    return (command.ifm,)


def constants_of(command: Computing) -> tuple[Block, ...]:
    """The constant blocks that a command reads: weights, scales, tables."""
    blocks = [command.requantize.scales, command.requantize.table]
    if isinstance(command, Conv | Depthwise):
        blocks.append(command.weights)
    elif isinstance(command, Table):
        blocks.append(command.table)
    return tuple(block for block in blocks if block)


def ranges_of(command: Computing) -> tuple[list[Range], list[Range]]:
    """The bytes that a command reads, and those that it writes."""
    reads = [_range(feature_map.region, feature_map.offset, feature_map.span) for feature_map in inputs_of(command)]
    reads += [_range(block.region, block.offset, block.nbytes) for block in constants_of(command)]
    return reads, [_range(command.ofm.region, command.ofm.offset, command.ofm.span)]


def dma_ranges(command: DmaStart) -> tuple[Range, Range]:
    """The bytes that a transfer reads, and those that it writes, with the gaps between its rows."""
    spans = [
        sum((count - 1) * stride for count, stride in zip(command.shape, strides, strict=False)) + command.shape[2]
        if prod(command.shape)
        else 0
        for strides in (command.source_strides, command.target_strides)
    ]
    return (
        _range(command.source.region, command.source.offset, spans[0]),
        _range(command.target.region, command.target.offset, spans[1]),
    )


def _range(region: Region, offset: int, nbytes: int) -> Range:
    return Range(region.name, offset, offset + nbytes)
