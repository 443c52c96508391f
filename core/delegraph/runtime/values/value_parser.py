"""Value records + constants + planned memory -> ValueTable.

Where a tensor's bytes are follows from (`data_buffer_idx`, `allocation_info`); see `schema.Tensor`. Two values with one
place in planned memory alias each other here as they do in ExecuTorch: a static view has no instruction, it is just
a second value over the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from delegraph.errors import InvalidExternalData, InvalidProgram, RuntimeFault, restated
from delegraph.interfaces.device import DeviceMemoryBuffer, DeviceTensor
from delegraph.lazy_dataclass import dataclass, field, replace
from delegraph.program.checks.verify_values import is_external, is_stored
from delegraph.program.dtypes import nbytes, numpy_dtype
from delegraph.program.schema import (
    Bool,
    BoolList,
    Buffer,
    Double,
    DoubleList,
    ExecutionPlan,
    Int,
    NamedData,
    String,
    Tensor,
    TensorShapeDynamism,
    Value,
)
from delegraph.program.strides import dense_strides
from delegraph.runtime.values.memory import HierarchicalAllocator
from delegraph.runtime.values.values import (
    LISTS_OF_VALUES,
    Allocate,
    Array,
    Memory,
    MovingTensor,
    ValueTable,
    attribute_name,
    kind_of,
)

if TYPE_CHECKING:
    from delegraph.program.flat_tensor import ExternalData


@dataclass(frozen=True, slots=True)
class TensorSources:
    """Where the bytes of a method's tensors come from. Tensors in planned memory `kept` (0: none) have theirs already.

    `allocate` gives memory to tensors that have no place in a file or in planned memory.
    """

    constants: Sequence[Buffer]
    mutable_data: Sequence[Buffer]
    external: Mapping[str, ExternalData] | None
    planned: HierarchicalAllocator
    allocate: Allocate
    kept: int = 0
    named: Mapping[str, NamedData] = field(default_factory=dict)

    def bytes_of(self, record: Tensor) -> Buffer:
        """A tensor's bytes in the program or its `.ptd`. Raises `InvalidExternalData`."""
        if is_external(record):
            return self._external_bytes(record)
        if record.allocation_info is not None:
            return self.mutable_data[record.data_buffer_idx]
        return self.constants[record.data_buffer_idx]

    def _external_bytes(self, record: Tensor) -> Buffer:
        name = attribute_name(record)
        named = self.named.get(name)
        if named is not None and name not in (self.external or ()):
            if memoryview(named.data).nbytes != nbytes(record.scalar_type, record.sizes):
                raise InvalidProgram(
                    f"the named data {name!r} have another size than the tensor that is read from them"
                )
            return named.data
        entry = (self.external or {}).get(name)
        if entry is None:
            from delegraph.program.weights_origin import absent_weight

            raise InvalidExternalData(absent_weight(name, self.external or ()))
        from delegraph.program.flat_tensor import TensorLayout

        expected = TensorLayout(record.scalar_type, record.sizes, record.dim_order)
        if entry.tensor_layout != expected:
            raise InvalidExternalData(
                f"{name!r} is {entry.tensor_layout or 'a blob'} in the .ptd file, but {expected}"
                " in the program; use the .ptd that was written with this .pte"
            )
        return entry.data


def parse_values(
    plan: ExecutionPlan,
    sources: TensorSources,
    written: Collection[int],
    lent: Collection[int] = (),
    copied: Collection[int] = (),
    unbounded_bytes: int | None = None,
) -> ValueTable:
    """The value table of `plan`. `written` are the values that instructions replace (not: write into); `lent` those
    planned ones for which the caller's memory may stand, and `copied` inputs for which it never does. Tensors without
    an upper bound may have `unbounded_bytes` together (None: any number).

    Raises `InvalidExternalData` or `InvalidProgram`, naming the value.
    """
    parser = _Parser(plan, sources, frozenset(written), frozenset(lent), frozenset(copied))
    for index, record in enumerate(plan.values):
        try:
            parser.parse(index, record)
        except RuntimeFault as error:
            raise restated(error, f"method {plan.name!r}, value {index}: {error}") from error.__cause__
    parser.link_lists()
    return ValueTable(plan.values, parser.slots, parser.moving, parser.varying, sources.allocate, unbounded_bytes)


class _Parser:
    def __init__(
        self,
        plan: ExecutionPlan,
        sources: TensorSources,
        written: frozenset[int],
        lent: frozenset[int],
        copied: frozenset[int],
    ) -> None:
        self.plan = plan
        self.sources = sources
        self.written = written
        self.lent = lent
        self.borders = (frozenset(plan.inputs) | frozenset(plan.outputs)) - copied
        self.slots: list[Any] = [None] * len(plan.values)
        self.moving: dict[int, MovingTensor] = {}
        self.varying = set(written)

    def parse(self, index: int, record: Value) -> None:
        if isinstance(record, Tensor):
            self.parse_tensor(index, record)
        elif isinstance(record, Int | Double | Bool | String):
            self.slots[index] = record.value
        elif isinstance(record, DoubleList | BoolList):
            self.slots[index] = list(record.items)

    def parse_tensor(self, index: int, record: Tensor) -> None:
        if record.shape_dynamism is TensorShapeDynamism.DYNAMIC_UNBOUND:
            self.add_unbounded(index, record)
            return
        static = record.shape_dynamism is TensorShapeDynamism.STATIC
        if record.allocation_info is not None:
            memory = self.sources.planned.buffers[record.allocation_info.memory_id - 1]
            offset = record.allocation_info.memory_offset
            # In memory that methods share another method may have changed the content already.
            if record.allocation_info.memory_id != self.sources.kept:
                self.initialise(record, memory, offset)
            # One array for good, which calls can be bound to; all others are looked up in each run.
            if static and index not in self.written and index not in self.lent:
                self.slots[index] = tensor_view(record, memory, offset)
            else:
                self.add_moving(MovingTensor(index, record, memory, offset, moves=index in self.lent))
        elif is_stored(record):
            self.slots[index] = stored_tensor(record, self.sources.bytes_of(record))
        # Without elements there is nothing to share with the caller: one array will do for all runs.
        elif static and prod(record.sizes) == 0 and index not in self.written:
            self.slots[index] = np.empty(record.sizes, numpy_dtype(record.scalar_type))
        else:
            self.add_unplanned(MovingTensor(index, record, moves=index in self.borders))

    def add_unbounded(self, index: int, record: Tensor) -> None:
        """A tensor that gets its memory when its size is known: in each run if it is an output, else when it grows."""
        if record.allocation_info is not None or is_stored(record):
            raise InvalidProgram("a tensor without an upper bound has a place in the file or in planned memory")
        # The sizes in the file are no bounds: what they say about memory would be wrong.
        empty = replace(record, sizes=(0,) * len(record.sizes))
        self.add_unplanned(MovingTensor(index, empty, moves=index in self.borders))

    def add_unplanned(self, tensor: MovingTensor) -> None:
        """Inputs and outputs get their memory in each run. Anything else gets it now, once."""
        if not tensor.moves:
            tensor.memory = tensor.first_memory(self.sources.allocate)
            tensor.array = tensor.home = tensor.view(tensor.bound)
        self.add_moving(tensor)

    def add_moving(self, tensor: MovingTensor) -> None:
        self.moving[tensor.index] = tensor
        self.slots[tensor.index] = tensor.array
        self.varying.add(tensor.index)

    def initialise(self, record: Tensor, memory: Memory, offset: int) -> None:
        """Copy a planned tensor's initial bytes, if it has any, to its place."""
        if is_stored(record):
            size = nbytes(record.scalar_type, record.sizes)
            initial = np.frombuffer(self.sources.bytes_of(record), np.uint8, size)
            if isinstance(memory, DeviceMemoryBuffer):
                DeviceTensor((size,), initial.dtype, memory, offset).copy_from(initial)
            else:
                memory[offset : offset + size] = initial

    def link_lists(self) -> None:
        """Make the lists of values. IntLists may point at later values, so this comes last."""
        for index, record in enumerate(self.plan.values):
            if isinstance(record, LISTS_OF_VALUES):
                self.slots[index] = [None if item == -1 else self.slots[item] for item in record.items]
                # Items are no lists, so that one round over the values finds all lists that vary.
                if not self.varying.isdisjoint(record.items):
                    self.varying.add(index)


def tensor_view(record: Tensor, memory: Memory, offset: int) -> Any:
    """The static tensor `record` over `memory`, from byte `offset` on."""
    dtype = numpy_dtype(record.scalar_type)
    strides = dense_strides(record.sizes, dtype.itemsize, record.dim_order)
    return kind_of(memory)(record.sizes, dtype, memory, offset, strides)


def stored_tensor(record: Tensor, data: Buffer) -> Array:
    """The tensor whose bytes are `data`, read-only."""
    dtype = numpy_dtype(record.scalar_type)
    strides = dense_strides(record.sizes, dtype.itemsize, record.dim_order)
    array: Array = np.ndarray(record.sizes, dtype, data, 0, strides)
    array.setflags(write=False)  # read-only arrays are how the runtime tells constants from planned memory
    return array
