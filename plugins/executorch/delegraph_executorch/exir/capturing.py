"""ExecuTorch's `exir.capture`: how models were traced before `torch.export`, and what of that still means something."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch

from delegraph.errors import LoweringError
from delegraph_executorch.exir.error import ExportError, ExportErrorType
from delegraph_executorch.exir.graph_module import ExirDynamoConfig

if TYPE_CHECKING:
    from delegraph_executorch.exir.program._program import ExirExportedProgram


@dataclass
class CaptureConfig:
    """How `capture` traced a model, before `torch.export.export` took its place."""

    pt2_mode: bool = True
    enable_functionalization: bool = True
    enable_dynamic_shape: bool = False
    enable_aot: bool = False
    _dynamo_config: ExirDynamoConfig = field(default_factory=ExirDynamoConfig)
    _unlift: bool = False
    _use_old_decomp_table: bool = False


class CallSpec(NamedTuple):
    """The structure of a model's arguments and results."""

    in_spec: Any = None
    out_spec: Any = None


@contextmanager
def patch_forward(obj: torch.nn.Module, new_method: Callable[..., Any]) -> Iterator[None]:
    """Let `obj.forward` be `new_method` for as long as the context lasts: to export another method of a module."""
    original = obj.forward
    obj.forward = new_method.__get__(obj, type(obj)) if not hasattr(new_method, "__self__") else new_method
    try:
        yield
    finally:
        obj.forward = original


def capture(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    config: CaptureConfig | None = None,
    dynamic_shapes: Any = None,
) -> ExirExportedProgram:
    """What `torch.export.export` makes of a module, a method of one or a function, with a `DeprecationWarning`.

    Raises `ExportError` for arguments that are not a tuple, and for options of the tracers that came before.
    """
    from delegraph_executorch.exir.program._program import ExirExportedProgram

    warnings.warn("exir.capture is deprecated; use torch.export.export, then to_edge", DeprecationWarning, stacklevel=2)
    if not isinstance(args, tuple):
        raise ExportError(ExportErrorType.INVALID_INPUT_TYPE, f"args is a tuple of inputs, not {type(args).__name__}")
    _check(config or CaptureConfig())
    owner = getattr(f, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        with patch_forward(owner, f):
            program = torch.export.export(owner, args, dynamic_shapes=dynamic_shapes)
    else:
        model = f if isinstance(f, torch.nn.Module) else _Calls(f)
        program = torch.export.export(model, args, dynamic_shapes=dynamic_shapes)
    return ExirExportedProgram(program, after_to_edge_passes=False)


class _Calls(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def _check(config: CaptureConfig) -> None:
    """`enable_dynamic_shape` and `enable_aot` choose among tracers that give the same as `torch.export.export`."""
    default = CaptureConfig()
    for option in ("pt2_mode", "enable_functionalization", "_unlift", "_use_old_decomp_table"):
        if getattr(config, option) != getattr(default, option):
            raise ExportError(
                ExportErrorType.NOT_SUPPORTED,
                f"CaptureConfig.{option}: what torch.export.export traces has no such option; leave it out",
            )


def _capture_legacy_do_not_use(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Gone: raises `LoweringError`."""
    raise LoweringError("this tracer is gone: use torch.export.export(model, args), then to_edge")
