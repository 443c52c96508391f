"""Settings, and what came before `torch.export` (ExecuTorch `exir/capture`).

`exir.capture` is this package and the function in it: called, the package is that function.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from delegraph_executorch.exir.capture._capture import CallSpec, _capture_legacy_do_not_use, capture
from delegraph_executorch.exir.capture._config import CaptureConfig, EdgeCompileConfig, ExecutorchBackendConfig

__all__ = [
    "CallSpec",
    "CaptureConfig",
    "EdgeCompileConfig",
    "ExecutorchBackendConfig",
    "_capture_legacy_do_not_use",
    "capture",
]


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`exir.capture(model, args)`."""
        return capture(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
