"""The operator that an entry names -> the schema that a program calls its kernel by.

That is an out variant, torch's or the one that is made for a custom operator, or an operator that works in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from importlib import import_module

import torch
from torch._ops import OpOverload

from delegraph.aot.edge import dim_order_ops  # noqa: F401 - registers them
from delegraph.aot.graph.out_variants import find_out_variant
from delegraph.aot.torch_internals import all_operator_names, parse_schema
from delegraph.errors import CodegenError, cause_of

__all__ = ["SchemaViolation", "callable_schema", "declared_schema", "import_operators"]


class SchemaViolation(Exception):
    """An operator is not there, is no out variant, or has another schema."""


def import_operators(modules: Iterable[str]) -> None:
    """Import the modules that define custom operators. Raises `CodegenError`."""
    for module in modules:
        try:
            import_module(module)
        except Exception as cause:
            raise CodegenError(f"--import {module}: importing it raised {cause_of(cause)}") from cause


def callable_schema(name: str) -> torch.FunctionSchema:
    """The schema that a kernel for `name` ("add.out", "mylib::scaled.out") is called by. Raises `SchemaViolation`."""
    full = name if "::" in name else f"aten::{name}"
    operator = full.partition(".")[0]
    overloads = _overloads(operator)
    if not overloads:
        raise SchemaViolation(_unknown_operator(operator))
    variants = {variant for op in overloads if (variant := find_out_variant(op)) is not None}
    called = {str(variant.operator): variant.schema for variant in variants}
    called |= {_name(op._schema): op._schema for op in overloads if any(a.is_out for a in op._schema.arguments)}
    if full in called:
        return called[full]
    known = f"kernels run {', '.join(sorted(called))}" if called else "it has no out variant"
    functional = next((op for op in overloads if _name(op._schema) == full), None)
    if functional is None:
        raise SchemaViolation(f"torch has no overload {full}; {known}")
    variant = find_out_variant(functional)
    known = f"kernels run {variant.operator}" if variant is not None else known
    raise SchemaViolation(f"{full} is no out variant, and only those run on planned memory; {known}")


def declared_schema(text: str) -> torch.FunctionSchema:
    """The schema that is written out in `text`, which has to be the known one. Raises `SchemaViolation`."""
    name, bracket, rest = text.partition("(")
    try:
        declared = parse_schema(f"{name if '::' in name else f'aten::{name}'}{bracket}{rest}")
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise SchemaViolation(f"the schema cannot be read: {reason}") from error
    known = callable_schema(_name(declared))
    difference = _difference(declared, known)
    if difference is not None:
        raise SchemaViolation(f"the schema is not that of the operator: {difference}; the operator's is {known}")
    return known


def _difference(declared: torch.FunctionSchema, known: torch.FunctionSchema) -> str | None:
    """The first difference, in words. Letters of alias sets have no meaning; SymInt is an int at run time."""
    for position, (mine, theirs) in enumerate(zip(declared.arguments, known.arguments, strict=False), 1):
        if _argument(mine) != _argument(theirs):
            return f"argument {position} is `{_text(mine)}` here and `{_text(theirs)}` there"
    counts = len(declared.arguments), len(known.arguments)
    if counts[0] != counts[1]:
        return f"it has {counts[0]} arguments here and {counts[1]} there"
    results = [[(str(result.type), _is_written(result)) for result in s.returns] for s in (declared, known)]
    return None if results[0] == results[1] else "it returns something else"


def _argument(argument: torch.Argument) -> tuple[object, ...]:
    default = (argument.has_default_value(), argument.default_value)
    return argument.name, str(argument.type), argument.kwarg_only, _is_written(argument), *default


def _text(argument: torch.Argument) -> str:
    default = f"={argument.default_value}" if argument.has_default_value() else ""
    mutated = "(!)" if _is_written(argument) else ""
    return f"{'*, ' if argument.kwarg_only else ''}{argument.type}{mutated} {argument.name}{default}"


def _is_written(argument: torch.Argument) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


# ---- names ---------------------------------------------------------------------------------------------


def _overloads(operator: str) -> list[OpOverload]:
    """The overloads of `namespace::name`; [] if torch has no such operator."""
    namespace, _, name = operator.partition("::")
    if operator not in _operator_names():
        return []
    packet = getattr(getattr(torch.ops, namespace), name)
    return [getattr(packet, overload) for overload in packet.overloads()]


def _unknown_operator(operator: str) -> str:
    namespace, _, missing = operator.partition("::")
    pairs = (name.partition("::") for name in _operator_names())
    names = sorted({name for space, _, name in pairs if space == namespace})
    if not names:
        return f"torch has no operators of the namespace {namespace}: --import the module that defines them"
    close = [f"{namespace}::{name}" for name in get_close_matches(missing, names)]
    return f"torch has no operator {operator}" + (f"; did you mean {' or '.join(close)}?" if close else "")


def _operator_names() -> Iterator[str]:
    return (name.partition(".")[0] for name in all_operator_names())


def _name(schema: torch.FunctionSchema) -> str:
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)
