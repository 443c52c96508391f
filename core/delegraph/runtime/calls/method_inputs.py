"""A call's inputs -> checked together, each put where the method's instructions find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from delegraph.errors import InvalidArgument, RuntimeFault, restated
from delegraph.program.contract import Dims, MethodContract
from delegraph.program.schema import ExecutionPlan, Tensor
from delegraph.runtime.calls.arguments import Arguments
from delegraph.runtime.calls.contract import dims_of_inputs, relation_check
from delegraph.runtime.calls.inputs import InputSetter, borrowing_setter, expected_text, give_back, input_setter
from delegraph.runtime.values.borrowing import Borrowing
from delegraph.runtime.values.values import ValueTable
from delegraph.runtime.values.writes import changed_inputs, unplanned_inputs

if TYPE_CHECKING:
    from delegraph.runtime.calls.device_inputs import Place
    from delegraph.runtime.values.uses import Group

__all__ = ["MethodInputs"]


class MethodInputs:
    """The inputs of one loaded method, of which those that are `lent`, by index, may lie where the caller has them.
    `places` are the devices that inputs are on, by index.

    `borrowed` are the inputs, by position, that a call reads there; all others it copies. Raises `InvalidProgram` for a
    contract of other inputs, and `NotSupported` for inputs that are lists.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        values: ValueTable,
        contract: MethodContract | None,
        lent: Mapping[int, Group],
        borrowing: Borrowing,
        places: Mapping[int, Place],
    ) -> None:
        self._plan = plan
        self._places = places
        self._values = values
        self._contract = contract
        self._dims = dims_of_inputs(contract, plan)
        self._changed = changed_inputs(plan)
        self.are_set = not plan.inputs
        self.of_steps = [self._setter(index, dims, lent) for index, dims in zip(plan.inputs, self._dims, strict=True)]
        self.of_calls = [
            borrowing_setter(values, index, dims, lent[index].views) if index in lent else setter
            for index, dims, setter in zip(plan.inputs, self._dims, self.of_steps, strict=True)
        ]
        if borrowing.inputs == "borrow":
            self.of_steps = self.of_calls
        # What is a caller's on a device, a frame of a camera say, goes back to him behind each call.
        lying_there = {i for i in plan.inputs if i in places and i in values.moving and values.moving[i].home is None}
        own = (index for group in lent.values() for index in group.values)
        self.lent = (*own, *sorted(lying_there.difference(plan.outputs)))
        shared = unplanned_inputs(plan) if borrowing.inputs != "copy" else frozenset[int]()
        self.borrowed = tuple(i for i, index in enumerate(plan.inputs) if index in lent or index in shared)
        self._check_relations = self._relation_check()

    def set(self, inputs: Sequence[object], setters: Sequence[InputSetter]) -> None:
        """Set all of them, as `of_calls` or `of_steps` do. Raises `InvalidArgument` or `InvalidType`."""
        if len(inputs) != len(setters):
            raise InvalidArgument(self._wrong_count(len(inputs)))
        self.are_set = False
        index = 0
        try:
            for setter in setters:
                setter(inputs[index])
                index += 1
        except RuntimeFault as error:
            where = f"method {self._plan.name!r}, {self.arguments.names[index]}"
            raise restated(error, f"{where}: {error}") from error
        if self._check_relations is not None:
            self._check_relations()
        self.are_set = True

    def give_back(self) -> None:
        """The call is over: let go of the caller's arrays. Needed where some are `lent`."""
        self.are_set = False
        give_back(self._values, self.lent)

    @cached_property
    def arguments(self) -> Arguments:
        """The inputs' names, and how a call's arguments become inputs."""
        parameters = () if self._contract is None else self._contract.parameters
        return Arguments(self._plan.container_meta_type.encoded_inp_str, len(self._plan.inputs), parameters)

    def _setter(self, index: int, dims: Dims | None, lent: Mapping[int, Group]) -> InputSetter:
        views = lent[index].values[1:] if index in lent else ()
        return input_setter(
            self._values, index, dims, views=views, changed=index in self._changed, there=self._places.get(index)
        )

    def _relation_check(self) -> Callable[[], None] | None:
        """A check of the inputs' shapes against each other; None where the export assumed no relation."""
        if self._contract is None or not self._contract.relations:
            return None
        check = relation_check(self._contract.relations, lambda: self.arguments.names)
        slots, name = self._values.slots, self._plan.name
        inputs = [(index, dim is not None) for index, dim in zip(self._plan.inputs, self._dims, strict=True)]

        def check_shapes() -> None:
            try:
                check(tuple([slots[index].shape if is_tensor else () for index, is_tensor in inputs]))
            except InvalidArgument as error:
                raise InvalidArgument(f"method {name!r}: {error}") from error

        return check_shapes

    def _wrong_count(self, count: int) -> str:
        records = [self._plan.values[index] for index in self._plan.inputs]
        expected = ", ".join(
            f"{name}: {expected_text(record, dims)}" if isinstance(record, Tensor) else f"{name}: {record!r}"
            for name, record, dims in zip(self.arguments.names, records, self._dims, strict=True)
        )
        return f"method {self._plan.name!r} takes {len(records)} inputs ({expected}), got {count}"
