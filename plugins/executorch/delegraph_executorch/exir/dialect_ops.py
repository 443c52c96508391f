"""Operators of all dialects, patterns that stand for operators, and an operator's out, in-place and other variants."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

import torch
from torch._ops import OpOverload
from torch.ao.quantization.fx._decomposed import quantized_decomposed_lib  # noqa: F401 - registers the operators
from torch.library import Library
from torchgen.model import FunctionSchema, SchemaKind
from torchgen.native_function_generation import (
    functional_to_out_signature,
    mutable_to_out_signature,
    self_to_out_signature,
)

from delegraph.aot import exir_ops
from delegraph.aot import exir_ops as ops

_Ops: Final = type(ops)
_DialectNamespace: Final = type(ops.edge)

_Pattern = TypeVar("_Pattern", bound=Callable[..., Any])

_KERNEL_KEYS: Final = (
    torch._C.DispatchKey.CompositeExplicitAutograd,
    torch._C.DispatchKey.CompositeImplicitAutograd,
    torch._C.DispatchKey.Meta,
)


def bind_pattern_to_op(library: Library, schema_or_name: str) -> Callable[[_Pattern], _Pattern]:
    """The decorated function is what an operator of `library` stands for.

    `schema_or_name` is the schema of an operator that is defined by it, or the name of one that is there. The function
    becomes its kernel where it has none, so that a graph that calls it can be traced again into the pattern. It is the
    operator's `_equivalent_callable`.
    """
    text = schema_or_name.rpartition("::")[2]
    name = text.partition("(")[0]

    def bind(pattern: _Pattern) -> _Pattern:
        if "(" in text:
            library.define(text)
        packet, _, overload = name.partition(".")
        overload = overload or "default"
        op = getattr(getattr(getattr(torch.ops, library.ns), packet), overload)
        if not any(op.has_kernel_for_dispatch_key(key) for key in _KERNEL_KEYS):
            library.impl(name, pattern, "CompositeImplicitAutograd")
        getattr(getattr(getattr(ops.backend, library.ns), packet), overload)._equivalent_callable = pattern
        return pattern

    return bind


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


_quantized = torch.ops.quantized_decomposed

_DEQUANT_OPS: Final[tuple[Any, ...]] = (
    _quantized.dequantize_per_tensor.default,
    _quantized.dequantize_per_channel.default,
)
_QUANT_OPS: Final[tuple[Any, ...]] = (
    _quantized.quantize_per_tensor.default,
    _quantized.quantize_per_channel.default,
)
_QUANT_PRIMITIVES: Final[list[Any]] = [
    *_DEQUANT_OPS,
    *_QUANT_OPS,
    _quantized.dequantize_per_tensor.tensor,
    _quantized.quantize_per_tensor.tensor,
    _quantized.convert_element_type.no_fuse,
    _quantized.choose_qparams.tensor,
]


def gen_out_variant_schema(func_op_schema: str) -> str:
    """The schema of the overload that writes what `func_op_schema` gives into tensors it is handed (torchgen's)."""
    namespace, _, entity = func_op_schema.rpartition("::")
    schema = FunctionSchema.parse(entity)
    made = {
        SchemaKind.inplace: self_to_out_signature,
        SchemaKind.functional: functional_to_out_signature,
        SchemaKind.mutable: mutable_to_out_signature,
    }.get(schema.kind())
    out = schema if made is None else made(schema)
    return f"{namespace}::{out}" if namespace else str(out)
