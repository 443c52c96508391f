"""A validated program + the memory of a call -> its outputs: commands one after the other, in NumPy.

Transfers happen when they are issued. The validator has checked that this makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from delegraph_dsp.program import ITEM_NBYTES, Launch, Operand, Program, Result, Transfer, Wait
from delegraph_dsp.runtime.kernels import TABLE
from delegraph_machines.values import with_logs

if TYPE_CHECKING:
    from delegraph.interfaces import EventTracer

__all__ = ["Machine", "Regions"]

Bytes: TypeAlias = NDArray[np.uint8]
Regions: TypeAlias = Sequence[Bytes]
"""The bytes of each region of outer memory."""

Step: TypeAlias = Callable[[Regions], None]


class Machine:
    """A program, and a tightly coupled memory of its own; a `tracer` is told each operator's value. One call at a
    time."""

    def __init__(self, program: Program, tracer: EventTracer | None = None) -> None:
        self.stopped = False
        self._tcm: Bytes = np.zeros(program.tcm_nbytes, np.uint8)
        commands = [command for command in program.commands if not isinstance(command, Wait)]
        self._steps = [self._step(command) for command in commands]
        if tracer is not None:
            logs = {
                number: partial(self._log, partial(tracer.log_value, own.name, delegate_debug_id=number), own.result)
                for number, own in enumerate(program.operators)
                if own.result is not None
            }
            self._steps = with_logs(self._steps, [operator_of(command) for command in commands], logs)

    def run(self, regions: Regions) -> bool:
        """Execute all commands; whether the end was reached, or `stopped` was set before."""
        with np.errstate(all="ignore"):
            for step in self._steps:
                if self.stopped:
                    return False
                step(regions)
        return True

    def _log(self, log: Callable[..., None], result: Result, regions: Regions) -> None:
        memory = self._tcm if result.region is None else regions[result.region]
        strides = [stride * ITEM_NBYTES[result.dtype] for stride in result.strides]
        log(value=np.ndarray(result.shape, result.dtype, memory.data, result.begin, strides))

    def _step(self, command: Transfer | Launch) -> Step:
        if isinstance(command, Launch):
            arrays = [self._array(operand) for operand in command.operands]
            return partial(_launch, TABLE[command.kernel].function, arrays, command.integers, command.reals)
        inside = self._tcm[command.tcm : command.tcm + command.nbytes].reshape(command.rows, command.row_nbytes)
        return partial(_load if command.load else _store, command, inside)

    def _array(self, operand: Operand) -> NDArray[Any]:
        size = ITEM_NBYTES[operand.dtype]
        strides = [stride * size for stride in operand.strides]
        return np.ndarray(operand.shape, operand.dtype, self._tcm.data, operand.offset, strides)


def operator_of(command: Transfer | Launch) -> int:
    """The number of the operator that a command works for."""
    return command.task if isinstance(command, Transfer) else command.operator


def _launch(
    function: Callable[..., None],
    arrays: Sequence[NDArray[Any]],
    integers: Sequence[int],
    reals: Sequence[float],
    regions: Regions,
) -> None:
    function(arrays, integers, reals)


def _load(transfer: Transfer, inside: Bytes, regions: Regions) -> None:
    inside[...] = _outside(transfer, regions)


def _store(transfer: Transfer, inside: Bytes, regions: Regions) -> None:
    _outside(transfer, regions)[...] = inside


def _outside(transfer: Transfer, regions: Regions) -> Bytes:
    """The rows in outer memory; the validator has checked that they lie within."""
    shape, strides = (transfer.rows, transfer.row_nbytes), (transfer.stride, 1)
    return np.ndarray(shape, np.uint8, regions[transfer.region].data, transfer.begin, strides)
