"""Bound calls of kernels and delegates -> the same calls, watched: what they did to their arguments (check mode).

    load("m.pte", check=True)       or DELEGRAPH_CHECK=1, or `delegraph run --check`

Before a call its outputs are filled with a pattern, and its inputs are copied; behind it, an output that holds the
pattern still was never written, and an input that differs was changed. A delegate's first call goes through `execute`,
with inputs that are read-only, also where it is bound. All of this costs time, and nothing where it is off: calls are
wrapped when a method is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeGuard

import numpy as np

from delegraph.errors import Internal
from delegraph.interfaces.backend import BackendExecutionContext
from delegraph.interfaces.kernel import BoundCall
from delegraph.lazy_dataclass import dataclass
from delegraph.program.kernel_calls import read_tensors, result_tensors
from delegraph.program.prim_op_names import BUILT_IN
from delegraph.program.schema import DelegateCall, ExecutionPlan, Instruction, KernelCall
from delegraph.program.walk import tensor_indices
from delegraph.runtime.execution.faults import value_text
from delegraph.runtime.execution.tracing import values_written
from delegraph.runtime.resolution.delegates import Delegate
from delegraph.runtime.values.values import Array, ValueTable

__all__ = ["InstructionCheck"]


class InstructionCheck:
    """Puts checks around the bound calls of one plan."""

    def __init__(
        self, plan: ExecutionPlan, values: ValueTable, delegates: Sequence[Delegate], context: BackendExecutionContext
    ) -> None:
        self._plan = plan
        self._values = values
        self._slots = values.slots
        self._delegates = delegates
        self._context = context
        self._written = values_written(plan)

    def checked(self, call: BoundCall, chain: int, number: int) -> BoundCall:
        """`call`, the instruction `number` of `chain`, and checks around it if there is something to check."""
        instruction = self._plan.chains[chain].instructions[number]
        if isinstance(instruction, DelegateCall):
            count = self._delegates[instruction.delegate_index].num_outputs
            told = self._written[chain, number] if count is None else instruction.args[len(instruction.args) - count :]
            written = set(tensor_indices(told, self._plan.values))
            in_place = set[int]()
            call = self._first_executed(instruction, call)
        elif isinstance(instruction, KernelCall) and self._is_checked(instruction):
            written = set(result_tensors(instruction.args, self._plan.values))
            in_place = written & set(read_tensors(instruction.args, self._plan.values))
        else:
            return call
        operands = dict.fromkeys(tensor_indices(instruction.args, self._plan.values))
        return _CheckedCall(
            call,
            self._values,
            tuple(index for index in operands if index not in written),
            tuple(index for index in operands if index in written),
            frozenset(in_place),
            isinstance(instruction, DelegateCall),
            self._positions(instruction),
        )

    def _is_checked(self, call: KernelCall) -> bool:
        """Whether a call is watched: not the runtime's own operators, nor those that leave their result as it is, as
        `empty` does; and only if the call names its results."""
        operator = self._plan.operators[call.op_index]
        is_empty = operator.name.partition("::")[2].lstrip("_").removeprefix("new_").startswith("empty")
        names_results = bool(tuple(result_tensors(call.args, self._plan.values)))
        return str(operator) not in BUILT_IN and not is_empty and names_results

    def _first_executed(self, instruction: DelegateCall, call: BoundCall) -> BoundCall:
        """The bound `call`, but for the first time, when `execute` is to show that it does the same."""
        if not self._values.fixed(instruction.args):
            return call
        delegate, slots, again = self._delegates[instruction.delegate_index], self._slots, False

        def run() -> object:
            nonlocal again
            if again:
                return call()
            again = True
            args = [slot.view() if isinstance(slot := slots[index], np.ndarray) else slot for index in instruction.args]
            delegate.execute(self._context, delegate.handle, args)
            return None

        return run

    def _positions(self, instruction: Instruction) -> dict[int, int]:
        """Value -> its position among the arguments; a value in a list has the list's position."""
        assert isinstance(instruction, DelegateCall | KernelCall)
        places: dict[int, int] = {}
        for position, index in enumerate(instruction.args):
            for value in (index, *tensor_indices((index,), self._plan.values)):
                places.setdefault(value, position)
        return places


@dataclass(slots=True)
class _CheckedCall:
    call: BoundCall
    values: ValueTable
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    in_place: frozenset[int]
    """Those of the outputs that are read before they are written."""
    is_delegate: bool
    positions: dict[int, int]
    doubted: frozenset[int] = frozenset()
    """The small outputs that held the pattern after the last run, which they may have been given."""
    turn: bool = False

    def __call__(self) -> None:
        slots = self.values.slots
        written = [array for index in self.outputs if _is_array(array := self._whole(index))]
        read = [(index, array) for index in self.inputs if _is_array(array := slots[index])]
        # Inputs that share memory with an output change rightfully; all others have to be the same afterwards.
        before = [
            (index, array, array.copy())
            for index, array in read
            if not any(np.may_share_memory(array, out) for out in written)
        ]
        self.turn = not self.turn
        poisoned = [index for index in self.outputs if self._poison(index, [array for _, array in read])]
        with _frozen([array for _, array, _ in before] if self.is_delegate else []):
            returned = self.call()
        for index, array, copy in before:
            if not _same_bytes(array, copy):
                raise Internal(
                    f"it changed its argument {self.positions[index]}, {value_text(array)}, which is an input: others"
                    " read it too; compute in a copy, or in memory of your own" + _CHECKED
                )
        doubted = set()
        for index in poisoned:
            # A small integer may equal the pattern by chance; twice in a row, with another pattern, it hardly does.
            left = self._left(slots[index])
            if left and slots[index].nbytes < _SURE and slots[index].dtype.kind in "iu" and index not in self.doubted:
                doubted.add(index)
            elif left:
                raise Internal(self._unwritten(index, left, returned))
        self.doubted = frozenset(doubted)

    def _poison(self, index: int, read: Sequence[Array]) -> bool:
        """Fill all memory that an output may come to use; False if an array of `read` lies there, or it has none."""
        array = self._whole(index)
        if not _is_array(array) or not array.flags.writeable or index in self.in_place:
            return False
        if any(np.may_share_memory(array, source) for source in read):
            return False
        array[...] = self._pattern(array.dtype)
        return True

    def _whole(self, index: int) -> object:
        """The array that stands for an output, at its bound where its shape is to come yet."""
        tensor = self.values.moving.get(index)
        if tensor is None or tensor.moves or tensor.unbounded or not isinstance(tensor.memory, np.ndarray):
            return self.values.slots[index]
        return tensor.view(tensor.bound)

    def _pattern(self, dtype: np.dtype[np.generic]) -> Array:
        """One element, as an array, for NumPy makes True of any scalar bool: of floats a NaN that no processor makes,
        of bools neither of the two, of integers another one in each run."""
        byte = {"b": 0x5A, "i": 0xFD - self.turn, "u": 0xFD - self.turn}.get(dtype.kind, 0xFF)
        return np.full(dtype.itemsize, byte, np.uint8).view(dtype)

    def _left(self, array: Array) -> int:
        """How many elements hold the pattern still: all, or those whose pattern no computation gives."""
        if not array.size:
            return 0
        pattern = self._pattern(array.dtype).view(np.uint8)
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize)
        left = int((content == pattern).all(1).sum())
        is_sure = array.dtype.itemsize >= _SURE or array.dtype.kind not in "iu"
        return left if left == array.size or is_sure else 0

    def _unwritten(self, index: int, left: int, returned: object) -> str:
        array = self.values.slots[index]
        which = f"its argument {self.positions[index]}, {value_text(array)}, which is an output"
        what = (
            f"it did not write {which}" if left == array.size else f"it left {left} of {array.size} elements of {which}"
        )
        if self.is_delegate:
            return f"{what}: execute fills its outputs in place, out[...] = result" + _CHECKED
        why = f"; it returned {value_text(returned)}, which nobody reads" if returned is not None else ""
        return (
            f"{what}{why}: a kernel writes into out, np.copyto(out, result), and never binds the name anew" + _CHECKED
        )


_CHECKED: Final = " (found in check mode)"

_SURE: Final = 4
"""Bytes. A pattern of so many is not computed by chance; one of fewer is, now and then."""


def _is_array(value: object) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray)


def _same_bytes(array: Array, copy: Array) -> bool:
    """NaNs are the same as themselves."""
    if np.array_equal(array, copy):
        return True
    # Bits decide where values do not: NaN is unequal to itself.
    left, right = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (array, copy))
    return bool((left == right).all())


@contextmanager
def _frozen(arrays: Sequence[Array]) -> Iterator[None]:
    """Read-only while the body of the `with` runs."""
    frozen = [array for array in arrays if array.flags.writeable]
    for array in frozen:
        array.flags.writeable = False
    try:
        yield
    finally:
        for array in frozen:
            array.flags.writeable = True
