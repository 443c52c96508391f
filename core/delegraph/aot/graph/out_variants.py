"""Functional operator -> its out variant: the overload that writes the same results into tensors it is given.

An in-place operator is its own out variant: its mutated argument is the memory it writes; one that gives new tensors
besides has one more argument for each. A custom operator needs none from its author: its out variant is named as torch
names them, and exists as a kernel only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import islice
from string import ascii_lowercase
from typing import Any, Final

import torch
from torch._ops import OpOverload, OpOverloadPacket

from delegraph.aot.torch_internals import parse_schema
from delegraph.errors import MissingOutVariant
from delegraph.program.schema import Operator

__all__ = ["OutVariant", "find_out_variant", "gives_scalar", "missing_text", "operator_of", "out_variant"]

_TENSOR_OPTIONS: Final = frozenset({"dtype", "layout", "device", "pin_memory"})
"""A factory's options: the out tensor already has them, so an out overload may leave them out."""


@dataclass(frozen=True, slots=True)
class OutVariant:
    """An operator, by its `schema`, that writes into its arguments `outs` (in order of the returns); no outs: it works
    in place."""

    schema: torch.FunctionSchema
    outs: tuple[str, ...]

    @property
    def operator(self) -> Operator:
        """The name that the program calls it by."""
        return Operator(self.schema.name, self.schema.overload_name)


def operator_of(op: OpOverload) -> Operator:
    """`aten.add.out` -> aten::add.out; the default overload has no name in a program."""
    return Operator(op._schema.name, op._schema.overload_name)


def out_variant(op: OpOverload) -> OutVariant:
    """The out variant of `op`. Raises `MissingOutVariant`."""
    variant = find_out_variant(op)
    if variant is None:
        raise MissingOutVariant(missing_text(op))
    return variant


@cache
def find_out_variant(op: OpOverload) -> OutVariant | None:
    """The out variant of `op`, or None if there is none."""
    if op._schema.is_mutable and all(result.alias_info is not None for result in op._schema.returns):
        return OutVariant(op._schema, ())
    with_options = _signature(op._schema)
    without_options = tuple(entry for entry in with_options if entry[0] not in _TENSOR_OPTIONS)
    candidates = [candidate for candidate in _overloads(op.overloadpacket) if _outs(candidate._schema)]
    for signature in (with_options, without_options):
        for candidate in candidates:
            if _signature(candidate._schema) == signature and _fills_returns(candidate._schema, op._schema):
                return _variant(candidate._schema)
    return _made_for(op)


def _variant(schema: torch.FunctionSchema) -> OutVariant:
    return OutVariant(schema, tuple(argument.name for argument in _outs(schema)))


def _made_for(op: OpOverload) -> OutVariant | None:
    """The out variant of somebody's own operator whose results are new tensors, unless its name is taken."""
    schema = op._schema
    aliases = any(result.alias_info is not None for result in schema.returns)
    tensors = bool(schema.returns) and all(str(result.type) in _TENSOR_TYPES for result in schema.returns)
    if op.namespace == "aten" or aliases or not tensors or _out_overload(op) in op.overloadpacket.overloads():
        return None
    return OutVariant(parse_schema(_wanted_schema(op)), _out_names(schema))


def _out_overload(op: OpOverload) -> str:
    """The out variant's overload by torch's rule, unless ExecuTorch has another name for it."""
    overload = op._schema.overload_name
    return _EXECUTORCH_OVERLOADS.get((op.namespace, overload)) or (f"{overload}_out" if overload else "out")


_EXECUTORCH_OVERLOADS: Final = {("quantized_decomposed", "tensor"): "Tensor_out"}
"""ExecuTorch `kernels/quantized/quantized.yaml`, where it does not follow torch's rule."""


@cache
def gives_scalar(op: OpOverload) -> bool:
    """Whether `op` returns one number or bool: the runtime has such operators as they are, without out variant."""
    kinds = {"IntType", "FloatType", "BoolType", "NumberType"}
    return len(op._schema.returns) == 1 and op._schema.returns[0].type.kind() in kinds


def missing_text(op: OpOverload) -> str:
    """A message about an operator without out variant: what to do."""
    packet = op.overloadpacket
    others = [f"{o._schema.name}.{o._overloadname}" for o in _overloads(packet) if _outs(o._schema)]
    has = f"the out overloads are {', '.join(others)}, none with its arguments" if others else "no overload takes out"
    return (
        f"{op._schema} has no out variant: {has}. Delegate it to a backend, decompose it, or register an out variant"
        f' (torch.library: "{_wanted_schema(op)}") and import that before lowering'
    )


_TENSOR_TYPES: Final = {"Tensor": "Tensor({}!)", "List[Tensor]": "Tensor({}!)[]"}
"""Types of results, and how an out argument of the type is written."""


def _wanted_schema(op: OpOverload) -> str:
    """The out variant's schema."""
    schema = op._schema
    letters = list(
        islice((letter for letter in ascii_lowercase if letter not in _written_sets(schema)), len(schema.returns))
    )
    types = [_TENSOR_TYPES.get(str(result.type), "Tensor({}!)") for result in schema.returns]
    written = [kind.format(letter) for kind, letter in zip(types, letters, strict=True)]
    outs = [f"{kind} {name}" for kind, name in zip(written, _out_names(schema), strict=True)]
    arguments = str(schema).partition("(")[2].rpartition(") ->")[0]
    star = [] if any(argument.kwarg_only for argument in schema.arguments) else ["*"]
    body = ", ".join([*filter(None, [arguments]), *star, *outs])
    returns = written[0] if len(written) == 1 else f"({', '.join(written)})"
    return f"{schema.name}.{_out_overload(op)}({body}) -> {returns}"


def _out_names(schema: torch.FunctionSchema) -> tuple[str, ...]:
    """The names that torch gives the out arguments."""
    many = len(schema.returns) > 1
    return tuple(f"out{position}" if many else "out" for position in range(len(schema.returns)))


def _written_sets(schema: torch.FunctionSchema) -> set[str]:
    """The letters of the schema's `Tensor(a!)`."""
    annotated = (argument.alias_info for argument in schema.arguments)
    written = [alias for alias in annotated if alias is not None and alias.is_write]
    return {name.removeprefix("alias::") for alias in written for name in alias.before_set}


def _overloads(packet: OpOverloadPacket[Any, Any]) -> list[OpOverload]:
    return [getattr(packet, name) for name in packet.overloads()]


def _signature(schema: torch.FunctionSchema) -> tuple[tuple[str, str], ...]:
    """Names and types of the arguments that are not outs, in order."""
    return tuple((a.name, str(a.real_type)) for a in schema.arguments if not a.is_out)


def _outs(schema: torch.FunctionSchema) -> list[torch.Argument]:
    return [a for a in schema.arguments if a.is_out and a.kwarg_only]


def _fills_returns(out: torch.FunctionSchema, functional: torch.FunctionSchema) -> bool:
    """Whether the outs are of the functional results' types."""
    return [str(a.type) for a in _outs(out)] == [str(r.type) for r in functional.returns]
