"""An operator -> another overload of it (`exir/dialects/edge/op/api.py`)."""

from __future__ import annotations

from enum import Enum

import torch
from torch._ops import OpOverload

from delegraph.aot import EdgeOpOverload
from delegraph.errors import LoweringError

__all__ = ["get_callable", "get_torch_op_overload", "to_variant"]


def get_torch_op_overload(namespace: str, opname: str, overload: str | None) -> OpOverload:
    """`torch.ops.<namespace>.<opname>.<overload>`; without an overload, the default one."""
    found: OpOverload = getattr(getattr(getattr(torch.ops, namespace), opname), overload or "default")
    return found


def get_callable(name: str) -> OpOverload:
    """`"add.Tensor"` -> `torch.ops.aten.add.Tensor`."""
    opname, _, overload = name.partition(".")
    return get_torch_op_overload("aten", opname, overload)


def to_variant(op: OpOverload, variant: Enum) -> OpOverload:
    """The functional or the out variant of `op`, which may be `op` itself; `variant` is torchgen's `SchemaKind`.

    Raises `MissingOutVariant` or `LoweringError` where there is none.
    """
    if variant.name == "out":
        return EdgeOpOverload(op).to_out_variant()
    if variant.name != "functional":
        raise LoweringError(f"to_variant finds functional and out variants of an operator, not {variant.name}")
    for name in op.overloadpacket.overloads():
        candidate: OpOverload = getattr(op.overloadpacket, name)
        if not candidate._schema.is_mutable and _given(candidate) == _given(op):
            return candidate
    raise LoweringError(f"{op} has no functional variant with its arguments: {_given(op)}")


def _given(op: OpOverload) -> list[tuple[str, str]]:
    """Names and types of the arguments besides outs."""
    return [(argument.name, str(argument.real_type)) for argument in op._schema.arguments if not argument.is_out]
