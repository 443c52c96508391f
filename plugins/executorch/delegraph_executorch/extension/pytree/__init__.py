"""ExecuTorch's `executorch.extension.pytree`: torch's own pytree, as in ExecuTorch's wheels."""

from torch.utils._pytree import (
    TreeSpec,
    tree_flatten,
    tree_map,
    tree_unflatten,
)
from torch.utils._pytree import _broadcast_to_and_flatten as broadcast_to_and_flatten
from torch.utils._pytree import _register_pytree_node as register_custom
from torch.utils._pytree import treespec_loads as from_str

__all__ = [
    "TreeSpec",
    "broadcast_to_and_flatten",
    "from_str",
    "register_custom",
    "tree_flatten",
    "tree_map",
    "tree_unflatten",
]
