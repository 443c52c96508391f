"""A run -> its events: times of loads, instructions and delegates, and intermediate values.

An `EventTracer` is handed in when a method is loaded, and its calls are bound into that method's instructions. A
method loaded without one contains no trace of tracing. The vocabulary is ExecuTorch's `runtime/core/event_tracer.h`;
`etdump.py` makes ExecuTorch's file of the events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from delegraph.errors import MemoryAllocationFailed
from delegraph.interfaces.device import DeviceTensor
from delegraph.interfaces.platform import DEFAULT_PLATFORM, Platform
from delegraph.lazy_dataclass import dataclass, field
from delegraph.program.inlining import Origin
from delegraph.program.schema import (
    Bool,
    DelegateCall,
    ExecutionPlan,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Tensor,
    TensorList,
)
from delegraph.program.walk import Place, instructions
from delegraph.runtime.execution.faults import instruction_name

Call: TypeAlias = Callable[[], object]
Wrap: TypeAlias = Callable[[Call, int, int], Call]

LOAD_METHOD = "Method::load"
LOAD_DELEGATE = "Delegate::init"
EXECUTE = "Method::execute"
WAIT = "wait"
"""The name of the event at the end of a delegate that was submitted: the host waits for it."""
NOWHERE = (-1, -1)
"""The place of events outside of instructions."""

_PLACE: Final = ContextVar("place", default=NOWHERE)


class DebugLevel(IntEnum):
    """Which values a tracer keeps."""

    NO_LOGGING = 0
    PROGRAM_OUTPUTS = 1
    INTERMEDIATE_OUTPUTS = 2


@dataclass(frozen=True, slots=True)
class ProfileEvent:
    """One span of time, in nanoseconds of the platform's clock.

    `instruction` is the index in its chain, -1 outside of instructions. `delegate_debug_id` is set on what a backend
    reports from inside a delegate; chain and instruction are those of the call of the delegate then. `metadata` is what
    a backend adds to it; that of a whole load or execution is the method's name.
    """

    name: str
    start: int
    end: int
    chain: int = -1
    instruction: int = -1
    delegate_debug_id: int | str | None = None
    metadata: bytes = b""

    @property
    def duration(self) -> int:
        """Nanoseconds."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class DebugEvent:
    """A value that an instruction wrote (a copy), or an output of the program (`instruction` -1)."""

    name: str
    value: Any
    value_index: int = -1
    chain: int = -1
    instruction: int = -1
    delegate_debug_id: int | str | None = None


@dataclass(frozen=True, slots=True)
class AllocationEvent:
    """`nbytes` that were taken from `allocator`."""

    allocator: str
    nbytes: int


@dataclass(slots=True)
class EventBlock:
    """The events of one load or one execution, in order of their end."""

    name: str
    profile_events: list[ProfileEvent] = field(default_factory=list)
    debug_events: list[DebugEvent] = field(default_factory=list)
    allocation_events: list[AllocationEvent] = field(default_factory=list)


class EventTracer:
    """Collects events in blocks, a new one for each load and each execution. Not for two methods at a time.

    The values that it keeps may have `debug_buffer_size` bytes together, unless that is None; what exceeds them raises
    `MemoryAllocationFailed`.
    """

    def __init__(
        self,
        debug_level: DebugLevel = DebugLevel.NO_LOGGING,
        *,
        platform: Platform = DEFAULT_PLATFORM,
        debug_buffer_size: int | None = None,
    ) -> None:
        self.debug_level = debug_level
        self.debug_buffer_size = debug_buffer_size
        self._blocks: list[EventBlock] = []
        self._deferred: list[_Deferred] = []
        self._deferred_into: EventBlock | None = None
        self._value_bytes = 0
        self._ticks = platform.current_ticks
        self._ns_per_tick = platform.ns_per_tick

    @property
    def blocks(self) -> list[EventBlock]:
        """The blocks so far, complete: deferred reports are in them."""
        deferred, self._deferred = self._deferred, []
        try:
            for self._deferred_into, place, report in deferred:
                with self.at(*place):
                    report()
        finally:
            self._deferred_into = None
        return self._blocks

    @property
    def place(self) -> tuple[int, int]:
        """Chain and instruction that run now, also in a thread that works for a delegate (`CallQueue`)."""
        return _PLACE.get()

    @contextmanager
    def at(self, chain: int, instruction: int) -> Iterator[None]:
        """Within it, events that do not say theirs have this place."""
        token = _PLACE.set((chain, instruction))
        try:
            yield
        finally:
            _PLACE.reset(token)

    def defer(self, report: Callable[[], object]) -> None:
        """Call `report`, once, before somebody reads the events: its events belong where `defer` was called.

        For backends that learn the events of an execution only after it.
        """
        self._deferred.append((self._block, self.place, report))

    def now(self) -> int:
        """The platform's clock, in nanoseconds."""
        return int(self._ticks() * self._ns_per_tick)

    def create_event_block(self, name: str) -> EventBlock:
        """Begin a block; later events go into it."""
        block = EventBlock(name)
        self._blocks.append(block)
        return block

    def loading(self, method_name: str) -> AbstractContextManager[None]:
        """A block of its own for the body of a `with` statement, which loads a method; how long that takes is in it."""
        self.create_event_block(f"{LOAD_METHOD} {method_name}")
        return self.profile(LOAD_METHOD, metadata=method_name.encode())

    def executing(self, method_name: str) -> AbstractContextManager[None]:
        """As `loading`, of a body that runs the method."""
        self.create_event_block(EXECUTE)
        return self.profile(EXECUTE, metadata=method_name.encode())

    @property
    def keeps_outputs(self) -> bool:
        """Whether the outputs of the program are to be kept."""
        return self.debug_level >= DebugLevel.PROGRAM_OUTPUTS

    @contextmanager
    def profile(
        self,
        name: str,
        *,
        chain: int = -1,
        instruction: int = -1,
        delegate_debug_id: int | str | None = None,
        metadata: bytes = b"",
    ) -> Iterator[None]:
        """Time the body of a `with` statement. Backends use it with `delegate_debug_id` for their own steps."""
        start = self.now()
        try:
            yield
        finally:
            self.log_profiling(name, start, self.now(), chain, instruction, delegate_debug_id, metadata)

    def log_profiling(
        self,
        name: str,
        start: int,
        end: int,
        chain: int = -1,
        instruction: int = -1,
        delegate_debug_id: int | str | None = None,
        metadata: bytes = b"",
    ) -> None:
        """Record a span that was timed elsewhere (a device's own clock, converted to nanoseconds)."""
        if delegate_debug_id is not None and instruction < 0:
            chain, instruction = self.place
        event = ProfileEvent(name, start, end, chain, instruction, delegate_debug_id, metadata)
        self._block.profile_events.append(event)

    def log_value(
        self,
        name: str,
        value: object,
        *,
        value_index: int = -1,
        chain: int = -1,
        instruction: int = -1,
        delegate_debug_id: int | str | None = None,
    ) -> None:
        """Keep a copy of `value` (an array, a scalar, a list of them). Raises `MemoryAllocationFailed`."""
        if delegate_debug_id is not None and instruction < 0:
            chain, instruction = self.place
        self._take(_nbytes(value), name)
        event = DebugEvent(name, _copy(value), value_index, chain, instruction, delegate_debug_id)
        self._block.debug_events.append(event)

    def take_blocks(self) -> list[EventBlock]:
        """The blocks so far, and begin anew."""
        taken, self._blocks, self._value_bytes = self.blocks, [], 0
        return taken

    def _take(self, nbytes: int, name: str) -> None:
        self._value_bytes += nbytes
        if self.debug_buffer_size is not None and self._value_bytes > self.debug_buffer_size:
            raise MemoryAllocationFailed(
                f"the debug buffer of {self.debug_buffer_size:,} bytes is full: with {name} it would need"
                f" {self._value_bytes:,}; give a larger debug_buffer_size, or write the ETDump out more often"
            )

    def track_allocation(self, allocator: str, nbytes: int) -> None:
        """Record that `nbytes` were taken from the named allocator."""
        self._block.allocation_events.append(AllocationEvent(allocator, nbytes))

    @property
    def _block(self) -> EventBlock:
        if self._deferred_into is not None:
            return self._deferred_into
        return self._blocks[-1] if self._blocks else self.create_event_block("default")


_Deferred: TypeAlias = tuple[EventBlock, tuple[int, int], Callable[[], object]]
"""The block and the place of a deferred report, and the call that makes it."""


class InstructionTracer:
    """Puts a tracer around the bound calls of one plan."""

    def __init__(
        self,
        tracer: EventTracer,
        plan: ExecutionPlan,
        slots: Sequence[object],
        origins: Mapping[Place, Origin] = MappingProxyType({}),
    ) -> None:
        """`origins` say where instructions come from if `plan` has alternatives in it: events are of places in the
        file, and those of an alternative are at the call of its delegate, which their names tell."""
        self._tracer = tracer
        self._plan = plan
        self._origins = origins
        self._slots = slots
        self._written = values_written(plan)
        self._begun: dict[tuple[int, int], int] = {}

    def around(self, finish: Wrap) -> Wrap:
        """`finish`, and then time the call and keep the values that it writes, if the tracer wants them."""
        return lambda call, chain, instruction: self._traced(finish(call, chain, instruction), chain, instruction)

    def submitting(self, finish: Wrap) -> Wrap:
        """`finish`, and then remember when the call submitted a delegate."""
        return lambda call, chain, number: self._submitting(finish(call, chain, number), chain, number)

    def waiting(self, finish: Wrap) -> Wrap:
        """`finish`, and then time the delegate, from its submission to the end of the call that waits for it; in it, as
        an event of its own, the time for which the host waited."""
        return lambda call, chain, number: self._waiting(finish(call, chain, number), chain, number)

    def _traced(self, call: Call, chain: int, instruction: int) -> Call:
        tracer, (name, place) = self._tracer, self._told(chain, instruction)
        log_written = self._logging_of(chain, instruction)

        def run() -> None:
            with tracer.at(*place), tracer.profile(name, chain=place[0], instruction=place[1]):
                call()
            log_written()

        return run

    def _submitting(self, call: Call, chain: int, instruction: int) -> Call:
        tracer, begun, (_, place) = self._tracer, self._begun, self._told(chain, instruction)

        def run() -> None:
            begun[chain, instruction] = tracer.now()
            with tracer.at(*place):
                call()

        return run

    def _waiting(self, call: Call, chain: int, instruction: int) -> Call:
        tracer, begun, (name, place) = self._tracer, self._begun, self._told(chain, instruction)
        log_written = self._logging_of(chain, instruction)

        def run() -> None:
            with tracer.at(*place):
                try:
                    with tracer.profile(WAIT, chain=place[0], instruction=place[1], delegate_debug_id=WAIT):
                        call()
                finally:
                    tracer.log_profiling(name, begun[chain, instruction], tracer.now(), *place)
            log_written()

        return run

    def _told(self, chain: int, instruction: int) -> tuple[str, Place]:
        """The name of an instruction, and its place in the file: that of the call for which an alternative stands."""
        name = instruction_name(self._plan, self._plan.chains[chain].instructions[instruction])
        origin = self._origins.get((chain, instruction))
        if origin is None:
            return name, (chain, instruction)
        return name if origin.delegate is None else f"{name} for delegate {origin.delegate}", origin.place

    def _logging_of(self, chain: int, instruction: int) -> Callable[[], None]:
        """The call that keeps the values that an instruction wrote, if the tracer wants them."""
        tracer, (name, place) = self._tracer, self._told(chain, instruction)
        record = self._plan.chains[chain].instructions[instruction]
        written = _as_returned(self._plan, record, self._written[chain, instruction])

        def log() -> None:
            if tracer.debug_level >= DebugLevel.INTERMEDIATE_OUTPUTS:
                for index in written:
                    value = self._value(index)
                    tracer.log_value(name, value, value_index=index, chain=place[0], instruction=place[1])

        return log

    def _value(self, index: int) -> object:
        """A list's tensors may have been resized since it was brought up to date."""
        record = self._plan.values[index]
        return [self._slots[item] for item in record.items] if isinstance(record, TensorList) else self._slots[index]


def values_written(plan: ExecutionPlan) -> dict[tuple[int, int], tuple[int, ...]]:
    """For each (chain, instruction) the values that it writes.

    A delegate call does not say where its outputs begin: they are the arguments that nothing had written before on any
    way that leads to it. The branches of a `cond` write the same values, each by itself; loops are gone through once.
    """
    known = {index for index, value in enumerate(plan.values) if not isinstance(value, Tensor) or value.data_buffer_idx}
    known.update(plan.inputs)
    written: dict[tuple[int, int], tuple[int, ...]] = {}
    always_false = _always_false(plan)
    for chain, record in enumerate(plan.chains):
        before = {0: known}  # instruction -> what is written on some way to it
        for position, instruction in enumerate(record.instructions):
            # Unreachable code has no entry; any set will do for it.
            reached = before.pop(position, known)
            written[chain, position] = _written_by(plan, instruction, reached)
            reached.update(written[chain, position])
            if isinstance(instruction, JumpFalseCall):
                if instruction.destination_instruction > position:
                    before.setdefault(instruction.destination_instruction, set()).update(reached)
                # An unconditional jump does not lead to the next instruction, which is the other branch's.
                if instruction.cond_value_index in always_false:
                    continue
            before.setdefault(position + 1, reached).update(reached)
        known = before.get(len(record.instructions), known)
    return written


def _always_false(plan: ExecutionPlan) -> set[int]:
    """The conditions on which a jump always jumps, which is how one in any case is written."""
    constants = {index for index, value in enumerate(plan.values) if value == Bool(False)} - set(plan.inputs)
    # A value that any instruction writes is no constant.
    for _, instruction in instructions(plan):
        if isinstance(instruction, MoveCall):
            constants.discard(instruction.move_to)
        elif isinstance(instruction, KernelCall) and instruction.args:
            constants.discard(instruction.args[-1])
    return constants


def _written_by(plan: ExecutionPlan, instruction: Instruction, known: Collection[int]) -> tuple[int, ...]:
    match instruction:
        case KernelCall(args=args) if args:
            last = plan.values[args[-1]]
            return last.items if isinstance(last, TensorList) else (args[-1],)
        case DelegateCall(args=args):
            return tuple(index for index in args if index not in known)
        case MoveCall(move_to=target):
            return (target,)
    return ()


def _as_returned(plan: ExecutionPlan, instruction: Instruction, written: tuple[int, ...]) -> tuple[int, ...]:
    """The values that an instruction writes, as its operator returns them: a list of tensors (`split`) or several
    (`topk`). A call with several results names each result, and the list of all of them as its last argument.
    """
    if not isinstance(instruction, KernelCall) or not instruction.args:
        return written
    last = instruction.args[-1]
    is_one_list = isinstance(plan.values[last], TensorList) and not set(written) & set(instruction.args)
    return (last,) if is_one_list else written


def _nbytes(value: object) -> int:
    if isinstance(value, (np.ndarray, DeviceTensor)):
        return value.nbytes
    return sum(map(_nbytes, value)) if isinstance(value, list) else 0


def _copy(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, DeviceTensor):
        return value.numpy()
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value
