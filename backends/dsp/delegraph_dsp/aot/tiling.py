"""A kernel call and the free TCM -> the block into which it is cut: the cheapest that fits.

An operand that changes from tile to tile has two buffers, so that DMA fetches the next part while the kernel works on
this one. Of the blocks whose buffers fit, those that move the fewest bytes count, and of these the one with the least

    first load + number of tiles * max(computing, moving) + last store

is taken; sizes are halved, along one axis or two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, prod
from typing import Final

from delegraph_dsp.aot.boxes import Box, box_nbytes, box_of, rows_of
from delegraph_dsp.aot.kernel_calls import KernelCall, Use, Value
from delegraph_dsp.aot.loops import Tile, loops_of
from delegraph_dsp.aot.scheduling import schedule_best
from delegraph_dsp.device import Device
from delegraph_dsp.isa import Loop
from delegraph_machines.memories import access_cycles

__all__ = ["ALIGNMENT", "Block", "changes", "choose_block", "footprint", "launch_loops", "smallest_footprint"]

ALIGNMENT: Final = 128
"""The alignment of buffers in the TCM: a vector."""

SMALL: Final = 8192
"""Bytes of buffers from which cutting is considered: less arrives within a few launches' overhead."""

COMPARED: Final = 24
"""The number of blocks whose cycles are estimated: those with the fewest tiles."""

MOST_TILES: Final = 1024
"""The most tiles of one call, which limits the commands of a program."""

MOST_TRANSFERS: Final = 16384
"""The most transfers of one call, likewise; a call that needs more with every block takes the block with the fewest."""


@dataclass(frozen=True, slots=True)
class Block:
    """Sizes of a tile along each axis of a call's space; the number of tiles; the estimated cycles, 0 where nothing was
    compared."""

    sizes: tuple[int, ...]
    tiles: int
    cycles: float


def choose_block(call: KernelCall, capacity: int, resident: Callable[[Value], bool], device: Device) -> Block | None:
    """The best block whose buffers take at most `capacity` bytes; operands of `resident` values have none. None if not
    even the smallest fits."""
    if footprint(call, call.space, resident) <= min(capacity, SMALL):
        return Block(call.space, 1, 0.0)
    fitting = {
        sizes
        for sizes in _candidates(call)
        if _tiles(call, sizes) <= MOST_TILES and footprint(call, sizes, resident) <= capacity
    }
    if not fitting:
        return None
    traffic = {sizes: _traffic(call, sizes, resident) for sizes in fitting}
    # cycles take long to estimate: only for blocks that move the fewest bytes
    least = min(traffic.values())
    lean = sorted((sizes for sizes in fitting if traffic[sizes] == least), key=lambda sizes: _tiles(call, sizes))
    blocks = [Block(sizes, _tiles(call, sizes), _cycles(call, sizes, resident, device)) for sizes in lean[:COMPARED]]
    return min(blocks, key=lambda block: (block.cycles, block.tiles))


def footprint(call: KernelCall, sizes: Sequence[int], resident: Callable[[Value], bool]) -> int:
    """Bytes of the buffers of a call that is cut into blocks of these sizes."""
    tile = _first_tile(sizes)
    total = 0
    for use in call.uses:
        if not resident(use.view.value):
            buffers = 2 if changes(use, call, sizes) else 1
            total += buffers * -(-box_nbytes(use.view, box_of(use, tile)) // ALIGNMENT) * ALIGNMENT
    return total


def smallest_footprint(call: KernelCall) -> int:
    """The least bytes that the call needs, everything in outer memory."""
    return min(footprint(call, sizes, lambda value: False) for sizes in _candidates(call, smallest=True))


def launch_loops(call: KernelCall, tile: Box, device: Device) -> list[tuple[Loop, int]]:
    """The scheduled loops of a tile, and how often each runs."""
    boxes = [box_of(use, tile) for use in call.uses]
    shape = Tile(
        call.kernel,
        tuple(tuple(stop - start for start, stop in box) for box in boxes),
        tuple(use.view.dtype for use in call.uses),
        call.integers,
        device.vector_nbytes,
    )
    return [schedule_best(body, count, device) for body, count in loops_of(shape) if count > 0]


# ---- candidates ---------------------------------------------------------------------------------------------------


def _candidates(call: KernelCall, smallest: bool = False) -> Iterator[tuple[int, ...]]:
    """The whole space, then all halvings along one axis, then along two; for the smallest, all axes at once."""
    yield call.space
    if smallest:
        yield tuple(1 if axis in call.splits else size for axis, size in enumerate(call.space))
        return
    halved = {axis: _halvings(call.space[axis]) for axis in call.splits if call.space[axis] > 1}
    for axis, sizes in halved.items():
        for size in sizes:
            yield _with(call.space, {axis: size})
    for first, second in combinations(halved, 2):
        for a in halved[first]:
            for b in halved[second]:
                yield _with(call.space, {first: a, second: b})
    if len(halved) > 2:
        yield from (_with(call.space, {a: -(-call.space[a] // 2**n) for a in halved}) for n in range(1, 24))


def _halvings(size: int) -> list[int]:
    halvings = []
    while size > 1:
        size = -(-size // 2)
        halvings.append(size)
    return halvings


def _with(space: tuple[int, ...], changed: dict[int, int]) -> tuple[int, ...]:
    return tuple(changed.get(axis, size) for axis, size in enumerate(space))


def _first_tile(sizes: Sequence[int]) -> Box:
    return tuple((0, size) for size in sizes)


def _tiles(call: KernelCall, sizes: Sequence[int]) -> int:
    return prod(ceil(whole / size) if size else 1 for whole, size in zip(call.space, sizes, strict=True))


def changes(use: Use, call: KernelCall, sizes: Sequence[int]) -> bool:
    """Whether tiles have different parts of the operand."""
    return any(axis is not None and sizes[axis] < call.space[axis] for axis in use.axes)


# ---- cost ---------------------------------------------------------------------------------------------------------


def _traffic(call: KernelCall, sizes: tuple[int, ...], resident: Callable[[Value], bool]) -> int:
    """The bytes that all tiles move, tiles at the edges counted as whole ones."""
    tile = _first_tile(sizes)
    return sum(
        box_nbytes(use.view, box_of(use, tile)) * _reloads(use, call, sizes)
        for use in call.uses
        if not resident(use.view.value)
    )


def _cycles(call: KernelCall, sizes: tuple[int, ...], resident: Callable[[Value], bool], device: Device) -> float:
    """The cycles of all tiles. The next tile's load begins with this tile's kernel, and needs at least its latency."""
    tile, tiles = _first_tile(sizes), _tiles(call, sizes)
    compute = device.launch_overhead + sum(
        device.loop_overhead + trips * len(loop.packets) for loop, trips in launch_loops(call, tile, device)
    )
    once = load = store = 0.0
    transfers = 0
    for use in call.uses:
        if resident(use.view.value):
            continue
        rows = rows_of(use.view, box_of(use, tile))
        transfers += len(rows)
        busy = sum(access_cycles(device.ddr, r.rows * r.row_nbytes, r.row_nbytes) for r in rows)
        if use is call.output:
            store = busy
        elif changes(use, call, sizes):
            load += busy * _reloads(use, call, sizes) / tiles
        else:
            once += busy
    # not refused: if all blocks are above the limit, the one with the fewest transfers has the least
    if transfers * tiles > MOST_TRANSFERS:
        return 1e30 * transfers * tiles
    # a tile takes as long as its kernel, its transfers, or a load that its kernel does not hide
    period = max(compute, load + store, load + device.ddr.read_latency if load else 0.0)
    return once + load + device.ddr.read_latency + tiles * period + store + device.ddr.write_latency


def _reloads(use: Use, call: KernelCall, sizes: Sequence[int]) -> int:
    """How often an operand is fetched: anew for each tile whose part differs from that of the tile before."""
    counts = [ceil(whole / size) for whole, size in zip(call.space, sizes, strict=True)]
    # axes behind its last one are walked while the operand stays
    last = max((axis for axis in use.axes if axis is not None and counts[axis] > 1), default=-1)
    return prod(counts[: last + 1])
