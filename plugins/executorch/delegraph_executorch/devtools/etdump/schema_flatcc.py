"""ExecuTorch's `executorch.devtools.etdump.schema_flatcc`: the records of an ETDump."""

from __future__ import annotations

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
from delegraph_executorch.exir.schema import ContainerMetadata

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


class PROFILE_EVENT_ENUM(Enum):
    """Names of events that the runtime itself gives."""

    RUN_MODEL = "Method::execute"
    OPERATOR_CALL = "OPERATOR_CALL"
    DELEGATE_CALL = "DELEGATE_CALL"
    LOAD_MODEL = "Program::load_method"
