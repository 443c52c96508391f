"""ExecuTorch's `executorch.exir.backend.backend_api`.

Its functions raise Delegraph's errors, which here are also of the builtin kinds that ExecuTorch raises: callers who
catch `NotImplementedError`, `RuntimeError` or `AssertionError` catch them.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import delegraph.aot
from delegraph.aot import (
    BackendDetails,
    CompileSpec,
    LoweredBackendModule,
    MethodProgramsPartitionerSpec,
    Partitioner,
    PartitionResult,
    PreprocessResult,
    validation_disabled,
)
from delegraph.errors import InvalidPartition, PluginNotFound, PreprocessError
from delegraph_executorch.exir.delegate import (
    LOWERED_BACKEND_MODULE_TYPE,
    executorch_call_delegate,
    get_lowered_module_name,
)
from delegraph_executorch.exir.emit._emit_program import output_of
from delegraph_executorch.exir.schema import Program

__all__ = [
    "BackendDetails",
    "BackendNotFound",
    "CompileSpec",
    "LoweredBackendModule",
    "MethodProgramsPartitionerSpec",
    "PartitionRefused",
    "PartitionResult",
    "Partitioner",
    "PreprocessFailed",
    "PreprocessResult",
    "disable_validation",
    "executorch_call_delegate",
    "get_lowered_module_name",
    "to_backend",
    "validation_disabled",
]


class BackendNotFound(PluginNotFound, NotImplementedError):
    """No class and no installed plug-in has the backend id."""


class PreprocessFailed(PreprocessError, RuntimeError):
    """A backend's `preprocess` raised."""


class PartitionRefused(InvalidPartition, AssertionError):
    """What a partitioner did cannot be cut out."""


def to_backend(*args: Any, **kwargs: Any) -> Any:
    """`delegraph.aot.to_backend`, in its three forms: by backend id, by partitioner, by methods."""
    try:
        result = delegraph.aot.to_backend(*args, **kwargs)
    except PluginNotFound as error:
        wanted = f"Backend {args[0]} was not found.\n" if args and isinstance(args[0], str) else ""
        raise BackendNotFound(f"{wanted}{error}") from error
    except PreprocessError as error:
        raise PreprocessFailed(str(error)) from error.__cause__
    except InvalidPartition as error:
        raise PartitionRefused(str(error)) from error.__cause__
    if isinstance(result, LoweredBackendModule):
        result.__class__ = _WithRecords
    return result


class _WithRecords(LoweredBackendModule):
    """A lowered module whose program is in ExecuTorch's records."""

    def program(self, emit_stacktrace: bool = False, memory_planning: Any = None) -> Program:  # type: ignore[override]
        return output_of(self._executorch(memory_planning, emit_stacktrace=emit_stacktrace)).program


_WithRecords.__name__ = LOWERED_BACKEND_MODULE_TYPE  # torch knows a lowered module by the name of its class


_disabled = ExitStack()


def disable_validation() -> None:
    """Let partitioners change the graphs that they are shown, from now on in this thread."""
    _disabled.enter_context(validation_disabled())
