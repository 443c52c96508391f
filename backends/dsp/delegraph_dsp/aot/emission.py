"""Kernel calls with their blocks and places -> a program: commands, loops, regions, constants.

load 0 -> buffer 0        channel 0
load 1 -> buffer 1        channel 1     beside
wait channel 0; launch 0; store 0       channel 2
load 2 -> buffer 0        channel 0     beside
wait channel 1; launch 1; store 1       channel 3
wait channels 0, 2; launch 2 …

Beside the last launch of a call the first operands of the next call are loaded, as far as there is room, on channel 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from delegraph.program import dense_strides
from delegraph_dsp.aot.boxes import Box, box_of, packed_strides, rows_of, tiles_of
from delegraph_dsp.aot.constants import WORD, bytes_of
from delegraph_dsp.aot.kernel_calls import KernelCall, Value, View
from delegraph_dsp.aot.placement import Placed
from delegraph_dsp.aot.tiling import launch_loops
from delegraph_dsp.device import Device, device_text
from delegraph_dsp.isa import Loop
from delegraph_dsp.program import (
    ITEM_NBYTES,
    Command,
    Launch,
    Operand,
    Operator,
    Program,
    Region,
    Result,
    Transfer,
    Wait,
    nbytes_of,
)
from delegraph_machines.region_pool import RegionPool

__all__ = ["emit"]

CONSTANTS, SCRATCH = 0, 1


def emit(
    calls: Sequence[KernelCall],
    placed: Placed,
    inputs: Sequence[Value],
    outputs: Sequence[tuple[Value, tuple[int, ...]]],
    operators: Sequence[Operator],
    results: Mapping[int, View],
    device: Device,
    pool: RegionPool,
) -> Program:
    """The program of calls that read `inputs` and write `outputs`, each with the caller's shape; its constants are the
    content of `pool` so far, its own included. `results` are those of operators, by number."""
    memory = OuterMemory(inputs, outputs, pool)
    emitter = Emitter(placed, memory, device)
    for number, call in enumerate(calls):
        emitter.call(number, call, calls[number + 1] if number + 1 < len(calls) else None)
    written = {call.output.view.value for call in calls}
    lying = {number: _result(view, placed, memory) for number, view in results.items() if view.value in written}
    return Program(
        device_text(device),
        placed.nbytes,
        memory.regions(),
        bytes(pool.content),
        tuple(emitter.loops),
        tuple(emitter.commands),
        tuple(replace(operator, result=lying.get(number)) for number, operator in enumerate(operators)),
    )


def _result(view: View, placed: Placed, memory: OuterMemory) -> Result:
    stays = view.value in placed.resident
    region, begin = (None, placed.resident[view.value]) if stays else memory.place(view.value)
    strides = _plain(view.shape, view.strides)
    return Result(region, begin + view.offset * ITEM_NBYTES[view.dtype], view.dtype, view.shape, strides)


class OuterMemory:
    """The places of values in outer memory: a region and the first byte."""

    def __init__(
        self, inputs: Sequence[Value], outputs: Sequence[tuple[Value, tuple[int, ...]]], pool: RegionPool
    ) -> None:
        self._pool, self._scratch = pool, 0
        self._arguments = [("input", v, v.shape) for v in inputs] + [("output", v, shape) for v, shape in outputs]
        self._places = {value: (2 + number, 0) for number, (_, value, _) in enumerate(self._arguments)}

    def place(self, value: Value) -> tuple[int, int]:
        """Region and first byte."""
        if value not in self._places:
            self._places[value] = (CONSTANTS, self._pool.place(bytes_of(value))) if value.content else self._made(value)
        return self._places[value]

    def regions(self) -> tuple[Region, ...]:
        """All regions, once everything has its place."""
        arguments = [Region(k, nbytes_of(v.dtype, shape), v.dtype, shape) for k, v, shape in self._arguments]
        return (Region("constants", len(self._pool.content)), Region("scratch", self._scratch), *arguments)

    def _made(self, value: Value) -> tuple[int, int]:
        begin = self._scratch
        self._scratch += -(-nbytes_of(value.dtype, value.shape) // WORD) * WORD
        return SCRATCH, begin


class Emitter:
    """The commands so far, and the loops, each stored once."""

    def __init__(self, placed: Placed, memory: OuterMemory, device: Device) -> None:
        self.commands: list[Command] = []
        self.loops: dict[Loop, int] = {}
        self._placed, self._memory, self._device = placed, memory, device

    def call(self, number: int, call: KernelCall, following: KernelCall | None) -> None:
        """All tiles of one call, and the loads ahead for the `following` call."""
        tiles = list(tiles_of(call, self._placed.blocks[number].sizes))
        buffers = self._placed.buffers[number]
        plan = [_boxes(call, buffers, tile) for tile in tiles]
        versions = _versions(plan)
        rowed = len(call.uses) - 1 in buffers and any(
            r.rows > 1 for r in rows_of(call.output.view, plan[0][len(call.uses) - 1])
        )
        # rows of two tiles may interleave: then they are stored one after the other, on one channel
        stored = [2, 2] if rowed else [2, 3]
        self._load(call, buffers, plan[0], versions, 0, self._placed.ahead[number])
        for index, tile in enumerate(tiles):
            # beside this tile's kernel, into the other buffers
            if index + 1 < len(tiles):
                self._load(call, buffers, plan[index + 1], versions, index + 1)
            output = len(call.uses) - 1
            # even tiles are loaded on channel 0, odd ones on channel 1
            if any(use != output for use in _changed(versions, index)):
                self.commands.append(Wait(index % 2))
            # the kernel overwrites the buffer that was stored two tiles ago
            if index >= 2 and output in buffers:
                self.commands.append(Wait(stored[index % 2]))
            if following is not None and index == len(tiles) - 1:
                self._load_ahead(number + 1, following)
            self.commands.append(self._launch(call, buffers, plan[index], versions[index], tile))
            if output in buffers:
                place = buffers[output][versions[index][output] % len(buffers[output])]
                self._transfer(call, output, plan[index][output], place, stored[index % 2], load=False)
        if len(call.uses) - 1 in buffers:
            self.commands += [Wait(channel) for channel in sorted(set(stored[: len(tiles)]))]

    def _load(
        self,
        call: KernelCall,
        buffers: Mapping[int, tuple[int, ...]],
        boxes: Mapping[int, Box],
        versions: Sequence[Mapping[int, int]],
        index: int,
        there: frozenset[int] = frozenset(),
    ) -> None:
        """Load the boxes of tile `index` that differ from those of the tile before, except those that are `there`
        already."""
        for use in _changed(versions, index):
            if use < len(call.uses) - 1 and use not in there:
                place = buffers[use][versions[index][use] % len(buffers[use])]
                self._transfer(call, use, boxes[use], place, index % 2, load=True)

    def _load_ahead(self, number: int, call: KernelCall) -> None:
        """Load those operands of the first tile of the next call that have places already."""
        tile = next(tiles_of(call, self._placed.blocks[number].sizes))
        for use in sorted(self._placed.ahead[number]):
            place = self._placed.buffers[number][use][0]
            self._transfer(call, use, box_of(call.uses[use], tile), place, 0, load=True)

    def _transfer(self, call: KernelCall, use: int, box: Box, tcm: int, channel: int, load: bool) -> None:
        view = call.uses[use].view
        region, begin = self._memory.place(view.value)
        for rows in rows_of(view, box):
            if rows.rows * rows.row_nbytes:
                self.commands.append(
                    Transfer(
                        load, region, begin + rows.begin, tcm, rows.row_nbytes, rows.rows, rows.stride, channel,
                        call.operator,
                    )
                )  # fmt: skip
            tcm += rows.rows * rows.row_nbytes

    def _launch(
        self,
        call: KernelCall,
        buffers: Mapping[int, tuple[int, ...]],
        boxes: Mapping[int, Box],
        versions: Mapping[int, int],
        tile: Box,
    ) -> Launch:
        operands = []
        for number, use in enumerate(call.uses):
            view = use.view
            box = box_of(use, tile)
            shape = tuple(stop - start for start, stop in box)
            if number in buffers:
                offset = buffers[number][versions[number] % len(buffers[number])]
                strides = packed_strides(view, box)
            else:
                first = view.offset + sum(a * s for (a, _), s in zip(box, view.strides, strict=True))
                offset = self._placed.resident[view.value] + first * ITEM_NBYTES[view.dtype]
                strides = view.strides
            operands.append(Operand(offset, view.dtype, shape, _plain(shape, strides)))
        loops = launch_loops(call, tile, self._device)
        numbered = tuple((self.loops.setdefault(loop, len(self.loops)), trips) for loop, trips in loops)
        return Launch(call.kernel, tuple(operands), call.integers, call.reals, numbered, call.operator)


def _plain(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in which dims of one element have those of a dense tensor, since their own mean nothing: equal operands
    look equal."""
    dense = dense_strides(shape)
    return tuple(d if size == 1 else s for size, s, d in zip(shape, strides, dense, strict=True))


def _boxes(call: KernelCall, buffers: Mapping[int, tuple[int, ...]], tile: Box) -> dict[int, Box]:
    """The boxes of the operands that have buffers."""
    return {number: box_of(call.uses[number], tile) for number in buffers}


def _versions(plan: Sequence[Mapping[int, Box]]) -> list[dict[int, int]]:
    """By tile and use: the number of other boxes that were in its buffers before."""
    versions = [dict.fromkeys(plan[0], 0)]
    for before, now in pairwise(plan):
        last = versions[-1]
        versions.append({use: last[use] + (now[use] != before[use]) for use in now})
    return versions


def _changed(versions: Sequence[Mapping[int, int]], index: int) -> list[int]:
    """Uses whose box differs from that of the tile before."""
    return [use for use, version in versions[index].items() if index == 0 or version != versions[index - 1][use]]
