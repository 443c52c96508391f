"""Program -> ProgramSummary: what is in a `.pte`, as records for tables and JSON.

With `kernels` and `backends` it also says what is installed here to run the program on; without, it loads nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from typing import Any, Final

from delegraph.interfaces.kernel import KernelKey, kernel_key_text
from delegraph.interfaces.stamp import STAMP_KEY, BlobStamp, read_stamp
from delegraph.program.alternatives import alternatives_of, is_variant, methods_of
from delegraph.program.buffers import byte_view
from delegraph.program.contract import Dims, MethodContract, contracts_of, relation_text
from delegraph.program.devices import memory_devices
from delegraph.program.dtypes import nbytes, numpy_dtype
from delegraph.program.files.costs import costs_of
from delegraph.program.files.header import HEAD_SIZE, read_head
from delegraph.program.kernel_calls import Need, kernel_key
from delegraph.program.prim_op_names import BUILT_IN
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
    Program,
    Tensor,
    TensorShapeDynamism,
    Value,
)
from delegraph.program.user_metadata import UserMetadata, user_metadata_of
from delegraph.program.walk import Place, external_names, instructions, kernel_calls
from delegraph.program.weights_origin import origin_of
from delegraph.runtime.calls.arguments import Arguments
from delegraph.runtime.calls.contract import dims_of_inputs
from delegraph.runtime.resolution.kernels import KernelRegistry

__all__ = [
    "AlternativeSummary",
    "DelegateSummary",
    "FileSizes",
    "KernelUse",
    "MethodSummary",
    "OperatorSummary",
    "ProgramSummary",
    "ValueSummary",
    "file_sizes",
    "summarize",
]


@dataclass(frozen=True, slots=True)
class ValueSummary:
    """An input or output. `kind` is a NumPy dtype, or what it is instead of a tensor; sizes are upper bounds if
    `dynamic`, and `dims` says what each may be: `batch in 1..16`; `planned` is None where there is nothing to plan;
    `name` is the model's own for an input."""

    kind: str
    shape: tuple[int, ...] | None = None
    dynamic: bool = False
    planned: bool | None = None
    nbytes: int | None = None
    value: str = ""
    name: str = ""
    dims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    """An operator and how often it is called. `libraries` are those its calls would run on; `missing` counts calls
    that no installed library has a kernel for, None if nobody asked."""

    name: str
    calls: int
    libraries: tuple[str, ...] = ()
    missing: int | None = None


@dataclass(frozen=True, slots=True)
class KernelUse:
    """The kernel that calls of one operator get, which have tensors of the same dtypes and dim orders.

    `instructions` are (chain, instruction) pairs; `key` is ExecuTorch's text of dtypes and dim orders. `library` is
    None, and `reason` says so, where no library has such a kernel.
    """

    operator: str
    key: str
    instructions: tuple[tuple[int, int], ...]
    library: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class AlternativeSummary:
    """A thing that may run in the place of a delegate: another blob of it, `variant`, or its graph on the backends
    `fallback` and on kernels (None: it is a variant).

    `nbytes` are those that the file has for it alone; `missing` are the operators of a fall-back that no installed
    library has a kernel for, None if nobody asked.
    """

    variant: str
    fallback: tuple[str, ...] | None
    nbytes: int
    instructions: int
    missing: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DelegateSummary:
    """A delegate. `installed`: whether its backend is, None if nobody asked. `alternatives` may run in its place, the
    first that can."""

    backend: str
    calls: int
    blob_nbytes: int
    stamp: BlobStamp | None
    compile_specs: tuple[str, ...]
    installed: bool | None = None
    alternatives: tuple[AlternativeSummary, ...] = ()


@dataclass(frozen=True, slots=True)
class MethodSummary:
    """One method. `kernels` is empty if nobody asked for them; `memory` is in bytes by memory id, `devices` names those
    that are not the CPU's; `instructions` counts them by kind (kernel, delegate, move, jump_false, free)."""

    name: str
    inputs: tuple[ValueSummary, ...]
    outputs: tuple[ValueSummary, ...]
    operators: tuple[OperatorSummary, ...]
    kernels: tuple[KernelUse, ...]
    delegates: tuple[DelegateSummary, ...]
    memory: Mapping[int, int]
    instructions: Mapping[str, int]
    values: int
    relations: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    devices: Mapping[int, str] = field(default_factory=dict)

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
    """A whole program. Sizes are in bytes; `external_constants` are the names that a `.ptd` has to have; `metadata` is
    what its author says of it."""

    methods: tuple[MethodSummary, ...]
    constants: int
    constant_nbytes: int
    mutable_nbytes: int
    delegate_nbytes: int
    named_data: Mapping[str, int]
    external_constants: tuple[str, ...]
    sizes: FileSizes | None = None
    metadata: UserMetadata = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return asdict(replace(self, metadata=dict(self.metadata)))


def summarize(
    program: Program,
    *,
    sizes: FileSizes | None = None,
    kernels: KernelRegistry | None = None,
    backends: Collection[str] | None = None,
) -> ProgramSummary:
    """Count and measure what `program` has. `kernels` are asked for each call; `backends` are installed ones' ids."""
    contracts, origin = contracts_of(program), origin_of(program)
    return ProgramSummary(
        methods=tuple(
            _method(plan, contracts.get(plan.name), program, kernels, backends) for plan in methods_of(program)
        ),
        constants=len(program.constants) - 1,
        constant_nbytes=_total(program.constants),
        mutable_nbytes=_total(program.mutable_data),
        delegate_nbytes=_total(program.delegate_data),
        named_data={key: byte_view(entry.data).nbytes for key, entry in program.named_data.items()},
        external_constants=tuple(sorted({*external_names(program), *(origin.weights if origin else ())})),
        sizes=sizes,
        metadata=user_metadata_of(program),
    )


def file_sizes(head: Buffer, file_size: int) -> FileSizes:
    """The sizes that the first `HEAD_SIZE` bytes of a file of `file_size` bytes tell. Raises `InvalidProgram`."""
    header = read_head(head[:HEAD_SIZE], file_size)
    if header is None:
        return FileSizes(file_size, file_size, 0)
    rest = file_size - header.segment_base_offset if header.segment_base_offset else 0
    return FileSizes(file_size, header.program_size, header.segment_data_size or rest)


# ---- one method ------------------------------------------------------------------------------------


def _method(
    plan: ExecutionPlan,
    contract: MethodContract | None,
    program: Program,
    kernels: KernelRegistry | None,
    backends: Collection[str] | None,
) -> MethodSummary:
    known = contract or MethodContract()
    names = Arguments(plan.container_meta_type.encoded_inp_str, len(plan.inputs), known.parameters).names
    uses = () if kernels is None else tuple(_kernel_uses(plan, kernels))
    called = [instruction for _, instruction in instructions(plan)]
    delegate_calls = Counter(call.delegate_index for call in called if isinstance(call, DelegateCall))
    others = alternatives_of(program).get(plan.name, {})
    return MethodSummary(
        name=plan.name,
        inputs=tuple(
            _value(plan.values[index], dims, name if contract else "")
            for index, dims, name in zip(plan.inputs, dims_of_inputs(contract, plan), names, strict=True)
        ),
        outputs=tuple(
            _value(plan.values[index], dims)
            for index, dims in zip_longest(plan.outputs, known.outputs[: len(plan.outputs)])
        ),
        operators=tuple(_operators(plan, None if kernels is None else uses)),
        kernels=uses,
        delegates=tuple(
            replace(
                _delegate(delegate, delegate_calls[index], program, backends),
                alternatives=tuple(_alternatives(delegate, others.get(index, ()), program, kernels)),
            )
            for index, delegate in enumerate(plan.delegates)
        ),
        memory=dict(enumerate(plan.non_const_buffer_sizes[1:], start=1)),
        instructions=dict(Counter(_KINDS[type(instruction)] for instruction in called)),
        values=len(plan.values),
        relations=tuple(relation_text(relation, names) for relation in known.relations),
        unchecked=known.unchecked if contract else tuple(_unchecked(plan, names)),
        devices={memory_id: str(device) for memory_id, device in memory_devices(plan.non_const_buffer_device).items()},
    )


def _unchecked(plan: ExecutionPlan, names: Sequence[str]) -> Iterable[str]:
    """The limits of inputs that a program without a contract, as ExecuTorch writes it, leaves unknown."""
    for index, name in zip(plan.inputs, names, strict=True):
        record = plan.values[index]
        if isinstance(record, Tensor) and record.shape_dynamism is not TensorShapeDynamism.STATIC:
            yield f"which dims of {name} may change, and from which size on: the program only has their upper bounds"


def _value(value: Value, dims: Dims | None = None, name: str = "") -> ValueSummary:
    if not isinstance(value, Tensor):
        literal = getattr(value, "value", None)
        return ValueSummary(type(value).__name__, value="" if literal is None else repr(literal), name=name)
    return ValueSummary(
        kind=_dtype(value),
        shape=value.sizes,
        dynamic=value.shape_dynamism is not TensorShapeDynamism.STATIC,
        planned=value.allocation_info is not None,
        nbytes=nbytes(value.scalar_type, value.sizes),
        name=name,
        dims=tuple(map(str, dims or ())),
    )


def _dtype(tensor: Tensor) -> str:
    """NumPy's name; the schema's for the types that NumPy has not."""
    from delegraph.errors import NotSupported

    try:
        return numpy_dtype(tensor.scalar_type).name
    except NotSupported:
        return tensor.scalar_type.name.lower()


def _kernel_uses(plan: ExecutionPlan, kernels: KernelRegistry) -> Iterable[KernelUse]:
    """The kernels that loading the method would choose, in the order of first calls."""
    calls: dict[Need, list[Place]] = {}
    for place, operator, call in kernel_calls(plan):
        calls.setdefault((operator, kernel_key(call.args, plan.values)), []).append(place)
    for (op, key), places in calls.items():
        yield KernelUse(op, kernel_key_text(key), tuple(places), *_library(op, key, kernels))


def _library(op: str, key: KernelKey, kernels: KernelRegistry) -> tuple[str | None, str]:
    """Which library a call would run on, and why."""
    if op in BUILT_IN:
        return "runtime", "the runtime's own operator"
    choice = kernels.choose(op, key)
    if choice is None:
        return None, "no library has it"
    return None if choice.rivals else choice.kernel.library, choice.reason


def _operators(plan: ExecutionPlan, uses: Sequence[KernelUse] | None) -> Iterable[OperatorSummary]:
    """The most called first."""
    calls = Counter(operator for _, operator, _ in kernel_calls(plan))
    for operator, count in sorted(calls.items(), key=lambda item: (-item[1], item[0])):
        if uses is None:
            yield OperatorSummary(operator, count)
            continue
        own = [use for use in uses if use.operator == operator]
        libraries = tuple(sorted({use.library for use in own if use.library is not None}))
        missing = sum(len(use.instructions) for use in own if use.library is None)
        yield OperatorSummary(operator, count, libraries, missing)


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


def _alternatives(
    delegate: BackendDelegate, plans: Sequence[ExecutionPlan], program: Program, kernels: KernelRegistry | None
) -> Iterable[AlternativeSummary]:
    costs = costs_of(program) if plans else {}
    for plan in plans:
        called = len([instruction for _, instruction in instructions(plan)])
        if is_variant(plan, delegate):
            stamp = read_stamp(plan.delegates[0].compile_specs)
            yield AlternativeSummary(stamp.variant if stamp else "", None, costs[plan.name], called)
            continue
        uses = None if kernels is None else _kernel_uses(plan, kernels)
        missing = None if uses is None else [use.operator for use in uses if use.library is None]
        yield AlternativeSummary(
            "",
            tuple(dict.fromkeys(record.id for record in plan.delegates)),
            costs[plan.name],
            called,
            None if missing is None else tuple(dict.fromkeys(missing)),
        )


_KINDS: Final[dict[type[Instruction], str]] = {
    KernelCall: "kernel",
    DelegateCall: "delegate",
    MoveCall: "move",
    JumpFalseCall: "jump_false",
    FreeCall: "free",
}


def _total(buffers: Iterable[Buffer]) -> int:
    return sum(byte_view(buffer).nbytes for buffer in buffers)
