"""`exir_ops`: the operators of edge programs under the name that ExecuTorch's delegates know them by.

Edge nodes call torch's own operators here, where ExecuTorch wraps each in a class. So
`node.target == exir_ops.edge.aten.add.Tensor` reads and works as it does there.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Final

import torch
from torch._ops import OpOverload as EdgeOpOverload

from delegraph.aot.edge import dim_order_ops  # noqa: F401 - registers `exir_ops.edge.dim_order_ops`

__all__ = ["EdgeOpOverload", "exir_ops"]

exir_ops: Final = SimpleNamespace(edge=torch.ops, backend=torch.ops)
"""`exir_ops.edge.<namespace>.<operator>.<overload>`; `exir_ops.backend` is for operators that backends' passes add."""
