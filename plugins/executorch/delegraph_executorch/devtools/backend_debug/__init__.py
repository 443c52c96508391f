"""ExecuTorch's `executorch.devtools.backend_debug`."""

from delegraph_executorch.devtools.backend_debug.delegation_info import (
    DelegationBreakdown,
    DelegationInfo,
    get_delegation_info,
    print_delegation_info,
)

__all__ = ["DelegationBreakdown", "DelegationInfo", "get_delegation_info", "print_delegation_info"]
