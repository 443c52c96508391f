"""Program -> its faults: everything that the runtime, the text form and the serializer rely on without looking again.

Reader and emitter share it: a program from a stranger's file and one that was just emitted obey the same rules. Faults
are collected with their field paths (`execution_plan[0].values[12].sizes[1]: …`), not reported one at a time. What
ExecuTorch's runtime checks is included (`runtime/executor/{program,method,program_validation,tensor_parser_*}.cpp`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from delegraph.errors import InvalidProgram
from delegraph.program import faults
from delegraph.program.faults import Faults, under
from delegraph.program.schema import (
    BackendDelegate,
    Bool,
    Buffer,
    Chain,
    CompileSpec,
    DelegateCall,
    ExecutionPlan,
    Frame,
    FreeCall,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    NamedData,
    NonConstBufferDevice,
    Operator,
    Program,
    Tensor,
)
from delegraph.program.verify_values import MAX_NBYTES, ValueContext, value_faults
from delegraph.program.walk import delegates

MAX_ALIGNMENT: Final = 2**30
"""1 GiB: the largest page of common processors, and a bound on what padding can cost."""
MAX_FAULTS: Final = 20
"""How many faults are looked for: a file of garbage has as many as it has fields."""


def verify_program(program: Program) -> None:
    """Raise `InvalidProgram` with the faults of `program`, each with its field path, if it has any."""
    found = find_faults(program)
    if found:
        many = f"{len(found)} or more faults" if len(found) == MAX_FAULTS else f"{len(found)} fault(s)"
        raise InvalidProgram(f"the program has {many}:" + "".join(f"\n  {fault}" for fault in found))


def find_faults(program: Program) -> list[str]:
    """The first `MAX_FAULTS` faults of `program`, each with its field path; none if a runtime can rely on it."""
    return list(islice(_program_faults(program), MAX_FAULTS))


def _program_faults(program: Program) -> Faults:
    yield from under("version", faults.integer(program.version, faults.UINT32))
    if not program.constants:
        yield "constants: is empty; constants[0] is reserved"
    yield from under("constants", _reserved_faults(program.constants))
    yield from under("mutable_data", _reserved_faults(program.mutable_data))
    for key, entry in program.named_data.items():
        yield from under(f"named_data[{key!r}]", _named_data_faults(key, entry))
    names: set[str] = set()
    for index, plan in enumerate(program.execution_plan):
        yield from under(f"execution_plan[{index}]", _plan_faults(plan, program))
        if plan.name in names:
            yield f"execution_plan[{index}].name: is {plan.name!r}, as an earlier method's"
        names.add(plan.name)
    yield from under("delegate_data", _unused_faults(program))


def _reserved_faults(buffers: Sequence[Buffer]) -> Faults:
    if buffers and memoryview(buffers[0]).nbytes:
        yield "[0]: is not empty; it is reserved, so that data_buffer_idx 0 can mean none"


def _named_data_faults(key: str, entry: NamedData) -> Faults:
    yield from faults.name(key)
    yield from under(".alignment", faults.integer(entry.alignment, (1, MAX_ALIGNMENT)))


def _unused_faults(program: Program) -> Faults:
    used = {delegate.processed for delegate in delegates(program)}
    for index in range(len(program.delegate_data)):
        if index not in used:
            yield f"[{index}]: no delegate refers to it"


def _plan_faults(plan: ExecutionPlan, program: Program) -> Faults:
    yield from under(".name", faults.name(plan.name))
    meta = plan.container_meta_type
    yield from under(".container_meta_type.encoded_inp_str", faults.text(meta.encoded_inp_str))
    yield from under(".container_meta_type.encoded_out_str", faults.text(meta.encoded_out_str))
    yield from _planned_memory_faults(plan)
    context = ValueContext(
        kinds=tuple(map(type, plan.values)),
        constant_sizes=tuple(memoryview(data).nbytes for data in program.constants),
        mutable_data_sizes=tuple(memoryview(data).nbytes for data in program.mutable_data),
        planned_sizes=plan.non_const_buffer_sizes,
    )
    for index, value in enumerate(plan.values):
        for fault in value_faults(context, index, value):
            yield f".values[{index}]{fault}"
    yield from under(".inputs", faults.indices(plan.inputs, len(plan.values), "values"))
    yield from under(".outputs", faults.indices(plan.outputs, len(plan.values), "values"))
    for index, operator in enumerate(plan.operators):
        yield from under(f".operators[{index}]", _operator_faults(operator))
    for index, delegate in enumerate(plan.delegates):
        yield from under(f".delegates[{index}]", _delegate_faults(delegate, len(program.delegate_data)))
    if not plan.chains:
        yield ".chains: is empty; a method has at least one, if only without instructions"
    for index, chain in enumerate(plan.chains):
        yield from under(f".chains[{index}]", _chain_faults(chain, plan, context.kinds))


def _planned_memory_faults(plan: ExecutionPlan) -> Faults:
    sizes = plan.non_const_buffer_sizes
    yield from under(".non_const_buffer_sizes", faults.integers(sizes, (0, MAX_NBYTES)))
    if not sizes or sizes[0] != 0:
        yield f".non_const_buffer_sizes: is {sizes[:1]!r}…; its first entry is reserved and 0"
    devices = plan.non_const_buffer_device or ()
    for index, device in enumerate(devices):
        yield from under(f".non_const_buffer_device[{index}]", _buffer_device_faults(device, len(sizes)))
    if len({device.buffer_idx for device in devices}) < len(devices):
        yield ".non_const_buffer_device: names a buffer twice"


def _buffer_device_faults(device: NonConstBufferDevice, count: int) -> Faults:
    yield from under(".buffer_idx", faults.index(device.buffer_idx, count, "planned buffers"))
    yield from under(".device_index", faults.integer(device.device_index, faults.INT8))


def _operator_faults(operator: Operator) -> Faults:
    yield from under(".name", faults.name(operator.name))
    yield from under(".overload", faults.text(operator.overload))


def _delegate_faults(delegate: BackendDelegate, count: int) -> Faults:
    yield from under(".id", faults.name(delegate.id))
    yield from under(".processed", faults.index(delegate.processed, count, "blobs in delegate_data"))
    for index, spec in enumerate(delegate.compile_specs):
        yield from under(f".compile_specs[{index}]", _compile_spec_faults(spec))


def _compile_spec_faults(spec: CompileSpec) -> Faults:
    yield from under(".key", faults.text(spec.key))
    if not isinstance(spec.value, bytes):
        yield f".value: is a {type(spec.value).__name__}, not bytes"


# ---- instructions ----------------------------------------------------------------------------------


def _chain_faults(chain: Chain, plan: ExecutionPlan, kinds: tuple[type[Any], ...]) -> Faults:
    yield from under(".inputs", faults.indices(chain.inputs, len(kinds), "values"))
    yield from under(".outputs", faults.indices(chain.outputs, len(kinds), "values"))
    for index, instruction in enumerate(chain.instructions):
        check = _INSTRUCTION_CHECKS.get(type(instruction))
        if check is None:
            yield f".instructions[{index}]: is a {type(instruction).__name__}, not a record of an instruction"
            continue
        for fault in check(instruction, plan, chain, kinds):
            yield f".instructions[{index}]{fault}"
    if chain.stacktrace is not None:
        yield from under(".stacktrace", _stacktrace_faults(chain.stacktrace, len(chain.instructions)))


def _stacktrace_faults(stacktrace: tuple[tuple[Frame, ...], ...], count: int) -> Faults:
    if len(stacktrace) != count:
        yield f": has {len(stacktrace)} entries for {count} instructions"
    for index, frames in enumerate(stacktrace):
        for depth, frame in enumerate(frames):
            yield from under(f"[{index}][{depth}]", _frame_faults(frame))


def _frame_faults(frame: Frame) -> Faults:
    yield from under(".lineno", faults.integer(frame.lineno, faults.INT32))
    yield from under(".filename", faults.text(frame.filename))
    yield from under(".name", faults.text(frame.name))
    yield from under(".context", faults.text(frame.context))


def _kernel_call(call: KernelCall, plan: ExecutionPlan, chain: Chain, kinds: tuple[type[Any], ...]) -> Faults:
    yield from under(".op_index", faults.index(call.op_index, len(plan.operators), "operators"))
    yield from under(".args", faults.indices(call.args, len(kinds), "values"))


def _delegate_call(call: DelegateCall, plan: ExecutionPlan, chain: Chain, kinds: tuple[type[Any], ...]) -> Faults:
    yield from under(".delegate_index", faults.index(call.delegate_index, len(plan.delegates), "delegates"))
    yield from under(".args", faults.indices(call.args, len(kinds), "values"))


def _move_call(call: MoveCall, plan: ExecutionPlan, chain: Chain, kinds: tuple[type[Any], ...]) -> Faults:
    yield from under(".move_from", faults.index(call.move_from, len(kinds), "values"))
    yield from under(".move_to", faults.index(call.move_to, len(kinds), "values"))


def _jump_false_call(call: JumpFalseCall, plan: ExecutionPlan, chain: Chain, kinds: tuple[type[Any], ...]) -> Faults:
    """A jump may end at the chain's end, one past the last instruction."""
    yield from under(".cond_value_index", _value_of_kind(call.cond_value_index, kinds, (Bool, Tensor)))
    ends = len(chain.instructions) + 1
    yield from under(
        ".destination_instruction", faults.index(call.destination_instruction, ends, "places to go on (the end is one)")
    )


def _free_call(call: FreeCall, plan: ExecutionPlan, chain: Chain, kinds: tuple[type[Any], ...]) -> Faults:
    yield from under(".value_index", _value_of_kind(call.value_index, kinds, (Tensor,)))


def _value_of_kind(index: int, kinds: tuple[type[Any], ...], allowed: tuple[type[Any], ...]) -> Faults:
    wrong = tuple(faults.index(index, len(kinds), "values"))
    yield from wrong
    if not wrong and kinds[index] not in allowed:
        yield f": is {index}, a value of kind {kinds[index].__name__}, not {' or '.join(k.__name__ for k in allowed)}"


_InstructionCheck: TypeAlias = Callable[[Any, ExecutionPlan, Chain, tuple[type[Any], ...]], Faults]
_INSTRUCTION_CHECKS: Final[dict[type[Any], _InstructionCheck]] = {
    KernelCall: _kernel_call,
    DelegateCall: _delegate_call,
    MoveCall: _move_call,
    JumpFalseCall: _jump_false_call,
    FreeCall: _free_call,
}
