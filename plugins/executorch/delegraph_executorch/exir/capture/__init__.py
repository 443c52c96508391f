"""Settings, and what came before `torch.export` (ExecuTorch `exir/capture`)."""

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
