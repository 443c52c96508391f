"""ExecuTorch's `executorch.devtools.etdump.schema_flatcc`: the records of an ETDump."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from delegraph.program.etdump import (
    AllocationEvent,
    Allocator,
    Bool,
    DebugEvent,
    Double,
    Event,
    Float,
    Int,
    Null,
    ProfileEvent,
    RunData,
    String,
    Tensor,
    TensorList,
    Value,
    ValueType,
)
from delegraph.program.etdump import ETDump as ETDumpFlatCC
from delegraph.program.schema import ScalarType

__all__ = [
    "PROFILE_EVENT_ENUM",
    "AllocationEvent",
    "Allocator",
    "Bool",
    "ContainerMetadata",
    "DebugEvent",
    "Double",
    "ETDumpFlatCC",
    "Event",
    "Float",
    "Int",
    "Null",
    "ProfileEvent",
    "RunData",
    "ScalarType",
    "String",
    "Tensor",
    "TensorList",
    "Value",
    "ValueType",
]


@dataclass
class ContainerMetadata:
    """The structure of a method's arguments and result; no ETDump holds it."""

    encoded_inp_str: str
    encoded_out_str: str


class PROFILE_EVENT_ENUM(Enum):
    """Names of events that the runtime itself gives."""

    RUN_MODEL = "Method::execute"
    OPERATOR_CALL = "OPERATOR_CALL"
    DELEGATE_CALL = "DELEGATE_CALL"
    LOAD_MODEL = "Program::load_method"
