"""Instruction records + values + kernels + delegates -> bound calls.

Every instruction becomes a call without arguments. If all its arguments are fixed they are put into it here; the rest
are gathered from the value table when it runs. `blocks.py` puts them into blocks, `executor.py` runs those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from inspect import CO_VARARGS
from types import FunctionType
from typing import TYPE_CHECKING

import numpy as np

from delegraph.errors import (
    Internal,
    InvalidArgument,
    InvalidProgram,
    OperatorMissing,
    PluginConflict,
    restated,
)
from delegraph.interfaces.kernel import BoundCall, Kernel
from delegraph.program.devices import CPU, tagged_device
from delegraph.program.kernel_calls import Arguments, Need, kernel_key, needed_kernels, split_arguments
from delegraph.program.prim_op_names import DEVICE_COPIES, ET_COPY_INDEX, ET_VIEW
from delegraph.program.schema import (
    Bool,
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    ScalarType,
    Tensor,
)
from delegraph.program.walk import instructions
from delegraph.runtime.binding.schedule import Schedule
from delegraph.runtime.execution.in_flight import Flight
from delegraph.runtime.resolution.context import MethodContext
from delegraph.runtime.resolution.kernels import KernelRegistry
from delegraph.runtime.resolution.prim_ops import SCALAR_OPS, ScalarOp, et_copy_index, view_shape
from delegraph.runtime.values.device_memory import copy_across
from delegraph.runtime.values.values import Array, ValueTable, gatherer
from delegraph.runtime.values.writes import WriteCheck, unplanned_inputs

if TYPE_CHECKING:
    from delegraph.interfaces.backend import Argument
    from delegraph.runtime.resolution.delegates import Delegate


def replaced_values(plan: ExecutionPlan) -> Iterator[int]:
    """The values that some instruction replaces by another object: results of scalar operators, moves and views."""
    for _, instruction in instructions(plan):
        if isinstance(instruction, MoveCall):
            # A tensor is moved by copying its elements (`Binder.move`): its array stays.
            if not isinstance(plan.values[instruction.move_to], Tensor):
                yield instruction.move_to
        elif isinstance(instruction, KernelCall) and instruction.args:
            op = str(plan.operators[instruction.op_index])
            if op == ET_VIEW or op in SCALAR_OPS:
                yield instruction.args[-1]
            elif op != ET_COPY_INDEX:
                result = split_arguments(instruction.args, plan.values)[1]
                if result is not None:
                    yield result


def resolve_kernels(plan: ExecutionPlan, registry: KernelRegistry) -> dict[Need, Kernel]:
    """The kernel for each operator and key that `plan` calls, prim ops excepted.

    Raises one `OperatorMissing` that names every operator without a kernel, or one `PluginConflict` that names those
    for which several libraries have kernels of equal rank, and no order was given.
    """
    try:
        return registry.resolve(needed_kernels(plan))
    except (OperatorMissing, PluginConflict) as error:
        raise restated(error, f"method {plan.name!r}: {error}") from error


class Binder:
    """Binds the instructions of one plan. `bind` makes the call of each kind of instruction."""

    def __init__(
        self,
        plan: ExecutionPlan,
        values: ValueTable,
        kernels: Mapping[Need, Kernel],
        delegates: Sequence[Delegate],
        context: MethodContext,
        schedule: Schedule,
    ) -> None:
        self.plan = plan
        self.schedule = schedule
        self.values = values
        self.slots = values.slots
        self.records = plan.values
        self.kernels = kernels
        self.delegates = delegates
        self.context = self.delegate_context = context
        self.op_names = [str(operator) for operator in plan.operators]
        self.check_writes = WriteCheck(plan)
        self.callers = unplanned_inputs(plan)

    def bind(self, instruction: Instruction) -> BoundCall:
        """The call that runs `instruction` (not a jump)."""
        self.check_writes(instruction, self.num_outputs(instruction))
        if isinstance(instruction, KernelCall):
            op = self.op_names[instruction.op_index]
            if op in SCALAR_OPS:
                return self.scalar_op(op, SCALAR_OPS[op], instruction.args)
            if op == ET_VIEW:
                return self.view(instruction.args)
            if op == ET_COPY_INDEX:
                return self.copy_index(instruction.args)
            if op in DEVICE_COPIES:
                return self.gathering(partial(copy_across, self.context.resize), instruction.args[:2])
            return self.kernel(instruction)
        if isinstance(instruction, DelegateCall):
            return self.delegate(instruction)
        if isinstance(instruction, MoveCall):
            return self.move(instruction)
        if isinstance(instruction, FreeCall):
            return self.free(instruction)
        raise InvalidProgram(f"unknown instruction {instruction!r}")

    def num_outputs(self, instruction: Instruction) -> int | None:
        """How many outputs the delegate that `instruction` calls says that it has."""
        return self.delegates[instruction.delegate_index].num_outputs if isinstance(instruction, DelegateCall) else None

    def condition(self, jump: JumpFalseCall) -> Callable[[], bool]:
        """Whether to go on with the next instruction: a bool, or a bool tensor without a false element."""
        slots, index = self.slots, jump.cond_value_index
        record = self.records[index]
        if isinstance(record, Bool):
            return lambda: bool(slots[index])
        if isinstance(record, Tensor) and record.scalar_type is ScalarType.BOOL:
            return lambda: bool(slots[index].all())
        raise InvalidProgram(f"a jump's condition is a Bool or a BOOL tensor, not {type(record).__name__}")

    # ---- one function for each kind of call ----

    def kernel(self, call: KernelCall) -> BoundCall:
        kernel = self.kernels[self.op_names[call.op_index], kernel_key(call.args, self.records)]
        args, result = split_arguments(call.args, self.records)
        _refuse_other_arity(kernel, len(args) + 1)
        if result is not None:  # a scalar, which has no memory to be written into: the kernel returns it
            return self.storing(partial(kernel.function, self.context), args, result)
        if not self.values.fixed(args):
            return self.gathering(partial(kernel.function, self.context), args)
        arguments = [self.slots[index] for index in args]
        if kernel.bind is not None:
            bound = kernel.bind(self.context, *arguments)
            if bound is not None:
                return bound
        return partial(kernel.function, self.context, *arguments)

    def delegate(self, call: DelegateCall) -> BoundCall:
        delegate = self.delegates[call.delegate_index]
        if self.values.fixed(call.args):
            args = [self.delegates_argument(index) for index in call.args]
            self.require_writable(delegate.outputs_of(args))
            return delegate.bind(self.delegate_context, args)
        # Only addresses change: a call bound to each of the last few is cheaper than arguments handed in anew.
        moving = self.elsewhere_each_time(call.args) if delegate.binds_again else ()
        if moving:
            from delegraph.runtime.binding.rebinding import bound_by_address

            return bound_by_address(self.slots, call.args, moving, partial(self.bind_again, delegate))
        context, handle, execute = self.delegate_context, delegate.handle, delegate.execute

        def run(*args: Argument) -> None:
            self.require_writable(delegate.outputs_of(args))
            execute(context, handle, args)

        return self.gathering(run, call.args)

    def submit(self, call: DelegateCall, flight: Flight) -> BoundCall:
        """The call that submits a delegate; `flight` keeps the event."""
        self.check_writes(call, self.num_outputs(call))
        delegate = self.delegates[call.delegate_index]
        submission, context, handle = delegate.submission, self.delegate_context, delegate.handle
        assert submission is not None
        if self.values.fixed(call.args):
            args = [self.delegates_argument(index) for index in call.args]
            self.require_writable(delegate.outputs_of(args))
            return partial(flight.begin, delegate.bind_submit(context, args), args)

        def run(*args: Argument) -> None:
            self.require_writable(delegate.outputs_of(args))
            flight.begin(partial(submission.submit, context, handle, args), args)

        return self.gathering(run, call.args)

    def wait(self, call: DelegateCall, flight: Flight) -> BoundCall:
        """The call that waits for a delegate that was submitted."""
        return flight.wait

    def elsewhere_each_time(self, args: Arguments) -> tuple[int, ...]:
        """The positions of the arguments that vary, if all that do are arrays of fixed shape whose memory changes."""
        moving = tuple(position for position, index in enumerate(args) if not self.values.fixed((index,)))
        return moving if all(self.is_array_elsewhere(args[position]) for position in moving) else ()

    def is_array_elsewhere(self, index: int) -> bool:
        tensor, record = self.values.moving.get(index), self.records[index]
        if tensor is None or not isinstance(record, Tensor) or tagged_device(record) != CPU:
            return False
        return tensor.moves and not tensor.resizable and tensor.kind is np.ndarray

    def bind_again(self, delegate: Delegate, args: Sequence[Argument]) -> BoundCall:
        args = [_own_view(arg) for arg in args]
        self.require_writable(delegate.outputs_of(args))
        return delegate.bind(self.delegate_context, args)

    def require_writable(self, outputs: Sequence[object]) -> None:
        """Raise unless they lie in the method's own memory; that one is a view of a constant shows only now."""
        for out in outputs:
            if isinstance(out, np.ndarray) and not out.flags.writeable:
                raise InvalidProgram("an output of the delegate lies in memory that is not the method's own")

    def delegates_argument(self, index: int) -> Argument:
        """The delegate's own view of a fixed value: a change of the view's shape leaves the value's shape alone."""
        return _own_view(self.slots[index])

    def scalar_op(self, name: str, op: ScalarOp, args: Arguments) -> BoundCall:
        if len(args) != op.arity + 1:
            raise InvalidProgram(f"{name} takes {op.arity} arguments and a result, got {len(args)} values")
        return self.storing(op.function, args[:-1], args[-1])

    def view(self, args: Arguments) -> BoundCall:
        """Resize the out tensor and let it be the argument's memory."""
        if len(args) != 3:
            raise InvalidProgram(f"{ET_VIEW} takes a tensor, sizes and a result, got {len(args)} values")
        values, slots = self.values, self.slots
        source, sizes, out = args
        if self.dtype(source) is not self.dtype(out):
            raise InvalidProgram(f"{ET_VIEW} takes a tensor of its result's dtype, not of another one")
        target, callers = values.moving[out], self.callers

        def run() -> None:
            array: Array = slots[source]
            shape = view_shape(array, slots[sizes])
            if not target.admits(shape):
                raise InvalidArgument(f"the view of shape {list(shape)} exceeds its bound {list(target.bound)}")
            view = array.reshape(shape)
            if source in callers:  # a view may not be a way to write into the caller's array
                view.flags.writeable = False
            values.place(target, view)

        return self.refreshing(run, args)

    def dtype(self, index: int) -> ScalarType | None:
        """Of the tensor `index`; None of any other value."""
        record = self.records[index]
        return record.scalar_type if isinstance(record, Tensor) else None

    def copy_index(self, args: Arguments) -> BoundCall:
        if len(args) < 3:
            raise InvalidProgram(f"{ET_COPY_INDEX} takes two tensors and an index, got {len(args)} values")
        return self.gathering(partial(et_copy_index, self.context), args[:3])

    def move(self, call: MoveCall) -> BoundCall:
        """Copy data, where ExecuTorch copies the handle.

        The branches of a `cond` share memory, and ExecuTorch's second live output overwrites the first; `move_to` has
        memory of its own, so that a copy is right on the same file.
        """
        source, target = self.records[call.move_from], self.records[call.move_to]
        values, slots = self.values, self.slots
        if not isinstance(source, Tensor) or not isinstance(target, Tensor):
            return lambda: slots.__setitem__(call.move_to, slots[call.move_from])
        same = values.fixed((call.move_from, call.move_to))
        if same and slots[call.move_from].shape == slots[call.move_to].shape:
            return partial(np.copyto, slots[call.move_to], slots[call.move_from])

        def run() -> None:
            array: Array = slots[call.move_from]
            np.copyto(values.resize(slots[call.move_to], array.shape), array)

        return run

    def free(self, call: FreeCall) -> BoundCall:
        """Only memory that the runtime allocated itself could be freed, and there is none: a tensor keeps its own."""
        return lambda: None

    # ---- how arguments get into a call ----

    def gathering(self, function: Callable[..., object], args: Arguments) -> BoundCall:
        gather, slots = gatherer(args), self.slots
        return self.refreshing(lambda: function(*gather(slots)), args)

    def storing(self, function: Callable[..., object], args: Arguments, result: int) -> BoundCall:
        gather, slots = gatherer(args), self.slots

        def run() -> None:
            slots[result] = function(*gather(slots))

        return self.refreshing(run, args)

    def refreshing(self, call: BoundCall, args: Arguments) -> BoundCall:
        """`call`, with the varying lists among `args` brought up to date first."""
        refreshers = [refresh for refresh in map(self.values.refresher, args) if refresh is not None]
        if not refreshers:
            return call

        def run() -> None:
            for refresh in refreshers:
                refresh()
            call()

        return run


def _refuse_other_arity(kernel: Kernel, number: int) -> None:
    """Raise `Internal` for a kernel's function that cannot be called with `number` arguments, its context included.

    By its code, as `inspect.signature` takes 10 us, and this is on the way to the first inference.
    """
    function = kernel.function
    if not isinstance(function, FunctionType) or function.__code__.co_flags & CO_VARARGS:
        return
    most = function.__code__.co_argcount
    if not most - len(function.__defaults__ or ()) <= number <= most:
        raise Internal(
            f"the kernel of {kernel.library!r} takes {most} parameters, and is called with {number}: the context, then"
            " the operator's arguments, its outs included"
        )


def _own_view(value: Argument) -> Argument:
    if isinstance(value, list):
        return [_own_view(item) for item in value]
    return value.view() if isinstance(value, np.ndarray) else value
