"""Bound calls -> done: the loop that runs a method's instructions.

Nothing is looked up here. A chain was cut into blocks at its jumps when the method was loaded, so a program without
control flow is one block: a list of calls without arguments, run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import length_hint

from delegraph.errors import InvalidProgram, RuntimeFault
from delegraph.interfaces.kernel import BoundCall

MAX_INSTRUCTIONS = 10_000_000
"""Instructions that one execution may run, so that a loop that never ends is an error (ExecuTorch's limit)."""


@dataclass(frozen=True, slots=True)
class Block:
    """Calls of a straight run of instructions from `start` on in `chain`; then the jump on `condition`, if any.

    `if_true` and `if_false` are indices of blocks; the index after the last block ends the execution.
    """

    chain: int
    start: int
    calls: tuple[BoundCall, ...]
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
"""(chain, instruction, what was raised) -> the fault that says where it was."""


def run(
    blocks: Sequence[Block],
    fault_of: FaultOf,
    position: int = 0,
    call_index: int = 0,
    visited: set[int] | None = None,
) -> None:
    """Run from call `call_index` of block `position` to the end; `visited` gets the blocks that ran.

    Raises what `fault_of` makes of a failure.
    """
    left = MAX_INSTRUCTIONS
    while position < len(blocks):
        block = blocks[position]
        if visited is not None:
            visited.add(position)
        left -= len(block.calls) + 1
        if left < 0:
            endless = InvalidProgram(f"{MAX_INSTRUCTIONS:,} instructions were run; this loop never ends")
            raise fault_of(block.chain, block.start, endless)
        calls = iter(block.calls[call_index:])
        try:
            for call in calls:
                call()
        except Exception as error:
            # The iterator knows how far it came: the place of a failure costs the loop nothing.
            failed = len(block.calls) - length_hint(calls) - 1
            if isinstance(error, ShapesChanged):
                error.block, error.call = position, failed + error.done
                raise
            raise fault_of(block.chain, block.start + failed, error) from error
        call_index = 0
        if block.condition is None:
            position = block.if_true
            continue
        try:
            position = block.if_true if block.condition() else block.if_false
        except Exception as error:
            raise fault_of(block.chain, block.start + len(block.calls), error) from error
