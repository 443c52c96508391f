"""A failed instruction -> a RuntimeFault that says which method, instruction, operator and arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from delegraph.errors import Internal, InvalidArgument, InvalidType, RuntimeFault, cause_of, printable, restated
from delegraph.interfaces.device import DeviceTensor
from delegraph.program.schema import (
    Chain,
    DelegateCall,
    ExecutionPlan,
    Instruction,
    KernelCall,
)
from delegraph.program.walk import Place, operands
from delegraph.runtime.lacking import lacking

if TYPE_CHECKING:
    from delegraph.program.inlining import Origin

_FAULTS: Final[tuple[tuple[type[Exception], type[RuntimeFault]], ...]] = (
    (TypeError, InvalidType),
    (ValueError, InvalidArgument),
    (LookupError, InvalidArgument),
    (ArithmeticError, InvalidArgument),
)
"""A kernel's Python exception -> the error that its caller gets; any other is the kernel's own fault: `Internal`.
So are all of a backend's: a delegate's arguments are the compiler's, not the caller's."""

_FAULTS_OF_CALLERS: Final = (InvalidArgument, InvalidType)
"""The errors of a method's inputs, which are checked before it runs."""

_LONGEST_LIST: Final = 8


def instruction_fault(
    plan: ExecutionPlan,
    slots: Sequence[object],
    chain: int,
    instruction: int,
    error: Exception,
    *,
    origins: Mapping[Place, Origin] = MappingProxyType({}),
) -> RuntimeFault:
    """The fault to raise from `error`, of its own class if it is a fault already. `origins` as in `ChosenPlan`."""
    record = plan.chains[chain]
    name = instruction_name(plan, record.instructions[instruction])
    where = f"method {plan.name!r}, " + (f"chain {chain}, " if len(plan.chains) > 1 else "")
    arguments = ", ".join(value_text(slots[index]) for index in operands(record.instructions[instruction]))
    reason = str(error) if isinstance(error, RuntimeFault) else cause_of(error)
    place = _place_text(instruction, origins.get((chain, instruction)))
    told = f"{where}{place}, {name}({arguments}): {reason}{_user_line(record, instruction)}"
    is_delegate = isinstance(record.instructions[instruction], DelegateCall)
    if isinstance(error, RuntimeFault) and not (is_delegate and type(error) in _FAULTS_OF_CALLERS):
        return restated(error, told)
    fault = lacking(error)
    if fault is not None:
        return restated(fault, f"{told}; {fault}")
    faults = () if is_delegate else _FAULTS
    return next((fault for kind, fault in faults if isinstance(error, kind)), Internal)(told)


def _place_text(instruction: int, origin: Origin | None) -> str:
    """Where an instruction stands in the file."""
    if origin is None:
        return f"instruction {instruction}"
    step = "" if origin.delegate is None else f", step {origin.step} in the place of delegate {origin.delegate}"
    return f"instruction {origin.place[1]}{step}"


def instruction_name(plan: ExecutionPlan, instruction: Instruction) -> str:
    """The operator's name, `delegate 0 (CpuBackend)`, or the kind of instruction."""
    if isinstance(instruction, KernelCall):
        return printable(str(plan.operators[instruction.op_index]))
    if isinstance(instruction, DelegateCall):
        return f"delegate {instruction.delegate_index} {printable(plan.delegates[instruction.delegate_index].id)}"
    return type(instruction).__name__


def value_text(value: object) -> str:
    """A tensor as `float32[2, 3]`, a list by its items, anything else as Python writes it."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, DeviceTensor):
        return f"{value.dtype}{list(value.shape)} on {value.device}"
    if isinstance(value, list):
        items = [value_text(item) for item in value[:_LONGEST_LIST]]
        return f"[{', '.join(items)}{', …' if len(value) > _LONGEST_LIST else ''}]"
    return repr(value)


def _user_line(chain: Chain, instruction: int) -> str:
    if chain.stacktrace is None or instruction >= len(chain.stacktrace) or not chain.stacktrace[instruction]:
        return ""
    frame = chain.stacktrace[instruction][-1]
    told = (frame.filename, frame.lineno, frame.name, frame.context)
    return "\n  at {}:{} in {}: {}".format(*(printable(str(part)) for part in told))
