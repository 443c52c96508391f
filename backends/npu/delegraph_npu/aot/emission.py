"""`Schedule` -> commands: for each tile loads, computation and stores, which overlap by one step.

    step    0     1     2     3
    loads   t0 t1    t2    t3          the tile of the next step is loaded while this one is computed
    compute    t0    t1    t2    t3
    stores           t0    t1    t2

Every command waits for just those transfers that touch the bytes that it touches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from delegraph_machines.hazards import Range
from delegraph_npu import commands as npu
from delegraph_npu.accesses import dma_ranges, ranges_of
from delegraph_npu.aot import ir
from delegraph_npu.aot.instructions import Constants, Tile, instructions
from delegraph_npu.aot.scheduling import Schedule
from delegraph_npu.aot.storage import StorageLayout, Strides, View, dense
from delegraph_npu.aot.tiling import Plan, chain_boxes
from delegraph_npu.commands import Region

__all__ = ["EmittedProgram", "emit", "transfers"]


@dataclass(frozen=True, slots=True)
class EmittedProgram:
    """Commands, and the constants that they refer to except the weights. `operators` are the nodes whose counters they
    add to."""

    commands: tuple[npu.Command, ...]
    tables: bytes
    operators: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.commands)) + "\n"


@dataclass(slots=True)
class Step:
    """The transfers and commands of a tile. `ahead`: its loads can begin while the step before computes."""

    ahead: bool
    loads: list[npu.DmaStart] = field(default_factory=list)
    computes: list[npu.Computing] = field(default_factory=list)
    stores: list[npu.DmaStart] = field(default_factory=list)


def emit(layout: StorageLayout, schedule: Schedule, constants: Constants, channels: int) -> EmittedProgram:
    """The commands of all plans, for a DMA engine with `channels`; weights and tables go into `constants`."""
    numbers = {name: i for i, name in enumerate(dict.fromkeys(o.name for o in layout.graph.operators))}
    steps: list[Step] = []
    for number, plan in enumerate(schedule.plans):
        steps += _Group(number, plan, layout, schedule, constants, numbers).steps()
    written = _Writer(channels).write(steps)
    return EmittedProgram(tuple(written), bytes(constants.tables), tuple(numbers) or ("nothing",))


# ---- the steps of one plan ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Tile:
    """A buffer in SRAM for one part of a tensor after the other; two buffers take turns."""

    offsets: list[int]
    boxes: list[ir.Box | None]
    turn: int = -1

    def place(self, box: ir.Box) -> tuple[int, bool]:
        """The place of `box`, and whether it must be loaded first."""
        if box in self.boxes:
            return self.offsets[self.boxes.index(box)], False
        # the oldest part makes room: the newest may still be read
        self.turn = (self.turn + 1) % len(self.offsets)
        self.boxes[self.turn] = box
        return self.offsets[self.turn], True


class _Group:
    def __init__(
        self,
        number: int,
        plan: Plan,
        layout: StorageLayout,
        schedule: Schedule,
        constants: Constants,
        numbers: dict[str, int],
    ) -> None:
        self.number, self.plan, self.layout, self.schedule = number, plan, layout, schedule
        self.constants, self.numbers = constants, numbers
        self.inside = {operator.output: operator for operator in plan.operators[:-1]}
        self.tiles = {
            key: _Tile([self._own(*key, turn) for turn in range(turns)], [None] * turns)
            for key, (_, turns) in plan.buffers.items()
        }
        self.tables: dict[ir.Operator, npu.Block] = {}
        self.blocks: dict[ir.Operator, dict[int, int]] = {}  # blocks in SRAM, and their offsets
        self.turn = -1

    def steps(self) -> list[Step]:
        """A step for each tile, and for each block of weights of a single convolution, in the plan's order."""
        steps: list[Step] = []
        for tile, block, last in self._order():
            step = Step(ahead=bool(steps) or self.number in self.schedule.early)
            if not steps:
                self._load_tables(step)
            boxes = chain_boxes(self.plan.operators, tile)
            for operator, box in zip(self.plan.operators, boxes, strict=True):
                spans = list(enumerate(self.plan.weights[operator].channels)) if operator in self.plan.weights else []
                for number, channels in spans if block is None else [spans[block]]:
                    self._compute(step, operator, (*box[:3], channels), box, number)
                if not spans:
                    self._compute(step, operator, box, box, None)
            if last:
                self._store(step, self.plan.operators[-1], boxes[-1])
            steps.append(step)
        return steps

    def _order(self) -> Iterator[tuple[ir.Box, int | None, bool]]:
        """Tile, block of weights (None: all), and whether the tile is complete then."""
        tiles, operators = self.plan.tiles, self.plan.operators
        weights = self.plan.weights.get(operators[0]) if len(operators) == 1 else None
        if weights is None:
            yield from ((tile, None, True) for tile in tiles)
        elif self.plan.blocks_outside:
            for block, channels in enumerate(weights.channels):
                yield from (((*tile[:3], channels), block, True) for tile in tiles)
        else:
            last = len(weights.channels) - 1
            for tile in tiles:
                yield from ((tile, block, block == last) for block in range(last + 1))

    # ---- one tile ---------------------------------------------------------------------------------------------------

    def _compute(self, step: Step, operator: ir.Operator, box: ir.Box, tile: ir.Box, block: int | None) -> None:
        """Compute `box` of the output, a part of `tile`, with block number `block` of the weights if it has weights."""
        parts = [operator.reads(box, operand) for operand in range(len(operator.inputs))]
        inputs = [
            self._input(step, operator, operand, operator.reads(tile, operand), part)
            for operand, part in enumerate(parts)
        ]
        output = self._part(operator.output, self._output(operator, tile), tile, box)
        weights = None if block is None else self._weights(step, operator, block)
        table = self.tables.get(operator, npu.NOWHERE)
        number = self.numbers[operator.name]
        step.computes += instructions(
            operator, Tile(operator, box, inputs, parts, output, weights, table, self.constants, number)
        )

    def _input(self, step: Step, operator: ir.Operator, operand: int, tile: ir.Box, part: ir.Box) -> npu.FeatureMap:
        """`part` of an operand; loads `tile` into SRAM if it is not there yet."""
        tensor = operator.inputs[operand]
        # the operator before it in the cascade has just written it
        if tensor in self.inside:
            buffer = self.tiles[self.inside[tensor], -1]
            whole = buffer.boxes[buffer.turn]
            assert whole is not None
            return self._part(tensor, buffer.offsets[buffer.turn], whole, part)
        if (operator, operand) not in self.tiles:
            return self._part(tensor, None, tensor.whole, part)
        offset, missing = self.tiles[operator, operand].place(tile)
        if missing:
            view = self.layout.views[tensor]
            region, base = self._outside(view)
            source, target = (region, base + view.at(tile), view.strides), (Region.SRAM, offset, _dense(tile, tensor))
            step.loads += transfers(source, target, tile, tensor, self.numbers[operator.name])
        return self._part(tensor, offset, tile, part)

    def _output(self, operator: ir.Operator, tile: ir.Box) -> int | None:
        if (operator, -1) not in self.tiles:
            return None
        return self.tiles[operator, -1].place(tile)[0]

    def _store(self, step: Step, operator: ir.Operator, tile: ir.Box) -> None:
        if (operator, -1) not in self.tiles:
            return
        offset, _ = self.tiles[operator, -1].place(tile)
        tensor = operator.output
        view = self.layout.views[tensor]
        region, base = self._outside(view)
        source, target = (Region.SRAM, offset, _dense(tile, tensor)), (region, base + view.at(tile), view.strides)
        step.stores += transfers(source, target, tile, tensor, self.numbers[operator.name])

    def _part(self, tensor: ir.Tensor, offset: int | None, whole: ir.Box, part: ir.Box) -> npu.FeatureMap:
        """`part` of a tensor whose part `whole` is in a buffer at `offset`; None: it lies in its storage."""
        shape = _shape(part)
        dtype = npu.Dtype[tensor.dtype.name.upper()]
        if offset is None:
            view = self.layout.views[tensor]
            begin = self.schedule.sram[view.storage,] + view.at(part)
            strides = view.strides
        else:
            strides = _dense(whole, tensor)
            begin = offset + sum((p[0] - w[0]) * step for p, w, step in zip(part, whole, strides, strict=True))
        return npu.FeatureMap(Region.SRAM, begin, dtype, npu.Layout.NHWC, shape, strides)

    def _outside(self, view: View) -> tuple[Region, int]:
        if view.storage.content is not None:
            return Region.TABLES, self.constants.table(view.storage.content)
        return Region.DRAM, self.schedule.dram[view.storage,]

    # ---- constants --------------------------------------------------------------------------------------------------

    def _own(self, *key: Any) -> int:
        return self.schedule.sram[self.number, *key]

    def _load_tables(self, step: Step) -> None:
        for operator in self.plan.operators:
            entries = operator.entries if isinstance(operator, ir.Table) else operator.table
            if entries is not None:
                offset = self._own(operator, "constants", -1)
                content = np.ascontiguousarray(entries).tobytes()
                source = npu.Address(Region.TABLES, self.constants.table(content))
                self._load(step, operator, source, offset, len(content))
                self.tables[operator] = npu.Block(Region.SRAM, offset, len(content))

    def _weights(self, step: Step, operator: ir.Operator, block: int) -> int:
        """The offset of the block in SRAM, into which it is loaded if necessary."""
        assert isinstance(operator, ir.Convolution)
        offsets = self.blocks.setdefault(operator, {})
        if block not in offsets:
            weights = self.plan.weights[operator]
            turns = len(weights.channels) if self.plan.resident else 2
            # two buffers in turn, so that a block is loaded while the other one is multiplied
            self.turn = (self.turn + 1) % turns
            offset = self._own(operator, "constants", block if self.plan.resident else self.turn)
            # the block that lay there is overwritten
            for number in [number for number, place in offsets.items() if place == offset]:
                del offsets[number]
            offsets[block] = offset
            for piece in self.constants.block(operator, *weights.channels[block]):
                self._load(step, operator, piece.source, offset + piece.offset, piece.nbytes)
        return offsets[block]

    def _load(self, step: Step, operator: ir.Operator, source: npu.Address, offset: int, nbytes: int) -> None:
        target = npu.Address(Region.SRAM, offset)
        step.loads.append(npu.DmaStart(0, source, target, (1, 1, nbytes), (0, 0), (0, 0), self.numbers[operator.name]))


def _shape(box: ir.Box) -> ir.Shape:
    n, h, w, c = (end - begin for begin, end in box)
    return n, h, w, c


def _dense(box: ir.Box, tensor: ir.Tensor) -> Strides:
    return dense(_shape(box), tensor.dtype)


Place = tuple[Region, int, Strides]
"""Region, offset of the first element, strides."""


def transfers(source: Place, target: Place, box: ir.Box, tensor: ir.Tensor, operator: int) -> list[npu.DmaStart]:
    """The transfers of a part of a tensor: rows as long as possible, in up to two dims of rows each."""
    run = tensor.dtype.itemsize
    outer: list[tuple[int, int, int]] = []
    for size, read_stride, write_stride in reversed(list(zip(_shape(box), source[2], target[2], strict=True))):
        if size == 1:
            continue
        # innermost: bytes that are adjacent on both sides become one longer row
        if not outer and read_stride == write_stride == run:
            run *= size
        # a dim whose step is the whole dim within it, on both sides, is one dim with it
        elif outer and (read_stride, write_stride) == (outer[-1][0] * outer[-1][1], outer[-1][0] * outer[-1][2]):
            outer[-1] = (outer[-1][0] * size, *outer[-1][1:])
        else:
            outer.append((size, read_stride, write_stride))
    rows, planes, *rest = [*outer, *[(1, 0, 0)] * max(0, 2 - len(outer))]
    # the DMA engine has two dims of rows: further dims become transfers of their own
    starts = [(0, 0)]
    for size, read_stride, write_stride in rest:
        starts = [(a + i * read_stride, b + i * write_stride) for i in range(size) for a, b in starts]
    return [
        npu.DmaStart(
            0, npu.Address(source[0], source[1] + a), npu.Address(target[0], target[1] + b),
            (planes[0], rows[0], run), (planes[1], rows[1]), (planes[2], rows[2]), operator,
        )
        for a, b in starts
    ]  # fmt: skip


# ---- steps in order -------------------------------------------------------------------------------------------------


class _Writer:
    """Puts steps behind each other, with waits in front of the commands that need them."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.commands: list[npu.Command] = []
        self.flying: dict[int, list[tuple[Range, Range]]] = {}

    def write(self, steps: Sequence[Step]) -> list[npu.Command]:
        started = 0
        for number, step in enumerate(steps):
            if started == number:
                self._start(step.loads, number)
                started += 1
            following = steps[number + 1] if number + 1 < len(steps) else None
            if following is not None and following.ahead and not _depends(following.loads, step.stores):
                self._start(following.loads, started)
                started += 1
            for command in step.computes:
                self._wait_for(*ranges_of(command))
                self.commands.append(command)
            self._start(step.stores, number)
        for channel in list(self.flying):
            self._wait(channel)
        return [*self.commands, npu.Stop()]

    def _start(self, moves: Iterable[npu.DmaStart], number: int) -> None:
        channel = number % self.channels
        for move in moves:
            read, written = dma_ranges(move)
            self._wait_for([read], [written])
            self.commands.append(replace(move, channel=channel))
            self.flying.setdefault(channel, []).append((read, written))

    def _wait_for(self, reads: Sequence[Range], writes: Sequence[Range]) -> None:
        """Wait for transfers that write bytes that are read, or touch bytes that are written."""
        for channel, moves in list(self.flying.items()):
            if any(_overlap(written, (*reads, *writes)) or _overlap(read, writes) for read, written in moves):
                self._wait(channel)

    def _wait(self, channel: int) -> None:
        self.commands.append(npu.DmaWait(channel))
        del self.flying[channel]


def _overlap(span: Range, others: Iterable[Range]) -> bool:
    return any(span.memory == o.memory and span.begin < o.end and o.begin < span.end for o in others)


def _depends(loads: Iterable[npu.DmaStart], stores: Sequence[npu.DmaStart]) -> bool:
    """Whether bytes that are to be loaded are only being stored now."""
    written = [dma_ranges(store)[1] for store in stores]
    return any(_overlap(dma_ranges(load)[0], written) for load in loads)
