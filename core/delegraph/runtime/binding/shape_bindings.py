"""The shapes of a call -> instructions bound to them: while these stay, a dynamic method runs as a static one.

A method whose shapes change gathers the arguments of each instruction when it runs, and a kernel works out its output's
shape each time. After a run all shapes are known; they hold for every call whose inputs have the same ones, unless a
shape depends on a tensor's content. So the second run in a row with the same shapes is followed by binding all
instructions to the arrays as they are now:

    dynamic:  gather(slots) -> kernel(context, *arrays) -> resize(out, shape)
    bound:    kernel.bind(context, *arrays)()

A bound call that wants another shape for a tensor after all stops before it computes (`ShapesChanged`), and the run
goes on in the dynamic instructions from that very call.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from delegraph.interfaces.backend import Argument
from delegraph.interfaces.kernel import BoundCall, Kernel
from delegraph.lazy_dataclass import dataclass, replace
from delegraph.program.kernel_calls import Arguments, Need
from delegraph.program.limits import Limits
from delegraph.program.prim_op_names import ET_VIEW
from delegraph.program.schema import DelegateCall, ExecutionPlan, Instruction, KernelCall
from delegraph.program.walk import instructions
from delegraph.runtime.binding.instructions import Binder, replaced_values
from delegraph.runtime.binding.schedule import Schedule
from delegraph.runtime.execution import executor
from delegraph.runtime.execution.executor import Block, FaultOf, ShapesChanged
from delegraph.runtime.execution.in_flight import Flight
from delegraph.runtime.execution.stop import Stop
from delegraph.runtime.resolution.context import MethodContext
from delegraph.runtime.resolution.delegates import Delegate
from delegraph.runtime.resolution.prim_ops import LOCAL_SCALAR_DENSE, OF_SHAPE, SCALAR_OPS, ScalarOp
from delegraph.runtime.values.values import LISTS_OF_VALUES, Array, MovingTensor, Shape, ValueTable

KEPT: Final = 4
"""For so many shapes bindings are kept. Each may hold repacked weights, so there are few."""

ATTEMPTS: Final = 3
"""So often in a row may bindings turn out wrong; then the method stays dynamic, since its shapes depend on content."""

Shapes: TypeAlias = tuple[Shape, ...]


class ShapeBindings:
    """The run of a method whose inputs have no fixed shape: its dynamic blocks, or blocks bound to the shapes at hand.

    `bind(binder)` makes blocks of a binder's calls, as they were made for the dynamic ones.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        values: ValueTable,
        dynamic: Sequence[Block],
        binder: Callable[[SettledValues], Binder],
        bind: Callable[[Binder], tuple[Block, ...]],
        fault_of: FaultOf,
        limits: Limits,
    ) -> None:
        self._inputs = [index for index in plan.inputs if index in values.moving]
        self._values = values
        self._settled = SettledValues(values, unsettled_values(plan, values))
        self._dynamic = dynamic
        self._binder = binder
        self._bind = bind
        self._fault_of = fault_of
        self._limits = limits
        self._bound: OrderedDict[Shapes, _Bound] = OrderedDict()
        self._wrong = 0
        self._current: Shapes | None = None
        """The shapes whose arrays stand in the slots; None if nobody knows."""
        self._previous: Shapes | None = None

    def run(self, stop: Stop) -> None:
        """Execute on the inputs that are set. Raises as `executor.run`."""
        slots = self._values.slots
        shapes = tuple([slots[index].shape for index in self._inputs])
        bound = self._bound.get(shapes)
        if bound is None:
            self._run_dynamic(shapes, stop)
            return
        if self._current != shapes:
            bound.put_back(self._values)
            self._bound.move_to_end(shapes)
        self._current = None  # nobody knows what stands in the slots if the run is broken off
        try:
            executor.run(bound.blocks, self._fault_of, self._limits, stop)
        except ShapesChanged as changed:
            del self._bound[shapes]
            self._wrong += 1
            # The calls before this one computed with the right shapes, and a delegate with state may not run twice.
            executor.run(self._dynamic, self._fault_of, self._limits, stop, changed.block, changed.call)
        else:
            self._current = self._previous = shapes
            self._wrong = 0

    def _run_dynamic(self, shapes: Shapes, stop: Stop) -> None:
        self._current = None
        visited: set[int] = set()
        executor.run(self._dynamic, self._fault_of, self._limits, stop, visited=visited)
        # Binding takes longer than a dynamic run: only shapes that come twice in a row are worth it.
        again, self._previous = shapes == self._previous, shapes
        if again and self._wrong < ATTEMPTS:
            self._bound[shapes] = self._bind_now(visited)
            while len(self._bound) > KEPT:
                self._bound.popitem(last=False)

    def _bind_now(self, visited: set[int]) -> _Bound:
        """Blocks bound to the values in the slots. A block that did not run (a branch that was not taken) stays
        dynamic: its slots have values of other shapes.
        """
        settled = self._settled
        settled.refresh_lists()
        # Bound calls hold these arrays, so the slots must hold the same ones whenever the calls run.
        arrays = [(tensor, tensor.array) for tensor in settled.settled_tensors()]
        scalars = [(index, settled.slots[index]) for index in settled.settled_scalars()]
        lists = [(items, list(items)) for items in settled.settled_lists()]
        # Any binder cuts the same chains into the same blocks, so that a position means the same here as in `visited`.
        blocks = tuple(
            block if position in visited or not block.calls else replace(block, calls=(_go_on_dynamically,))
            for position, block in enumerate(self._bind(self._binder(settled)))
        )
        return _Bound(blocks, arrays, scalars, lists)


@dataclass(frozen=True, slots=True)
class _Bound:
    """Blocks, and the values in the slots when they were bound."""

    blocks: tuple[Block, ...]
    arrays: list[tuple[MovingTensor, Array | None]]
    scalars: list[tuple[int, object]]
    lists: list[tuple[list[object], list[object]]]

    def put_back(self, values: ValueTable) -> None:
        """Let the slots be as they were."""
        for tensor, array in self.arrays:
            values.place(tensor, array)
        for index, value in self.scalars:
            values.slots[index] = value
        for items, content in self.lists:
            items[:] = content


# ---- values that stay while shapes do --------------------------------------------------------------


def unsettled_values(plan: ExecutionPlan, values: ValueTable) -> set[int]:
    """The values that change from run to run although all shapes stay: scalars read from tensors, results computed of
    them, loop counters, and tensors whose memory changes.

    To be called before the first run, while tensors without memory of their own have none.
    """
    replaced = Counter(replaced_values(plan))
    settled = {
        index
        for index, tensor in values.moving.items()
        if tensor.memory is not None and not tensor.moves and index not in replaced
    }

    def stands_still(index: int) -> bool:
        record = values.records[index]
        if isinstance(record, LISTS_OF_VALUES):
            return all(stands_still(item) for item in record.items if item >= 0)
        return index in settled or index not in values.varying

    # A value that two instructions replace (a loop's counter) has no content that holds for the whole run.
    computed = [(sources, result) for sources, result in _of_shapes(plan) if replaced[result] == 1]
    # Results of settled arguments are settled, in however many steps.
    while settled_results := {
        result for sources, result in computed if result not in settled and all(map(stands_still, sources))
    }:
        settled |= settled_results
    return {index for index in values.varying if not stands_still(index)}


def _of_shapes(plan: ExecutionPlan) -> Iterator[tuple[Sequence[int], int]]:
    """(arguments, result) of the instructions that replace a value, and look at shapes and numbers alone.

    The size of an input stays also where its memory does not, so the input is no argument of it.
    """
    for _, instruction in instructions(plan):
        if not isinstance(instruction, KernelCall):
            continue
        op, args = str(plan.operators[instruction.op_index]), instruction.args
        if op in OF_SHAPE:
            yield [index for index in args[:-1] if index not in plan.inputs], args[-1]
        elif op == ET_VIEW or (op in SCALAR_OPS and op != LOCAL_SCALAR_DENSE):
            yield args[:-1], args[-1]


class SettledValues(ValueTable):
    """The value table `values`, of which only `unsettled` vary: for binding to the values in the slots."""

    def __init__(self, values: ValueTable, unsettled: set[int]) -> None:
        slots, moving = values.slots, values.moving
        super().__init__(values.records, slots, moving, unsettled, values.allocate, values.unbounded_bytes)
        self._settled = values.varying - unsettled
        self._by_identity = values._by_identity

    def resize(self, out: Array, shape: Sequence[int]) -> Array:
        """As `ValueTable.resize`; raises `ShapesChanged` for a tensor to which calls may be bound."""
        if out.shape == tuple(shape):
            return out
        tensor = self._by_identity.get(id(out))
        if tensor is not None and tensor.index in self.varying:
            return super().resize(out, shape)
        raise ShapesChanged

    def refresh_lists(self) -> None:
        """Bring all lists up to date, also those that the last run did not look at."""
        for index, record in enumerate(self.records):
            if isinstance(record, LISTS_OF_VALUES):
                self.slots[index][:] = [None if item < 0 else self.slots[item] for item in record.items]

    def settled_tensors(self) -> Iterator[MovingTensor]:
        """The tensors that have their place and, while shapes stay, their shape."""
        return (tensor for index, tensor in self.moving.items() if index in self._settled)

    def settled_scalars(self) -> Iterator[int]:
        """The indices of numbers that follow from shapes."""
        return (i for i in self._settled if i not in self.moving and not isinstance(self.records[i], LISTS_OF_VALUES))

    def settled_lists(self) -> Iterator[list[object]]:
        """The lists whose items are settled."""
        return (self.slots[i] for i in self._settled if isinstance(self.records[i], LISTS_OF_VALUES))


class SettledBinder(Binder):
    """Binds the instructions of one plan to the shapes at hand."""

    values: SettledValues

    def __init__(
        self,
        plan: ExecutionPlan,
        values: SettledValues,
        kernels: Mapping[Need, Kernel],
        delegates: Sequence[Delegate],
        context: MethodContext,
        schedule: Schedule,
    ) -> None:
        super().__init__(plan, values, kernels, delegates, context.over(values), schedule)
        self.delegate_context = context

    def bind(self, instruction: Instruction) -> BoundCall:
        """As `Binder.bind`; an instruction that did not run, or runs several times with other shapes, may refuse the
        values in the slots, by any error, and becomes a call that goes on dynamically.
        """
        try:
            return super().bind(instruction)
        except Exception:
            return _go_on_dynamically

    def delegates_argument(self, index: int) -> Argument:
        """The array itself: a delegate may ask for another shape of it, by which it is known."""
        argument: Argument = self.slots[index]
        return argument

    def scalar_op(self, name: str, op: ScalarOp, args: Arguments) -> BoundCall:
        """A number that follows from shapes is there already."""
        return _nothing if self.values.fixed(args[-1:]) else super().scalar_op(name, op, args)

    def view(self, args: Arguments) -> BoundCall:
        """A view of a settled tensor is there already."""
        return _nothing if self.values.fixed(args[-1:]) else super().view(args)

    def delegate(self, call: DelegateCall) -> BoundCall:
        """A delegate may have state, so it is not called twice: its outputs' shapes are checked afterwards."""
        return self.with_shapes_checked(call, lambda: super(SettledBinder, self).delegate(call))

    def submit(self, call: DelegateCall, flight: Flight) -> BoundCall:
        """As `bind`."""
        try:
            return super().submit(call, flight)
        except Exception:
            return _go_on_dynamically

    def wait(self, call: DelegateCall, flight: Flight) -> BoundCall:
        """The same: until it has ended, nobody looks at its outputs."""
        return self.with_shapes_checked(call, lambda: super(SettledBinder, self).wait(call, flight))

    def with_shapes_checked(self, call: DelegateCall, bind: Callable[[], BoundCall]) -> BoundCall:
        """The call that `bind` makes, which raises `ShapesChanged` where it is followed by other shapes."""
        values, slots = self.values, self.slots
        expected = [(index, slots[index]) for index in call.args if index in values.moving and values.fixed((index,))]
        if not expected:
            return bind()
        unchanged = _as_expected(slots, expected)
        execute = bind()  # binding alone may resize an output
        if not unchanged():
            raise ShapesChanged

        def run() -> None:
            execute()
            if not unchanged():
                raise ShapesChanged(done=True)

        return run


def _as_expected(slots: Sequence[object], expected: Sequence[tuple[int, Array]]) -> Callable[[], bool]:
    return lambda: all(slots[index] is array for index, array in expected)


def _nothing() -> None:
    """A call with nothing to do while shapes stay."""


def _go_on_dynamically() -> None:
    raise ShapesChanged
