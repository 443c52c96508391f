"""Program -> ProgramSummary: what is in a `.pte`, as records for tables and JSON.

With `library_of` and `backends` it also says what is installed here to run the program on; without, it loads nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from delegraph.plugins.stamp import STAMP_KEY, BlobStamp, read_stamp
from delegraph.program.buffers import byte_view
from delegraph.program.dtypes import numpy_dtype
from delegraph.program.header import HEAD_SIZE, read_head
from delegraph.program.prim_op_names import PRIM_OPS
from delegraph.program.schema import (
    BackendDelegate,
    Buffer,
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Operator,
    Program,
    Tensor,
    TensorDataLocation,
    TensorShapeDynamism,
    Value,
)
from delegraph.program.tensor_size import nbytes
from delegraph.runtime.instructions import kernel_key
from delegraph.runtime.kernels import KernelRegistry

__all__ = [
    "DelegateSummary",
    "FileSizes",
    "LibraryOf",
    "MethodSummary",
    "OperatorSummary",
    "ProgramSummary",
    "ValueSummary",
    "file_sizes",
    "installed_library",
    "summarize",
]

LibraryOf: TypeAlias = Callable[[ExecutionPlan, KernelCall], "str | None"]
"""The installed kernel library that a call would run on, None if there is none."""


@dataclass(frozen=True, slots=True)
class ValueSummary:
    """An input or output. `kind` is a NumPy dtype, or what it is instead of a tensor; sizes are upper bounds if
    `dynamic`; `planned` is None where there is nothing to plan."""

    kind: str
    shape: tuple[int, ...] | None = None
    dynamic: bool = False
    planned: bool | None = None
    nbytes: int | None = None
    value: str = ""


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    """An operator and how often it is called. `libraries` are those its calls would run on; `missing` counts calls
    that no installed library has a kernel for, None if nobody asked."""

    name: str
    calls: int
    libraries: tuple[str, ...] = ()
    missing: int | None = None


@dataclass(frozen=True, slots=True)
class DelegateSummary:
    """A delegate. `installed`: whether its backend is, None if nobody asked."""

    backend: str
    calls: int
    blob_nbytes: int
    stamp: BlobStamp | None
    compile_specs: tuple[str, ...]
    installed: bool | None = None


@dataclass(frozen=True, slots=True)
class MethodSummary:
    """One method. `memory` is in bytes by memory id; `instructions` counts them by kind (kernel,
    delegate, move, jump_false, free)."""

    name: str
    inputs: tuple[ValueSummary, ...]
    outputs: tuple[ValueSummary, ...]
    operators: tuple[OperatorSummary, ...]
    delegates: tuple[DelegateSummary, ...]
    memory: Mapping[int, int]
    instructions: Mapping[str, int]
    values: int

    @property
    def planned_nbytes(self) -> int:
        """Bytes of planned memory in all memories."""
        return sum(self.memory.values())


@dataclass(frozen=True, slots=True)
class FileSizes:
    """Bytes of a `.pte`: all of it, its flatbuffer, and the segments behind that (with their padding)."""

    file: int
    flatbuffer: int
    segments: int


@dataclass(frozen=True, slots=True)
class ProgramSummary:
    """A whole program. Sizes are in bytes; `external_constants` are the names that a `.ptd` has to have."""

    methods: tuple[MethodSummary, ...]
    constants: int
    constant_nbytes: int
    mutable_nbytes: int
    delegate_nbytes: int
    named_data: Mapping[str, int]
    external_constants: tuple[str, ...]
    sizes: FileSizes | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return asdict(self)


def summarize(
    program: Program,
    *,
    sizes: FileSizes | None = None,
    library_of: LibraryOf | None = None,
    backends: Collection[str] | None = None,
) -> ProgramSummary:
    """Count and measure what `program` has. `backends` are the ids of installed ones."""
    return ProgramSummary(
        methods=tuple(_method(plan, program, library_of, backends) for plan in program.execution_plan),
        constants=len(program.constants) - 1,
        constant_nbytes=_total(program.constants),
        mutable_nbytes=_total(program.mutable_data),
        delegate_nbytes=_total(program.delegate_data),
        named_data={key: byte_view(entry.data).nbytes for key, entry in program.named_data.items()},
        external_constants=tuple(sorted(set(_external(program)))),
        sizes=sizes,
    )


def installed_library(kernels: KernelRegistry) -> LibraryOf:
    """Looks calls up as loading a method does; the runtime's own operators are of the library "runtime"."""

    def library_of(plan: ExecutionPlan, call: KernelCall) -> str | None:
        op = str(plan.operators[call.op_index])
        if op in PRIM_OPS:
            return "runtime"
        kernel = kernels.find(op, kernel_key(call.args, plan.values))
        return None if kernel is None else kernel.library

    return library_of


def file_sizes(head: Buffer, file_size: int) -> FileSizes:
    """The sizes that the first `HEAD_SIZE` bytes of a file of `file_size` bytes tell. Raises `InvalidProgram`."""
    header = read_head(head[:HEAD_SIZE], file_size)
    if header is None:
        return FileSizes(file_size, file_size, 0)
    rest = file_size - header.segment_base_offset if header.segment_base_offset else 0
    return FileSizes(file_size, header.program_size, header.segment_data_size or rest)


# ---- one method ------------------------------------------------------------------------------------


def _method(
    plan: ExecutionPlan, program: Program, library_of: LibraryOf | None, backends: Collection[str] | None
) -> MethodSummary:
    instructions = [instruction for chain in plan.chains for instruction in chain.instructions]
    delegate_calls = Counter(call.delegate_index for call in instructions if isinstance(call, DelegateCall))
    return MethodSummary(
        name=plan.name,
        inputs=tuple(_value(plan.values[index]) for index in plan.inputs),
        outputs=tuple(_value(plan.values[index]) for index in plan.outputs),
        operators=tuple(_operators(plan, instructions, library_of)),
        delegates=tuple(
            _delegate(delegate, delegate_calls[index], program, backends)
            for index, delegate in enumerate(plan.delegates)
        ),
        memory=dict(enumerate(plan.non_const_buffer_sizes[1:], start=1)),
        instructions=dict(Counter(_KINDS[type(instruction)] for instruction in instructions)),
        values=len(plan.values),
    )


def _value(value: Value) -> ValueSummary:
    if not isinstance(value, Tensor):
        literal = getattr(value, "value", None)
        return ValueSummary(type(value).__name__, value="" if literal is None else repr(literal))
    return ValueSummary(
        kind=_dtype(value),
        shape=value.sizes,
        dynamic=value.shape_dynamism is not TensorShapeDynamism.STATIC,
        planned=value.allocation_info is not None,
        nbytes=nbytes(value.scalar_type, value.sizes),
    )


def _dtype(tensor: Tensor) -> str:
    """NumPy's name; the schema's for the types that NumPy has not."""
    from delegraph.errors import NotSupported

    try:
        return numpy_dtype(tensor.scalar_type).name
    except NotSupported:
        return tensor.scalar_type.name.lower()


def _operators(
    plan: ExecutionPlan, instructions: Iterable[Instruction], library_of: LibraryOf | None
) -> Iterable[OperatorSummary]:
    """The most called first."""
    calls: dict[Operator, list[KernelCall]] = {}
    for instruction in instructions:
        if isinstance(instruction, KernelCall):
            calls.setdefault(plan.operators[instruction.op_index], []).append(instruction)
    for operator, own in sorted(calls.items(), key=lambda item: (-len(item[1]), str(item[0]))):
        if library_of is None:
            yield OperatorSummary(str(operator), len(own))
            continue
        found = [library_of(plan, call) for call in own]
        libraries = tuple(sorted({library for library in found if library is not None}))
        yield OperatorSummary(str(operator), len(own), libraries, found.count(None))


def _delegate(
    delegate: BackendDelegate, calls: int, program: Program, backends: Collection[str] | None
) -> DelegateSummary:
    return DelegateSummary(
        backend=delegate.id,
        calls=calls,
        blob_nbytes=byte_view(program.delegate_data[delegate.processed]).nbytes,
        stamp=read_stamp(delegate.compile_specs),
        compile_specs=tuple(spec.key for spec in delegate.compile_specs if spec.key != STAMP_KEY),
        installed=None if backends is None else delegate.id in backends,
    )


_KINDS: Final[dict[type[Instruction], str]] = {
    KernelCall: "kernel",
    DelegateCall: "delegate",
    MoveCall: "move",
    JumpFalseCall: "jump_false",
    FreeCall: "free",
}


def _external(program: Program) -> Iterable[str]:
    for plan in program.execution_plan:
        for value in plan.values:
            info = value.extra_tensor_info if isinstance(value, Tensor) else None
            if info is not None and info.location is TensorDataLocation.EXTERNAL:
                yield info.fully_qualified_name or ""


def _total(buffers: Iterable[Buffer]) -> int:
    return sum(byte_view(buffer).nbytes for buffer in buffers)
