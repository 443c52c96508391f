"""What came before `torch.export` (ExecuTorch `exir/capture/_capture.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import torch

from delegraph.errors import LoweringError

__all__ = ["CallSpec", "capture", "patch_forward"]


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


def capture(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Gone, as in ExecuTorch's own releases: raises `LoweringError`."""
    raise LoweringError("exir.capture traces nothing any more: use torch.export.export(model, args), then to_edge")


def _capture_legacy_do_not_use(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Gone too."""
    capture()
