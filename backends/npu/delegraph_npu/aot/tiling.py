"""An operator, or a chain of them, and the places of its tensors -> tiles of its output that fit into the free SRAM.

A tensor in SRAM is read and written in place. A tensor in DRAM is loaded a tile at a time, into two buffers in turn, so
that one is filled while the other is read. In a chain all but the last result exist as tiles only; rows that two tiles
need are computed twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from delegraph_npu.aot import ir
from delegraph_npu.aot.storage import Storage, View

__all__ = ["ALIGNMENT", "Plan", "Weights", "aligned", "box_nbytes", "chain_boxes", "plan_group", "split"]

ALIGNMENT = 16
"""The alignment of buffers in SRAM and DRAM."""

BLOCK_NBYTES = 32 << 10
"""Weights that are loaded at once, where there is a choice: a block is multiplied while the next one is loaded."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A convolution's weights: channels (begin, end) of each block, and its bytes with its scales."""

    channels: tuple[tuple[int, int], ...]
    nbytes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The execution of a chain of operators: tiles of its last output, in order, and the weights of each operator.

    `resident`: all weights stay in SRAM; else each block is loaded when it is needed, into two buffers in turn.
    `blocks_outside`: all tiles with one block of weights, then with the next; else all blocks for one tile.
    """

    operators: tuple[ir.Operator, ...]
    tiles: tuple[ir.Box, ...]
    weights: dict[ir.Operator, Weights]
    resident: bool
    blocks_outside: bool
    buffers: dict[tuple[ir.Operator, int], tuple[int, int]]
    """An operator and the number of an operand (-1: its output) -> the bytes of a tile, and the number of buffers."""

    @property
    def nbytes(self) -> int:
        """The group's bytes in SRAM, without tensors that lie there as a whole."""
        return sum(nbytes * turns for nbytes, turns in self.buffers.values()) + sum(
            nbytes for _, nbytes in self.constants()
        )

    def constants(self) -> list[tuple[tuple[ir.Operator, int], int]]:
        """(operator, turn or number of a block) -> bytes for its weights; turn -1 is its table."""
        parts = [((operator, -1), aligned(_table_nbytes(operator))) for operator in self.operators]
        for operator, weights in self.weights.items():
            sizes = [aligned(nbytes) for nbytes in weights.nbytes]
            sizes = sizes if self.resident else [max(sizes)] * min(2, len(sizes) * len(self.tiles))
            parts += [((operator, turn), nbytes) for turn, nbytes in enumerate(sizes)]
        return [(key, nbytes) for key, nbytes in parts if nbytes]

    def __str__(self) -> str:
        names = " -> ".join(operator.output.name for operator in self.operators)
        blocks = sum(len(weights.channels) for weights in self.weights.values())
        how = "resident" if self.resident else "outside" if self.blocks_outside else "inside"
        return f"{names}: {len(self.tiles)} tiles, {blocks} blocks of weights {how}, {self.nbytes} bytes"


def aligned(nbytes: int) -> int:
    """`nbytes`, up to a multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def box_nbytes(box: ir.Box, tensor: ir.Tensor) -> int:
    """The bytes of a part of a tensor, its elements side by side."""
    return math.prod(end - begin for begin, end in box) * tensor.dtype.itemsize


def split(shape: ir.Shape, sizes: Sequence[int]) -> tuple[ir.Box, ...]:
    """Boxes of at most `sizes` that cover `shape`."""
    spans = [[(b, min(b + step, size)) for b in range(0, size, step)] for size, step in zip(shape, sizes, strict=True)]
    return tuple((n, h, w, c) for n in spans[0] for h in spans[1] for w in spans[2] for c in spans[3])


def chain_boxes(operators: Sequence[ir.Operator], box: ir.Box) -> list[ir.Box]:
    """The boxes of each operator's output for a box of the last output."""
    boxes = [box]
    for operator, before in zip(reversed(operators), reversed(operators[:-1]), strict=False):
        boxes.append(operator.reads(boxes[-1], operator.inputs.index(before.output)))
    return boxes[::-1]


Views: TypeAlias = dict[ir.Tensor, View]
BlocksOf: TypeAlias = Callable[[ir.Convolution, int], Weights]
"""A convolution, and the most bytes of a block -> its blocks."""


def plan_group(
    operators: tuple[ir.Operator, ...],
    views: Views,
    outside: Collection[Storage],
    budget: int,
    blocks_of: BlocksOf,
) -> Plan | None:
    """The plan with the largest tiles for which `budget` bytes suffice; None if there is none.

    `outside` are the storages that are in DRAM.
    """
    convolutions = [operator for operator in operators if isinstance(operator, ir.Convolution)]
    whole: dict[ir.Operator, Weights] = {operator: blocks_of(operator, BLOCK_NBYTES) for operator in convolutions}
    # the first plan that fits has the largest tiles: the fewest loads and rows that are computed twice
    for sizes in _sizes(operators[-1]):
        tiles = split(operators[-1].output.shape, sizes)
        buffers = _buffers(operators, tiles, views, outside)
        plan = Plan(operators, tiles, whole, True, False, buffers)
        # weights that do not fit come block by block; in a cascade they would come again for each tile of each operator
        if plan.nbytes > budget and len(operators) == 1 and convolutions:
            weights = blocks_of(convolutions[0], max(BLOCK_NBYTES // 8, 1))
            # two loop orders: weights again for each tile, or the input again for each block; the one that loads less
            again = (len(tiles) - 1) * sum(weights.nbytes)
            images = (len(weights.nbytes) - 1) * operators[0].inputs[0].nbytes
            plan = Plan(operators, tiles, {operators[0]: weights}, False, images < again, buffers)
        if plan.nbytes <= budget:
            return plan
    return None


def _sizes(last: ir.Operator) -> Iterator[tuple[int, int, int, int]]:
    """Sizes of tiles to try, the largest first: fewer images, fewer rows, shorter rows, then fewer channels."""
    sizes = list(last.output.shape)
    yield (sizes[0], sizes[1], sizes[2], sizes[3])
    for axis in (0, 1, 2, 3):
        # channels of a convolution are cut by its blocks of weights
        if axis == 3 and isinstance(last, ir.Convolution):
            return
        while sizes[axis] > 1:
            sizes[axis] = -(-sizes[axis] // 2)
            yield (sizes[0], sizes[1], sizes[2], sizes[3])


def _buffers(
    operators: Sequence[ir.Operator], tiles: Sequence[ir.Box], views: Views, outside: Collection[Storage]
) -> dict[tuple[ir.Operator, int], tuple[int, int]]:
    """The tiles in SRAM: of tensors that are loaded or stored, and of those between two operators."""
    most: dict[tuple[ir.Operator, int], int] = {}
    inside = {operator.output for operator in operators[:-1]}
    for tile in tiles:
        for operator, box in zip(operators, chain_boxes(operators, tile), strict=True):
            parts = [(i, tensor, operator.reads(box, i)) for i, tensor in enumerate(operator.inputs)]
            parts = [part for part in parts if part[1] not in inside]
            for operand, tensor, part in [*parts, (-1, operator.output, box)]:
                if tensor in inside or views[tensor].storage in outside:
                    nbytes = aligned(box_nbytes(part, tensor))
                    most[operator, operand] = max(most.get((operator, operand), 0), nbytes)
    # a single tile needs no second buffer; within a cascade a tile is read before the next one is computed
    turns = min(2, len(tiles))
    return {key: (nbytes, 1 if key[0].output in inside and key[1] < 0 else turns) for key, nbytes in most.items()}


def _table_nbytes(operator: ir.Operator) -> int:
    entries = operator.entries if isinstance(operator, ir.Table) else operator.table
    return 0 if entries is None else int(entries.nbytes)
