"""Kernel calls in order -> for each its block, and which values stay in the TCM from one call to the next.

What kernels make stays as long as it is needed where there is room. Where a call's buffers do not fit beside what
stays, the largest of that is spilled: it lives in outer memory, and costs DMA. The memory planners then give every
buffer its place; what fits by its size and not by its place is spilled as well.

In what is left, buffers live one call longer: what a call reads first is fetched while the call before computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from delegraph.errors import PreprocessError
from delegraph.interfaces import Lifetime
from delegraph_dsp.aot.boxes import box_nbytes, box_of
from delegraph_dsp.aot.kernel_calls import KernelCall, Use, Value
from delegraph_dsp.aot.tiling import ALIGNMENT, Block, choose_block, footprint, smallest_footprint
from delegraph_dsp.device import Device
from delegraph_dsp.program import nbytes_of
from delegraph_machines.scratch import place

__all__ = ["Placed", "place_calls"]

RESERVE: Final = 4
"""A call that would like more than this part of the TCM for its buffers gets at least this part."""


@dataclass(frozen=True, slots=True)
class Placed:
    """`blocks` by call; `resident`: where values that stay in the TCM begin; `buffers`: where those of each use of each
    call do; `ahead`: the uses of each call whose first buffer is filled during the call before; `spilled`: values that
    kernels make and that live in outer memory. `nbytes` of TCM are taken in all, of which `lower_bound` is what no
    placement could do without."""

    blocks: tuple[Block, ...]
    resident: Mapping[Value, int]
    buffers: tuple[Mapping[int, tuple[int, ...]], ...]
    ahead: tuple[frozenset[int], ...]
    spilled: tuple[Value, ...]
    nbytes: int
    lower_bound: int


def place_calls(calls: Sequence[KernelCall], outputs: Sequence[Value], device: Device) -> Placed:
    """Choose blocks and places. Raises `PreprocessError` for a call that the TCM is too small for."""
    lives = _lifetimes(calls, outputs)
    staying = set(lives)
    while True:
        blocks = _blocks(calls, lives, staying, device)
        lifetimes, owners = _buffers(calls, blocks, lives, staying, set())
        placement = place(lifetimes, ALIGNMENT)
        if placement.nbytes <= device.tcm_nbytes or not staying:
            break
        staying.discard(max(staying, key=lambda value: (_nbytes(value), lives[value])))
    if placement.nbytes > device.tcm_nbytes:
        raise PreprocessError(f"buffers of {placement.nbytes} bytes do not fit in {device.tcm_nbytes} bytes of TCM")
    ahead = _ahead(calls, lifetimes, owners, device)
    while True:
        lifetimes, owners = _buffers(calls, blocks, lives, staying, ahead)
        placement = place(lifetimes, ALIGNMENT)
        if placement.nbytes <= device.tcm_nbytes or not ahead:
            break
        largest = sorted(ahead, key=lambda one: (-_nbytes(calls[one[0]].uses[one[1]].view.value), one))
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
    found = tuple(map(frozenset, early))
    return Placed(tuple(blocks), resident, tuple(buffers), found, spilled, placement.nbytes, placement.lower_bound)


def _nbytes(value: Value) -> int:
    return -(-nbytes_of(value.dtype, value.shape) // ALIGNMENT) * ALIGNMENT


def _lifetimes(calls: Sequence[KernelCall], outputs: Sequence[Value]) -> dict[Value, tuple[int, int]]:
    """Values that kernels make for other kernels -> the first and the last call that touches each."""
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
    """A block for each call beside what stays; takes out of `staying` what is in the way."""
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
    """A block for a call beside what is `live` of what stays."""
    while True:
        free = device.tcm_nbytes - sum(map(_nbytes, live))
        wanted = min(footprint(call, call.space, staying.__contains__), device.tcm_nbytes // RESERVE)
        block = choose_block(call, free, staying.__contains__, device) if free >= wanted else None
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
    """What needs a place, and whose it is: a value, or the use of a call, twice if it changes. The first buffer of a
    use that is `ahead` is needed from the call before on."""
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
                for copy in range(2 if changes(use, call, block) else 1):
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
    """Uses (call, number) whose first tile may come during the call before, by what there is room for: operands that
    the call before does not write."""
    free: list[int] = [device.tcm_nbytes] * len(calls)
    for one in lifetimes:
        for number in range(one.first, one.last + 1):
            free[number] -= -(-one.nbytes // ALIGNMENT) * ALIGNMENT
    found: set[tuple[int, int]] = set()
    for one, owner in zip(lifetimes, owners, strict=True):
        if isinstance(owner, Value) or owner[0] == 0 or owner in found:
            continue
        number, index = owner
        use, before = calls[number].uses[index], calls[number - 1]
        if use is calls[number].output or use.view.value is before.output.view.value:
            continue
        nbytes = -(-one.nbytes // ALIGNMENT) * ALIGNMENT
        if nbytes <= free[number - 1]:
            free[number - 1] -= nbytes
            found.add(owner)
    return found


def changes(use: Use, call: KernelCall, block: Block) -> bool:
    """Whether the operand is another one in another tile."""
    return any(axis is not None and block.sizes[axis] < call.space[axis] for axis in use.axes)
