"""ExecuTorch's `executorch.exir.operator.convert`: an operator -> its out variant, and what schemas say."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torchgen.model import FunctionSchema, SchemaKind

from delegraph.aot import exir_ops

__all__ = [
    "get_op_overload",
    "get_out_args_from_opoverload",
    "get_out_args_from_schema",
    "is_inplace_variant",
    "is_out_variant",
    "output_to_aliased_input_map",
    "parse_qualified_opname",
    "schema_to_opoverload",
    "to_out_variant",
    "unwrap_op_overload",
]


def to_out_variant(op_overload: OpOverload) -> tuple[OpOverload, tuple[str, ...]]:
    """The overload that writes into tensors it is given, and the names of those. Raises `MissingOutVariant`."""
    if _is_out(op_overload):
        return op_overload, get_out_args_from_opoverload(op_overload)
    namespace, name = parse_qualified_opname(op_overload._schema.name)
    packet = getattr(getattr(exir_ops.edge, namespace), name)
    out = getattr(packet, op_overload._overloadname).to_out_variant()
    return out, get_out_args_from_opoverload(out)


def unwrap_op_overload(target: object) -> OpOverload:
    """torch's own operator, of which an edge operator is another name. Raises `TypeError` for what is neither."""
    for op in (getattr(target, "_op", None), target):
        if isinstance(op, OpOverload):
            return op
    raise TypeError(f"expected an operator overload or what has one as `_op`, not {target!r}")


def output_to_aliased_input_map(schema: Any) -> dict[int, int]:
    """Position of each result that is an argument, changed -> the position of the first such argument."""
    changed: dict[frozenset[str], int] = {}
    for position, argument in enumerate(schema.arguments):
        if (alias := argument.alias_info) is not None and alias.is_write:
            changed.setdefault(frozenset(alias.before_set), position)
    aliases = {i: result.alias_info for i, result in enumerate(schema.returns) if result.alias_info is not None}
    found = {i: changed.get(frozenset(alias.before_set)) for i, alias in aliases.items() if alias.is_write}
    return {i: position for i, position in found.items() if position is not None}


def get_out_args_from_opoverload(op_overload: OpOverload) -> tuple[str, ...]:
    """The names of the arguments that an out variant writes."""
    schema = _get_overload_schema(op_overload)
    assert schema is not None
    return get_out_args_from_schema(schema)


def get_out_args_from_schema(out_var_schema: FunctionSchema) -> tuple[str, ...]:
    """The names of the arguments that an out variant writes."""
    assert out_var_schema.is_out_fn(), f"not an out variant: {out_var_schema}"
    return tuple(argument.name for argument in out_var_schema.arguments.out)


def parse_qualified_opname(qualified_opname: str) -> tuple[str, str]:
    """`aten::add` -> `aten`, `add`. Raises `ValueError` for anything else."""
    namespace, name = qualified_opname.split("::")
    return namespace, name


def get_op_overload(qualified_opname: str, overload: str) -> OpOverload:
    """`aten::add`, `Tensor` -> torch's operator."""
    namespace, name = parse_qualified_opname(qualified_opname)
    found: OpOverload = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    return found


def schema_to_opoverload(schema: FunctionSchema) -> OpOverload:
    """The operator of a schema."""
    return get_op_overload(str(schema.name.name), schema.name.overload_name)


def is_out_variant(qualified_opname: str, overload: str) -> bool:
    """Whether an operator writes its results into tensors it is given."""
    return _is_out(get_op_overload(qualified_opname, overload))


def is_inplace_variant(qualified_opname: str, overload: str) -> bool:
    """Whether an operator writes its result into its first argument."""
    schema = _get_overload_schema(get_op_overload(qualified_opname, overload))
    return schema is not None and schema.kind() is SchemaKind.inplace


def _is_out(op: OpOverload) -> bool:
    schema = _get_overload_schema(op)
    return schema is not None and schema.is_out_fn()


@cache
def _get_overload_schema(op_overload: OpOverload) -> FunctionSchema | None:
    """The schema as torchgen has it; None for the few that torchgen cannot read."""
    try:
        return FunctionSchema.parse(str(op_overload._schema))
    except (RuntimeError, AssertionError, ValueError):  # what its parser raises, `assert` included
        return None
