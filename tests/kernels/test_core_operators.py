"""What lowering may call of core ATen, portable has a kernel for."""

from __future__ import annotations

import torch

from delegraph.aot.graph.out_variants import find_out_variant
from delegraph_portable import library


def test_every_core_operator_has_a_kernel() -> None:
    """What remains are views, which programs hold as copies, and operators of symbolic numbers."""
    missing = set()
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        packet, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        gives_tensors = bool(op._schema.returns) and all("Tensor" in str(r.type) for r in op._schema.returns)
        made = torch.Tag.core in op.tags and gives_tensors and not op.is_view and not op._schema.is_mutable
        variant = find_out_variant(op) if made else None
        if variant is not None and str(variant.operator) not in library.operator_names():
            missing.add(name)
    assert missing == set()
