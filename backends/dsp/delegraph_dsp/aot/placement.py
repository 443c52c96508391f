"""Kernel calls in order -> a block for each, and the values that stay in the TCM from one call to the next.

Kernels' results stay as long as they are needed where there is room. Where a call's buffers do not fit beside them, the
largest is spilled: it lives in outer memory, and costs DMA. The memory planners then give every buffer its place; if
gaps between buffers take too much, values are spilled as well.

In the remaining room, buffers live one call longer: a call's first operands are fetched while the call before computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from delegraph.errors import PreprocessError
from delegraph.interfaces import Lifetime
from delegraph_dsp.aot.boxes import box_nbytes, box_of
from delegraph_dsp.aot.kernel_calls import KernelCall, Value
from delegraph_dsp.aot.tiling import ALIGNMENT, Block, changes, choose_block, footprint, smallest_footprint
from delegraph_dsp.device import Device
from delegraph_dsp.program import nbytes_of
from delegraph_machines.scratch import place

__all__ = ["Placed", "place_calls"]

RESERVE: Final = 4
"""A call whose buffers would take more than this part of the TCM gets at least this part."""


@dataclass(frozen=True, slots=True)
class Placed:
    """`blocks` by call; `resident`: the places of values that stay in the TCM; `buffers`: the places of each use of
    each call; `ahead`: the uses of each call whose first buffer is filled during the call before; `spilled`: results of
    kernels that live in outer memory. `nbytes` is the TCM in use, `lower_bound` the least of any placement."""

    blocks: tuple[Block, ...]
    resident: Mapping[Value, int]
    buffers: tuple[Mapping[int, tuple[int, ...]], ...]
    ahead: tuple[frozenset[int], ...]
    spilled: tuple[Value, ...]
    nbytes: int
    lower_bound: int


def place_calls(calls: Sequence[KernelCall], outputs: Sequence[Value], device: Device) -> Placed:
    """Choose blocks and places. Raises `PreprocessError` for a call for which the TCM is too small."""
    lives = _lifetimes(calls, outputs)
    staying = set(lives)
    while True:
        blocks = _blocks(calls, lives, staying, device)
        lifetimes, owners = _buffers(calls, blocks, lives, staying, set())
        placement = place(lifetimes, ALIGNMENT)
        if placement.nbytes <= device.tcm_nbytes or not staying:
            break
        # all fit by size, and gaps between them take too much: other blocks may fit beside fewer values
        staying.discard(max(staying, key=lambda value: (_nbytes(value), lives[value])))
    if placement.nbytes > device.tcm_nbytes:
        raise PreprocessError(f"buffers of {placement.nbytes} bytes do not fit in {device.tcm_nbytes} bytes of TCM")
    ahead = _ahead(calls, lifetimes, owners, device)
    while True:
        lifetimes, owners = _buffers(calls, blocks, lives, staying, ahead)
        placement = place(lifetimes, ALIGNMENT)
        if placement.nbytes <= device.tcm_nbytes or not ahead:
            break
        largest = sorted(ahead, key=lambda item: (-_nbytes(calls[item[0]].uses[item[1]].view.value), item))
        # a quarter at a time, so that few placements are computed
        ahead -= set(largest[: -(-len(largest) // 4)])
    resident: dict[Value, int] = {}
    buffers: list[dict[int, tuple[int, ...]]] = [{} for _ in calls]
    for owner, offset in zip(owners, placement.offsets, strict=True):
        if isinstance(owner, Value):
            resident[owner] = offset
        else:
            call, use = owner
            buffers[call][use] = (*buffers[call].get(use, ()), offset)
    spilled = tuple(value for value in lives if value not in staying)
    early: list[set[int]] = [set() for _ in calls]
    for call, use in ahead:
        early[call].add(use)
    uses_ahead = tuple(map(frozenset, early))
    return Placed(tuple(blocks), resident, tuple(buffers), uses_ahead, spilled, placement.nbytes, placement.lower_bound)


def _nbytes(value: Value) -> int:
    return -(-nbytes_of(value.dtype, value.shape) // ALIGNMENT) * ALIGNMENT


def _lifetimes(calls: Sequence[KernelCall], outputs: Sequence[Value]) -> dict[Value, tuple[int, int]]:
    """Values between kernels -> the first and the last call that touches each."""
    written = set(outputs)
    lives: dict[Value, tuple[int, int]] = {}
    for number, call in enumerate(calls):
        for use in call.uses:
            value = use.view.value
            if value.is_made and value not in written:
                lives[value] = (lives.get(value, (number, number))[0], number)
    return lives


def _blocks(
    calls: Sequence[KernelCall], lives: Mapping[Value, tuple[int, int]], staying: set[Value], device: Device
) -> list[Block]:
    """A block for each call beside the staying values; removes values from `staying` that leave no room."""
    begun: list[list[Value]] = [[] for _ in calls]
    for value, (first, _) in lives.items():
        begun[first].append(value)
    blocks: list[Block] = []
    live: list[Value] = []
    for number, call in enumerate(calls):
        live = [value for value in (*live, *begun[number]) if value in staying and lives[value][1] >= number]
        blocks.append(_block(call, live, lives, staying, device))
    return blocks


def _block(
    call: KernelCall,
    live: list[Value],
    lives: Mapping[Value, tuple[int, int]],
    staying: set[Value],
    device: Device,
) -> Block:
    """A block for a call beside the `live` values, which are spilled as necessary."""
    while True:
        free = device.tcm_nbytes - sum(map(_nbytes, live))
        # tiny blocks beside many values would cost more launches and transfers than spilling one of these
        least = min(footprint(call, call.space, staying.__contains__), device.tcm_nbytes // RESERVE)
        block = choose_block(call, free, staying.__contains__, device) if free >= least else None
        if block is not None:
            return block
        if not live:
            raise PreprocessError(
                f"kernel {call.kernel} needs {smallest_footprint(call)} bytes of TCM for one tile, and {device.name}"
                f" has {device.tcm_nbytes}"
            )
        largest = max(live, key=lambda value: (_nbytes(value), lives[value]))
        live.remove(largest)
        staying.discard(largest)


def _buffers(
    calls: Sequence[KernelCall],
    blocks: Sequence[Block],
    lives: Mapping[Value, tuple[int, int]],
    staying: set[Value],
    ahead: set[tuple[int, int]],
) -> tuple[list[Lifetime], list[Value | tuple[int, int]]]:
    """The lifetimes of buffers and their owners: a value, or the use of a call, with two buffers if it changes. The
    first buffer of a use that is `ahead` lives from the call before on."""
    lifetimes: list[Lifetime] = []
    owners: list[Value | tuple[int, int]] = []
    for value in lives:
        if value in staying:
            lifetimes.append(Lifetime(len(lifetimes), _nbytes(value), *lives[value]))
            owners.append(value)
    for number, (call, block) in enumerate(zip(calls, blocks, strict=True)):
        tile = tuple((0, size) for size in block.sizes)
        for index, use in enumerate(call.uses):
            if use.view.value not in staying:
                # the next part is loaded into the second buffer while the kernel reads the first
                for copy in range(2 if changes(use, call, block.sizes) else 1):
                    nbytes = max(box_nbytes(use.view, box_of(use, tile)), 1)
                    first = number - (copy == 0 and (number, index) in ahead)
                    lifetimes.append(Lifetime(len(lifetimes), nbytes, first, number))
                    owners.append((number, index))
    return lifetimes, owners


def _ahead(
    calls: Sequence[KernelCall],
    lifetimes: Sequence[Lifetime],
    owners: Sequence[Value | tuple[int, int]],
    device: Device,
) -> set[tuple[int, int]]:
    """Uses (call, number) whose first tile may be loaded during the call before, as far as there is room: operands that
    the call before does not write."""
    free: list[int] = [device.tcm_nbytes] * len(calls)
    for lifetime in lifetimes:
        for number in range(lifetime.first, lifetime.last + 1):
            free[number] -= -(-lifetime.nbytes // ALIGNMENT) * ALIGNMENT
    ahead: set[tuple[int, int]] = set()
    for lifetime, owner in zip(lifetimes, owners, strict=True):
        if isinstance(owner, Value) or owner[0] == 0 or owner in ahead:
            continue
        number, index = owner
        use, before = calls[number].uses[index], calls[number - 1]
        # an output is not loaded, and an operand that the call before writes is not complete yet
        if use is calls[number].output or use.view.value is before.output.view.value:
            continue
        nbytes = -(-lifetime.nbytes // ALIGNMENT) * ALIGNMENT
        if nbytes <= free[number - 1]:
            free[number - 1] -= nbytes
            ahead.add(owner)
    return ahead
