"""`storage.Layout` -> groups of operators in order, the places of tensors between them, and the content of SRAM over
time.

At first everything is in SRAM. Where that is too much, the largest tensors go to DRAM, until each group of operators
has room for itself; operators whose intermediate result would only go out and in again become one group, a cascade,
where computing shared rows twice takes less time than the transfers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from delegraph.errors import PreprocessError
from delegraph.interfaces import Lifetime
from delegraph_machines.memories import access_cycles
from delegraph_machines.scratch import Placement, place
from delegraph_npu.aot import ir
from delegraph_npu.aot.storage import Storage, StorageLayout
from delegraph_npu.aot.tiling import ALIGNMENT, Plan, aligned, chain_boxes, plan_group
from delegraph_npu.aot.weight_blocks import WeightBlocks
from delegraph_npu.commands import Region
from delegraph_npu.device import Device

__all__ = ["Key", "Schedule", "schedule", "too_large"]

Key = tuple[object, ...]
"""The purpose of a buffer: a storage; or a group's number, a tensor or operator, and a turn."""

_LESS: Final = 0.9
"""The factor by which planning gets less SRAM after a placement left gaps; repeatedly."""

_ATTEMPTS: Final = 24


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """`plans` run one after the other. `sram` and `dram` have each buffer's offset; constants are in neither."""

    plans: tuple[Plan, ...]
    outside: frozenset[Storage]
    early: frozenset[int]
    """Plans whose first tiles can be loaded while the plan before runs."""
    sram: dict[Key, int]
    dram: dict[Key, int]
    sram_nbytes: int
    dram_nbytes: int
    lower_bound: int

    def __str__(self) -> str:
        lines = [f"{number}: {plan}" for number, plan in enumerate(self.plans)]
        lines += [f"SRAM: {self.sram_nbytes} bytes, at least {self.lower_bound}", f"DRAM: {self.dram_nbytes} bytes"]
        lines += [f"  {_text(key)} at {offset}" for key, offset in self.sram.items()]
        lines += [f"  DRAM {_text(key)} at {offset}" for key, offset in self.dram.items()]
        return "\n".join(lines) + "\n"


def _text(key: Key) -> str:
    return " ".join(str(getattr(part, "name", part)) for part in key)


def schedule(layout: StorageLayout, device: Device, blocks: WeightBlocks, optimize: str) -> Schedule:
    """Plan for the device's SRAM; to optimize "size", for half of it again and again, as long as that is enough.

    Raises `PreprocessError` for an operator that does not fit, in whatever tiles.
    """
    try:
        best = _fitting(layout, device, blocks, device.sram_nbytes)
    except PreprocessError:  # only gaps between buffers, if each operator fits alone
        best = _Planning(layout, device, blocks, device.sram_nbytes, apart=True).result()
    while optimize == "size":
        try:
            best = _fitting(layout, device, blocks, best.sram_nbytes // 2)
        except PreprocessError:
            break
    return best


def too_large(layout: StorageLayout, device: Device, blocks: WeightBlocks, less: int = 0) -> str | None:
    """The reason why an operator cannot be planned for the device's SRAM, less `less` bytes, even alone."""
    everything = {view.storage for view in layout.views.values()}
    room = device.sram_nbytes - less
    for operator in layout.graph.operators:
        if plan_group((operator,), layout.views, everything, room, blocks.split) is None:
            return _told(operator, room)
    return None


def _told(operator: ir.Operator, room: int) -> str:
    return f"{operator.output} does not fit into {room} bytes of SRAM, in whatever tiles"


def _fitting(layout: StorageLayout, device: Device, blocks: WeightBlocks, capacity: int) -> Schedule:
    room = capacity
    for _ in range(_ATTEMPTS):
        planned = _Planning(layout, device, blocks, room).result()
        if planned.sram_nbytes <= capacity:
            return planned
        room = int(room * _LESS)
    raise PreprocessError(
        f"NpuBackend: tiles of {len(layout.graph.operators)} operators have no place in {capacity} bytes"
    )


class _Planning:
    """`apart`: nothing stays in SRAM between two operators, each of which has all of it to itself."""

    def __init__(
        self, layout: StorageLayout, device: Device, blocks: WeightBlocks, room: int, *, apart: bool = False
    ) -> None:
        self.layout, self.device, self.blocks, self.room, self.apart = layout, device, blocks, room, apart
        self.storages = list(dict.fromkeys(view.storage for view in layout.views.values()))
        self.outside = {storage for storage in self.storages if apart or storage.content is not None}

    def result(self) -> Schedule:
        plans = self._plans([(operator,) for operator in self.layout.graph.operators])
        # again after joining: a cascade keeps tensors out of DRAM, but its tiles need more SRAM than single operators
        plans = plans if self.apart else self._plans(self._cascades(plans))
        keys, lifetimes, early = self._buffers(plans)
        sram = place(lifetimes, ALIGNMENT)
        dram_keys, dram = self._place_outside(plans)
        return Schedule(
            tuple(plans),
            frozenset(self.outside),
            frozenset(early),
            dict(zip(keys, sram.offsets, strict=True)),
            dict(zip(dram_keys, dram.offsets, strict=True)),
            sram.nbytes,
            dram.nbytes,
            sram.lower_bound,
        )

    # ---- what goes to DRAM ------------------------------------------------------------------------------------------

    def _plans(self, groups: Sequence[tuple[ir.Operator, ...]]) -> list[Plan]:
        """A plan for each group; the storages that must be in DRAM for it are added to `outside`."""
        while True:
            alive = self._alive(groups)
            plans: list[Plan] = []
            for number, group in enumerate(groups):
                # a tensor that a later group reads takes SRAM now, too
                here = [storage for storage, (first, last) in alive.items() if first <= number <= last]
                inside = [storage for storage in here if storage not in self.outside]
                budget = self.room - sum(aligned(storage.nbytes) for storage in inside)
                plan = plan_group(group, self.layout.views, self.outside, budget, self.blocks.split)
                if plan is None:
                    # one tensor more in DRAM changes the room of every group: start over
                    self._send_outside(group, inside)
                    break
                plans.append(plan)
            else:
                return plans

    def _send_outside(self, group: Sequence[ir.Operator], inside: Sequence[Storage]) -> None:
        if not inside:
            raise PreprocessError(
                f"NpuBackend: {_told(group[0], self.room)}; it needs a device with more, or smaller tensors",
                node=group[0].name,
            )
        # the largest: the fewest tensors then have to move
        self.outside.add(max(inside, key=lambda storage: storage.nbytes))

    def _alive(self, groups: Sequence[Sequence[ir.Operator]]) -> dict[Storage, tuple[int, int]]:
        """Storage -> the first and the last group in which it is needed; an output stays."""
        views, graph = self.layout.views, self.layout.graph
        alive: dict[Storage, tuple[int, int]] = {}
        inner = {operator.output for group in groups for operator in group[:-1]}

        def touch(tensor: ir.Tensor, number: int) -> None:
            storage = views[tensor].storage
            # tensors within a cascade exist as tiles only
            if tensor not in inner:
                first, last = alive.get(storage, (number, number))
                alive[storage] = min(first, number), max(last, number)

        for laid in graph.inputs:
            touch(laid.tensor, 0)
        for number, group in enumerate(groups):
            for operator in group:
                for tensor in (*operator.inputs, operator.output):
                    touch(tensor, number)
        for laid in graph.outputs:
            touch(laid.tensor, max(len(groups) - 1, 0))
        return alive

    # ---- cascades ---------------------------------------------------------------------------------------------------

    def _cascades(self, plans: Sequence[Plan]) -> list[tuple[ir.Operator, ...]]:
        """Neighbours joined where the tensor between them would go to DRAM and come back."""
        groups: list[tuple[ir.Operator, ...]] = []
        for plan in plans:
            group = plan.operators
            if groups and self._pays(groups[-1], group):
                groups[-1] = (*groups[-1], *group)
            else:
                groups.append(group)
        return groups

    def _pays(self, first: tuple[ir.Operator, ...], second: tuple[ir.Operator, ...]) -> bool:
        between = first[-1].output
        storage = self.layout.views[between].storage
        readers = [o for o in self.layout.graph.operators if between in o.inputs]
        shared = [t for t, view in self.layout.views.items() if view.storage is storage]
        # a tile can take a tensor's place only if nobody else reads it, or views that share its bytes
        if storage not in self.outside or readers != [second[0]] or len(shared) > 1:
            return False
        if any(laid.tensor is between for laid in self.layout.graph.outputs):
            return False
        plan = plan_group((*first, *second), self.layout.views, self.outside, self.room, self.blocks.split)
        if plan is None:
            return False
        memory = self.device.memory(Region.DRAM).memory()
        # written once, read once
        saved = 2 * access_cycles(memory, between.nbytes)
        return bool(saved > self._cycles_again(plan))

    def _cycles_again(self, plan: Plan) -> float:
        """The cycles for elements that several tiles of a cascade compute."""
        again = 0.0
        for operator in plan.operators[:-1]:
            position = plan.operators.index(operator)
            boxes = [chain_boxes(plan.operators, tile)[position] for tile in plan.tiles]
            elements = sum(_elements(box) for box in boxes)
            # tiles overlap by the rows that windows share: these are computed once for each tile
            more = elements / _elements(operator.output.whole) - 1
            products = operator.multiply_adds if isinstance(operator, ir.Convolution) else 0
            again += more * max(products / self.device.macs_per_cycle, _elements(operator.output.whole))
        return again

    # ---- places -----------------------------------------------------------------------------------------------------

    def _buffers(self, plans: Sequence[Plan]) -> tuple[list[Key], list[Lifetime], set[int]]:
        """All buffers of SRAM: storages, and each group's tiles, weights and tables; and the groups whose own buffers
        are there while the group before runs, because there is room."""
        alive = self._alive([plan.operators for plan in plans])
        keys: list[Key] = []
        spans: list[tuple[int, int, int]] = []
        loads = [0] * (len(plans) + 2)
        for storage, (first, last) in alive.items():
            if storage not in self.outside:
                keys.append((storage,))
                spans.append((aligned(storage.nbytes), first, last))
                for number in range(first, last + 1):
                    loads[number] += aligned(storage.nbytes)
        for number, plan in enumerate(plans):
            loads[number] += plan.nbytes
        early = set()
        for number, plan in enumerate(plans):
            # with room for both, the first loads of a group run beside the group before
            fits = number and not self.apart and loads[number - 1] + plan.nbytes <= self.room
            first = number - 1 if fits else number
            if first < number:
                early.add(number)
                loads[first] += plan.nbytes
            for (operator, operand), (nbytes, turns) in plan.buffers.items():
                keys += [(number, operator, operand, turn) for turn in range(turns)]
                spans += [(nbytes, first, number)] * turns
            for (operator, turn), nbytes in plan.constants():
                keys.append((number, operator, "constants", turn))
                spans.append((nbytes, first, number))
        return keys, [Lifetime(i, *span) for i, span in enumerate(spans)], early

    def _place_outside(self, plans: Sequence[Plan]) -> tuple[list[Key], Placement]:
        alive = self._alive([plan.operators for plan in plans])
        there = [storage for storage in alive if storage in self.outside and storage.content is None]
        lifetimes = [Lifetime(i, aligned(storage.nbytes), *alive[storage]) for i, storage in enumerate(there)]
        return [(storage,) for storage in there], place(lifetimes, ALIGNMENT)


def _elements(box: ir.Box) -> int:
    count = 1
    for begin, end in box:
        count *= end - begin
    return count
