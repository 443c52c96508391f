"""ExecuTorch's `executorch.exir.delegate`: the operator that calls a delegate is torch's own."""

from torch._higher_order_ops.executorch_call_delegate import (
    LOWERED_BACKEND_MODULE_TYPE,
    executorch_call_delegate,
    get_lowered_module_name,
    is_lowered_module,
)

__all__ = ["LOWERED_BACKEND_MODULE_TYPE", "executorch_call_delegate", "get_lowered_module_name", "is_lowered_module"]
