"""What a backend is, and `to_backend` (ExecuTorch `exir/backend`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from torch._higher_order_ops.executorch_call_delegate import (
    LOWERED_BACKEND_MODULE_TYPE,
    executorch_call_delegate,
    get_lowered_module_name,
)
from torch.export import ExportedProgram

import delegraph.aot
from delegraph.aot import (
    BackendDetails,
    CompileSpec,
    LoweredBackendModule,
    MethodProgramsPartitionerSpec,
    NamedDataStoreOutput,
    Partitioner,
    PartitionResult,
    PreprocessResult,
    validation_disabled,
)
from delegraph_executorch.exir.emission import output_of
from delegraph_executorch.exir.error import executorchs_errors
from delegraph_executorch.exir.schema import Program

__all__ = [
    "BackendDetails",
    "CompileSpec",
    "ExportedProgram",
    "LoweredBackendModule",
    "Method",
    "MethodProgramsPartitionerSpec",
    "NamedDataStoreOutput",
    "PartitionResult",
    "Partitioner",
    "PreprocessResult",
    "disable_validation",
    "enforcedmethod",
    "executorch_call_delegate",
    "get_lowered_module_name",
    "to_backend",
    "validation_disabled",
]


Method = TypeVar("Method", bound=Callable[..., Any])


def enforcedmethod(func: Method) -> Method:
    """Marks a method that every class derived from this one has to write."""
    func.__enforcedmethod__ = True  # type: ignore[attr-defined]
    return func


@executorchs_errors()
def to_backend(*args: Any, **kwargs: Any) -> Any:
    """`delegraph.aot.to_backend`, in its three forms: by backend id, by partitioner, by methods."""
    result = delegraph.aot.to_backend(*args, **kwargs)
    if isinstance(result, LoweredBackendModule):
        result.__class__ = _WithRecords
    return result


class _WithRecords(LoweredBackendModule):
    """A lowered module whose program is in ExecuTorch's records."""

    def program(self, emit_stacktrace: bool = False, memory_planning: Any = None) -> Program:
        finished = self._executorch(memory_planning, emit_stacktrace=emit_stacktrace)
        assert isinstance(finished, delegraph.aot.ExecutorchProgramManager)
        return output_of(finished).program


_WithRecords.__name__ = LOWERED_BACKEND_MODULE_TYPE  # torch knows a lowered module by the name of its class


_disabled = ExitStack()


def disable_validation() -> None:
    """Let partitioners change the graphs that they are shown, from now on in this thread."""
    _disabled.enter_context(validation_disabled())
