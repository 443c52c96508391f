"""Bound calls -> done: the loop that runs a method's instructions.

Nothing is looked up here. A chain was cut into blocks at its jumps when the method was loaded, so a program without
control flow is one block: a list of calls without arguments, run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from operator import length_hint
from time import monotonic

from delegraph.errors import LimitExceeded, RuntimeFault
from delegraph.interfaces.kernel import BoundCall
from delegraph.lazy_dataclass import dataclass
from delegraph.program.limits import Limits
from delegraph.runtime.execution.stop import Stop, time_exceeded


@dataclass(frozen=True, slots=True)
class Block:
    """Calls of a straight run of instructions in `chain`; then the jump on `condition`, if any.

    `places` has the instruction of each call, and then the jump's, or the one behind them; `count` is the number of
    instructions and one for the jump. `if_true` and `if_false` are indices of blocks; the index after the last block
    ends the execution.
    """

    chain: int
    places: Sequence[int]
    calls: tuple[BoundCall, ...]
    count: int
    if_true: int
    if_false: int
    condition: Callable[[], bool] | None = None


class ShapesChanged(Exception):
    """A call that was bound to the shapes of its arguments met another one; `done` says whether it did its work.

    `block` and `call` are where to go on. See `shape_bindings.py`.
    """

    def __init__(self, *, done: bool = False) -> None:
        self.done = done
        self.block = self.call = 0


FaultOf = Callable[[int, int, Exception], RuntimeFault]
"""(chain, instruction, exception) -> the fault that names the place."""


def run(
    blocks: Sequence[Block],
    fault_of: FaultOf,
    limits: Limits,
    stop: Stop,
    position: int = 0,
    call_index: int = 0,
    visited: set[int] | None = None,
) -> None:
    """Run from call `call_index` of block `position` to the end; `visited` gets the blocks that ran.

    Raises the fault that `fault_of` makes of a failure, of `stop`, or of a limit.
    """
    left = inf if limits.instructions is None else limits.instructions
    while position < len(blocks):
        block = blocks[position]
        if visited is not None:
            visited.add(position)
        left -= block.count  # the jump counts, too: a loop of jumps alone is endless as well
        try:
            run_block(block, fault_of, stop, call_index)
        except ShapesChanged as changed:
            changed.block = position
            raise
        call_index = 0
        if block.condition is None:
            position = block.if_true
            continue
        try:
            target = block.if_true if block.condition() else block.if_false
        except Exception as error:
            raise fault_of(block.chain, block.places[-1], error) from error
        # Without a jump back a run ends by itself, so nothing else has to be watched here.
        if target <= position:
            _check_loop(block, left, limits, stop, fault_of)
        position = target


def run_block(block: Block, fault_of: FaultOf, stop: Stop, call_index: int = 0) -> None:
    """Run the calls of `block` from `call_index` on: all of a program without jumps. Raises as `run`."""
    calls = stop.calls = iter(block.calls[call_index:])
    try:
        # A stop that came before this iterator was there moved an older one: it shows by its fault alone.
        if stop.fault is None:
            for call in calls:
                call()
    except Exception as error:
        # The iterator knows how far it came: the place of a failure costs the loop nothing.
        failed = len(block.calls) - (stop.remaining or length_hint(calls)) - 1
        if isinstance(error, ShapesChanged) and stop.fault is None:
            error.call = failed + error.done
            raise
        raise fault_of(block.chain, block.places[failed], stop.fault or error) from error
    # The iterator was moved to its end, so that the place is known by how many calls were left out.
    if stop.fault is not None:
        raise fault_of(block.chain, block.places[max(0, len(block.calls) - 1 - stop.remaining)], stop.fault)


def _check_loop(block: Block, left: float, limits: Limits, stop: Stop, fault_of: FaultOf) -> None:
    """Where a jump leads back. Raises the fault of a limit that is exceeded."""
    if left < 0:
        endless = LimitExceeded(
            f"{limits.instructions:,} instructions were run, which is their limit: this loop never ends,"
            " or set Limits(instructions=…) to give it more"
        )
        raise fault_of(block.chain, block.places[-1], endless)
    if monotonic() > stop.deadline:
        assert limits.seconds is not None
        raise fault_of(block.chain, block.places[-1], time_exceeded(limits.seconds))
