"""Plan -> which inputs may be read, and which outputs written, where the caller has them instead of in planned memory.

Whether a tensor can leave its place is what `uses.py` finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from delegraph.errors import InvalidArgument
from delegraph.lazy_dataclass import dataclass
from delegraph.program.dtypes import nbytes
from delegraph.program.schema import (
    ExecutionPlan,
    Tensor,
    TensorShapeDynamism,
)

if TYPE_CHECKING:
    from delegraph.runtime.values.uses import Group, Uses

__all__ = ["BORROWED_FROM", "Borrowing", "InputMode", "Lent", "OutputMode", "find_lent"]

InputMode: TypeAlias = Literal["auto", "borrow", "copy"]
OutputMode: TypeAlias = Literal["copy", "borrow"]

BORROWED_FROM: Final = 2**16
"""Bytes. To copy so many takes 3 us, as long as to hand onnxruntime the same tensor at another address; measured with
onnxruntime 1.23 and NumPy 2.4. Smaller ones are copied."""


@dataclass(frozen=True, slots=True)
class Borrowing:
    """The places where a method's inputs are read, and whose memory its outputs are in.

    inputs: "copy" copies all into the method's own memory. "borrow" reads them where the caller has them, if nothing
        writes there: during the call, or with `set_inputs` until inputs are set again. "auto" does so during a call
        with those from 64 KiB on that only delegates read, and copies the rest.
    outputs: "copy" gives arrays of the caller's own. "borrow" gives views of the method's memory, which the next call
        overwrites.

    Inputs without planned memory are the caller's arrays unless they are to be copied.
    """

    inputs: InputMode = "auto"
    outputs: OutputMode = "copy"

    def __post_init__(self) -> None:
        for name, modes in (("inputs", get_args(InputMode)), ("outputs", get_args(OutputMode))):
            if getattr(self, name) not in modes:
                known = ", ".join(map(repr, modes))
                raise InvalidArgument(f"{name}={getattr(self, name)!r}: {name} are one of {known}")


@dataclass(frozen=True, slots=True)
class Lent:
    """The groups of values that leave their planned places, by the index of the input or output."""

    inputs: Mapping[int, Group]
    outputs: Mapping[int, Group]


def find_lent(plan: ExecutionPlan, borrowing: Borrowing, uses: Callable[[], Uses], again: frozenset[int]) -> Lent:
    """The values that leave their planned places under `borrowing`. `again` are the delegates that can be bound anew to
    a caller's arrays, wherever those lie; an input that anything else reads is borrowed only if the caller says so.
    """
    by_all = borrowing.inputs == "borrow"
    inputs = _planned(plan, plan.inputs, 1 if by_all else BORROWED_FROM, dynamic=by_all)
    inputs = [] if borrowing.inputs == "copy" else inputs
    # Outputs may leave their places whatever `borrowing` says: who owns the arrays is decided in each call.
    outputs = _planned(plan, plan.outputs, BORROWED_FROM, dynamic=False)
    if not inputs and not outputs:
        return Lent({}, {})
    known = uses()
    of_inputs = {index: known.input_group(index) for index in inputs}
    of_outputs = {index: known.output_group(index) for index in outputs}

    def by_delegates(group: Group) -> bool:
        return group.delegates is not None and group.delegates <= again

    return Lent(
        {index: group for index, group in of_inputs.items() if group is not None and (by_all or by_delegates(group))},
        {index: group for index, group in of_outputs.items() if group is not None and by_delegates(group)},
    )


def _planned(plan: ExecutionPlan, indices: Sequence[int], nbytes_from: int, *, dynamic: bool) -> list[int]:
    """The planned tensors among `indices` that have at least so many bytes."""
    large = []
    for index in dict.fromkeys(indices):
        value = plan.values[index]
        if not isinstance(value, Tensor) or value.allocation_info is None:
            continue
        if not dynamic and value.shape_dynamism is not TensorShapeDynamism.STATIC:
            continue
        if nbytes(value.scalar_type, value.sizes) >= nbytes_from:
            large.append(index)
    return large
