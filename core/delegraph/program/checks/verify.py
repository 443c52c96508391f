"""Program -> violations of its rules, on which runtime, text form and serializer rely without looking again.

Reader and emitter share it: a program from a stranger's file and one that was just emitted obey the same rules.
Violations are collected with their field paths (`execution_plan[0].values[12].sizes[1]: …`), not reported one by one.
The checks of ExecuTorch's runtime are included (`runtime/executor/{program,method,program_validation}.cpp` and
`tensor_parser_*.cpp` there).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from delegraph.errors import InvalidProgram
from delegraph.program.alternatives import is_reserved
from delegraph.program.checks import field_checks
from delegraph.program.checks.field_checks import Violations, under
from delegraph.program.checks.verify_devices import device_violations
from delegraph.program.checks.verify_values import MAX_NBYTES, Kinds, ValueContext, value_violations
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
from delegraph.program.walk import delegates

MAX_ALIGNMENT: Final = 2**30
"""1 GiB: the largest page of common processors, and a bound on the bytes of padding."""
MAX_VIOLATIONS: Final = 20
"""How many violations are looked for: a file of garbage has as many as it has fields."""


def verify_program(program: Program) -> None:
    """Raise `InvalidProgram` with the violations of `program`, each with its field path, if it has any."""
    violations = find_violations(program)
    if violations:
        many = (
            f"{len(violations)} or more violations"
            if len(violations) == MAX_VIOLATIONS
            else f"{len(violations)} violation(s)"
        )
        raise InvalidProgram(f"the program has {many}:" + "".join(f"\n  {violation}" for violation in violations))


def find_violations(program: Program) -> list[str]:
    """The first `MAX_VIOLATIONS` of `program`, each with its field path; none if a runtime can rely on it."""
    return list(islice(_program_violations(program), MAX_VIOLATIONS))


def _program_violations(program: Program) -> Violations:
    yield from under("version", field_checks.integer(program.version, field_checks.UINT32))
    if not program.constants:
        yield "constants: is empty; constants[0] is reserved"
    yield from under("constants", _reserved_violations(program.constants))
    yield from under("mutable_data", _reserved_violations(program.mutable_data))
    for key, entry in program.named_data.items():
        yield from under(f"named_data[{key!r}]", _named_data_violations(key, entry))
    names: set[str] = set()
    valid = True
    for index, plan in enumerate(program.execution_plan):
        for violation in under(f"execution_plan[{index}]", _plan_violations(plan, program)):
            valid = False
            yield violation
        if plan.name in names:
            yield f"execution_plan[{index}].name: is {plan.name!r}, as an earlier method's"
        names.add(plan.name)
    yield from under("delegate_data", _unused_violations(program))
    if valid and any(map(is_reserved, names)):
        from delegraph.program.checks.verify_alternatives import alternative_violations

        yield from alternative_violations(program)


def _reserved_violations(buffers: Sequence[Buffer]) -> Violations:
    if buffers and memoryview(buffers[0]).nbytes:
        yield "[0]: is not empty; it is reserved, so that data_buffer_idx 0 can mean none"


def _named_data_violations(key: str, entry: NamedData) -> Violations:
    yield from field_checks.name(key)
    yield from under(".alignment", field_checks.integer(entry.alignment, (1, MAX_ALIGNMENT)))


def _unused_violations(program: Program) -> Violations:
    used = {delegate.processed for delegate in delegates(program)}
    for index in range(len(program.delegate_data)):
        if index not in used:
            yield f"[{index}]: no delegate refers to it"


def _plan_violations(plan: ExecutionPlan, program: Program) -> Violations:
    valid = True
    for violation in _field_violations(plan, program):
        valid = False
        yield violation
    if valid:
        yield from device_violations(plan)


def _field_violations(plan: ExecutionPlan, program: Program) -> Violations:
    yield from under(".name", field_checks.name(plan.name))
    meta = plan.container_meta_type
    yield from under(".container_meta_type.encoded_inp_str", field_checks.text(meta.encoded_inp_str))
    yield from under(".container_meta_type.encoded_out_str", field_checks.text(meta.encoded_out_str))
    yield from _planned_memory_violations(plan)
    context = ValueContext(
        kinds=tuple(map(type, plan.values)),
        constant_sizes=tuple(memoryview(data).nbytes for data in program.constants),
        mutable_data_sizes=tuple(memoryview(data).nbytes for data in program.mutable_data),
        planned_sizes=plan.non_const_buffer_sizes,
    )
    for index, value in enumerate(plan.values):
        for violation in value_violations(context, index, value):
            yield f".values[{index}]{violation}"
    yield from under(".inputs", field_checks.indices(plan.inputs, len(plan.values), "values"))
    yield from under(".outputs", field_checks.indices(plan.outputs, len(plan.values), "values"))
    for index, operator in enumerate(plan.operators):
        yield from under(f".operators[{index}]", _operator_violations(operator))
    for index, delegate in enumerate(plan.delegates):
        yield from under(f".delegates[{index}]", _delegate_violations(delegate, len(program.delegate_data)))
    if not plan.chains:
        yield ".chains: is empty; a method has at least one, if only without instructions"
    for index, chain in enumerate(plan.chains):
        yield from under(f".chains[{index}]", _chain_violations(chain, plan, context.kinds))


def _planned_memory_violations(plan: ExecutionPlan) -> Violations:
    sizes = plan.non_const_buffer_sizes
    yield from under(".non_const_buffer_sizes", field_checks.integers(sizes, (0, MAX_NBYTES)))
    if not sizes or sizes[0] != 0:
        yield f".non_const_buffer_sizes: is {sizes[:1]!r}…; its first entry is reserved and 0"
    devices = plan.non_const_buffer_device or ()
    for index, device in enumerate(devices):
        yield from under(f".non_const_buffer_device[{index}]", _buffer_device_violations(device, len(sizes)))
    if len({device.buffer_idx for device in devices}) < len(devices):
        yield ".non_const_buffer_device: names a buffer twice"


def _buffer_device_violations(device: NonConstBufferDevice, count: int) -> Violations:
    yield from under(".buffer_idx", field_checks.index(device.buffer_idx, count, "planned buffers"))
    yield from under(".device_index", field_checks.integer(device.device_index, field_checks.INT8))


def _operator_violations(operator: Operator) -> Violations:
    yield from under(".name", field_checks.name(operator.name))
    yield from under(".overload", field_checks.text(operator.overload))


def _delegate_violations(delegate: BackendDelegate, count: int) -> Violations:
    yield from under(".id", field_checks.name(delegate.id))
    yield from under(".processed", field_checks.index(delegate.processed, count, "blobs in delegate_data"))
    for index, spec in enumerate(delegate.compile_specs):
        yield from under(f".compile_specs[{index}]", _compile_spec_violations(spec))


def _compile_spec_violations(spec: CompileSpec) -> Violations:
    yield from under(".key", field_checks.text(spec.key))
    if not isinstance(spec.value, bytes):
        yield f".value: is a {type(spec.value).__name__}, not bytes"


# ---- instructions ----------------------------------------------------------------------------------


def _chain_violations(chain: Chain, plan: ExecutionPlan, kinds: Kinds) -> Violations:
    yield from under(".inputs", field_checks.indices(chain.inputs, len(kinds), "values"))
    yield from under(".outputs", field_checks.indices(chain.outputs, len(kinds), "values"))
    for index, instruction in enumerate(chain.instructions):
        check = _INSTRUCTION_CHECKS.get(type(instruction))
        if check is None:
            yield f".instructions[{index}]: is a {type(instruction).__name__}, not a record of an instruction"
            continue
        for violation in check(instruction, plan, chain, kinds):
            yield f".instructions[{index}]{violation}"
    if chain.stacktrace is not None:
        yield from under(".stacktrace", _stacktrace_violations(chain.stacktrace, len(chain.instructions)))


def _stacktrace_violations(stacktrace: tuple[tuple[Frame, ...], ...], count: int) -> Violations:
    if len(stacktrace) != count:
        yield f": has {len(stacktrace)} entries for {count} instructions"
    for index, frames in enumerate(stacktrace):
        for depth, frame in enumerate(frames):
            yield from under(f"[{index}][{depth}]", _frame_violations(frame))


def _frame_violations(frame: Frame) -> Violations:
    yield from under(".lineno", field_checks.integer(frame.lineno, field_checks.INT32))
    yield from under(".filename", field_checks.text(frame.filename))
    yield from under(".name", field_checks.text(frame.name))
    yield from under(".context", field_checks.text(frame.context))


def _kernel_call(call: KernelCall, plan: ExecutionPlan, chain: Chain, kinds: Kinds) -> Violations:
    yield from under(".op_index", field_checks.index(call.op_index, len(plan.operators), "operators"))
    yield from under(".args", field_checks.indices(call.args, len(kinds), "values"))


def _delegate_call(call: DelegateCall, plan: ExecutionPlan, chain: Chain, kinds: Kinds) -> Violations:
    yield from under(".delegate_index", field_checks.index(call.delegate_index, len(plan.delegates), "delegates"))
    yield from under(".args", field_checks.indices(call.args, len(kinds), "values"))


def _move_call(call: MoveCall, plan: ExecutionPlan, chain: Chain, kinds: Kinds) -> Violations:
    yield from under(".move_from", field_checks.index(call.move_from, len(kinds), "values"))
    yield from under(".move_to", field_checks.index(call.move_to, len(kinds), "values"))


def _jump_false_call(call: JumpFalseCall, plan: ExecutionPlan, chain: Chain, kinds: Kinds) -> Violations:
    """A jump may end at the chain's end, one past the last instruction."""
    yield from under(".cond_value_index", _value_of_kind(call.cond_value_index, kinds, (Bool, Tensor)))
    ends = len(chain.instructions) + 1
    yield from under(
        ".destination_instruction",
        field_checks.index(call.destination_instruction, ends, "places to go on (the end is one)"),
    )


def _free_call(call: FreeCall, plan: ExecutionPlan, chain: Chain, kinds: Kinds) -> Violations:
    yield from under(".value_index", _value_of_kind(call.value_index, kinds, (Tensor,)))


def _value_of_kind(index: int, kinds: Kinds, allowed: Kinds) -> Violations:
    wrong = tuple(field_checks.index(index, len(kinds), "values"))
    yield from wrong
    if not wrong and kinds[index] not in allowed:
        yield f": is {index}, a value of kind {kinds[index].__name__}, not {' or '.join(k.__name__ for k in allowed)}"


_InstructionCheck: TypeAlias = Callable[[Any, ExecutionPlan, Chain, Kinds], Violations]
_INSTRUCTION_CHECKS: Final[dict[type[object], _InstructionCheck]] = {
    KernelCall: _kernel_call,
    DelegateCall: _delegate_call,
    MoveCall: _move_call,
    JumpFalseCall: _jump_false_call,
    FreeCall: _free_call,
}
