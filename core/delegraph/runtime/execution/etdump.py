"""The events of a tracer -> an ETDump and its debug buffer, which ExecuTorch's Inspector reads, as does ours.

    block "Method::load forward"   ->  run "Default"       event "Program::load_method"
    block "Method::execute"        ->  run "Execute"       event "Method::execute"
    instruction "aten::add.out"    ->                      event "native_call_add.out"
    instruction "delegate 0 Npu"   ->                      event "DELEGATE_CALL"
    a backend's event in it        ->                      event with its delegate debug id, and no name

Runs and events have the names that ExecuTorch's runtime gives them (`runtime/executor/method.cpp`, its generated
kernels). The format has no field for the method of a run: its name is the metadata of "Program::load_method"
or "Method::execute". ExecuTorch's Inspector refuses a dump with allocations in it, so there are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph.program.dtypes import scalar_type
from delegraph.program.etdump import (
    Bool,
    DebugEvent,
    Double,
    ETDump,
    Event,
    Int,
    ProfileEvent,
    RunData,
    Tensor,
    TensorList,
    Value,
    ValueType,
)
from delegraph.program.strides import dense_strides
from delegraph.runtime.execution import tracing
from delegraph.runtime.execution.tracing import EventBlock

__all__ = ["make_etdump"]

VERSION: Final = 0
ALIGNMENT: Final = 64
"""Bytes to which tensors are aligned in the debug buffer, as ExecuTorch's `BufferDataSink` does."""

RUNS: Final = ((re.compile(tracing.LOAD_METHOD), "Default"), (re.compile(tracing.EXECUTE), "Execute"))
EVENTS: Final = (
    (re.compile(rf"^{tracing.LOAD_METHOD}$"), "Program::load_method"),
    (re.compile(r"^executorch_prim::.*"), "OPERATOR_CALL"),
    (re.compile(r"^\w+::(\w[\w.]*)$"), r"native_call_\1"),
    (re.compile(r"^delegate \d+ .*"), "DELEGATE_CALL"),
    (re.compile(r"^MoveCall$"), "MOVE_CALL"),
    (re.compile(r"^FreeCall$"), "FREE_CALL"),
)
"""The tracer's names -> ExecuTorch's; the first that fits."""
FRAMEWORK_EVENTS: Final = frozenset({tracing.EXECUTE})


def make_etdump(blocks: Sequence[EventBlock]) -> tuple[ETDump, bytes]:
    """The ETDump of a tracer's blocks, times in nanoseconds, and the debug buffer that its tensors lie in.

    Values that the format cannot hold (None, texts, lists of numbers) are left out.
    """
    buffer = bytearray()
    return ETDump(VERSION, [_run(block, buffer) for block in blocks]), bytes(buffer)


def _run(block: EventBlock, buffer: bytearray) -> RunData:
    name = next((name for pattern, name in RUNS if pattern.match(block.name)), block.name)
    return RunData(name, events=[*_profile_events(block), *_debug_events(block, buffer)])


def _profile_events(block: EventBlock) -> Iterator[Event]:
    for event in block.profile_events:
        own_id = event.delegate_debug_id
        yield Event(
            profile_event=ProfileEvent(
                name=_name(event.name) if own_id is None else None,
                chain_index=max(event.chain, 0) if event.instruction >= 0 else -1,
                instruction_id=event.instruction,
                delegate_debug_id_int=own_id if isinstance(own_id, int) else None,
                delegate_debug_id_str=own_id if isinstance(own_id, str) else None,
                delegate_debug_metadata=event.metadata or None,
                start_time=event.start,
                end_time=event.end,
            )
        )


def _debug_events(block: EventBlock, buffer: bytearray) -> Iterator[Event]:
    for event in block.debug_events:
        own_id = event.delegate_debug_id
        is_output = event.instruction < 0 and own_id is None
        value = _value(event.value, buffer, Bool(True) if is_output else None)
        if value is not None:
            yield Event(
                debug_event=DebugEvent(
                    name=_name(event.name) if own_id is None else None,
                    chain_index=max(event.chain, 0),
                    instruction_id=event.instruction,
                    delegate_debug_id_int=own_id if isinstance(own_id, int) else None,
                    delegate_debug_id_str=own_id if isinstance(own_id, str) else None,
                    debug_entry=value,
                )
            )


def _name(name: str) -> str:
    if name in FRAMEWORK_EVENTS:
        return name
    return next((pattern.sub(new, name) for pattern, new in EVENTS if pattern.match(name)), name)


def _value(value: Any, buffer: bytearray, output: Bool | None) -> Value | None:
    match value:
        case np.ndarray():
            return Value(ValueType.TENSOR.value, tensor=_tensor(value, buffer), output=output)
        case [*items] if items and all(isinstance(item, np.ndarray) for item in items):
            tensors = TensorList([_tensor(item, buffer) for item in items])
            return Value(ValueType.TENSOR_LIST.value, tensor_list=tensors, output=output)
        case bool():
            return Value(ValueType.BOOL.value, bool_value=Bool(value), output=output)
        case int():
            return Value(ValueType.INT.value, int_value=Int(value), output=output)
        case float():
            return Value(ValueType.DOUBLE.value, double_value=Double(value), output=output)
    return None


def _tensor(array: NDArray[np.generic], buffer: bytearray) -> Tensor:
    """Its elements in row-major order, whatever they were in: that is how Inspectors read them."""
    buffer += bytes(-len(buffer) % ALIGNMENT)
    offset = len(buffer)
    buffer += array.tobytes()
    return Tensor(scalar_type(array.dtype), list(array.shape), list(dense_strides(array.shape)), offset)
