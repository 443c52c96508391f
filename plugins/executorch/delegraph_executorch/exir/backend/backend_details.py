"""ExecuTorch's `executorch.exir.backend.backend_details`."""

from collections.abc import Callable
from typing import Any, TypeVar

from torch.export import ExportedProgram

from delegraph.aot import BackendDetails, CompileSpec, NamedDataStoreOutput, PreprocessResult

__all__ = [
    "BackendDetails",
    "CompileSpec",
    "ExportedProgram",
    "NamedDataStoreOutput",
    "PreprocessResult",
    "enforcedmethod",
]

Method = TypeVar("Method", bound=Callable[..., Any])


def enforcedmethod(func: Method) -> Method:
    """Marks a method that every class derived from this one has to write."""
    func.__enforcedmethod__ = True  # type: ignore[attr-defined]
    return func
