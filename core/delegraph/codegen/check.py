"""Entries of a kernels.yaml -> registrations; or every violation of the file, each with its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from delegraph.codegen.functions import function_violation
from delegraph.codegen.keys import Key, alias_violations, keys_of, meta_violations
from delegraph.codegen.operators import SchemaViolation, callable_schema, declared_schema
from delegraph.codegen.read import KernelEntry, OperatorEntry, Violation, read_entries
from delegraph.errors import CodegenError

__all__ = ["Registration", "registrations"]


@dataclass(frozen=True, slots=True)
class Registration:
    """`kernel` ("module:function") runs `operator` ("namespace::name.overload") for `key`; None: for any."""

    operator: str
    kernel: str
    key: Key | None
    line: int


def registrations(text: str | bytes, path: str) -> list[Registration]:
    """The registrations of the file `path` with this text (bytes: UTF-8), in its order.

    Operators are looked up in torch, and kernels imported. Raises one `CodegenError` with all that is wrong.
    """
    entries, violations = read_entries(text)
    registered: list[Registration] = []
    for entry in entries:
        own, more = _of_entry(entry)
        registered += own
        violations += more
    violations += _duplicates(registered)
    if violations:
        raise CodegenError(
            "\n".join(f"{path}:{violation.line}: {violation.text}" for violation in sorted(set(violations)))
        )
    return registered


def _of_entry(entry: OperatorEntry) -> tuple[list[Registration], list[Violation]]:
    violations = list(alias_violations(entry))
    aliases_are_sound = not violations
    try:
        schema = (declared_schema if entry.is_schema else callable_schema)(entry.operator.text)
    except SchemaViolation as violation:
        return [], [*violations, Violation(entry.operator.line, str(violation))]
    registered: list[Registration] = []
    for kernel in entry.kernels:
        wrong_keys = list(meta_violations(kernel, entry, schema))
        violations += [*wrong_keys, *_function_violations(kernel, schema)]
        if aliases_are_sound and not wrong_keys:
            registered += _of_kernel(kernel, entry, schema)
    return registered, violations


def _function_violations(kernel: KernelEntry, schema: torch.FunctionSchema) -> Iterator[Violation]:
    violation = function_violation(kernel.kernel_name.text, schema)
    if violation is not None:
        yield Violation(kernel.kernel_name.line, violation)


def _of_kernel(kernel: KernelEntry, entry: OperatorEntry, schema: torch.FunctionSchema) -> Iterator[Registration]:
    operator = f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)
    for key in keys_of(kernel, entry, schema):
        yield Registration(operator, kernel.kernel_name.text, key, kernel.line)


def _duplicates(registered: Sequence[Registration]) -> Iterator[Violation]:
    """A library has one kernel for each operator and key."""
    first: dict[tuple[str, Key | None], Registration] = {}
    for registration in registered:
        earlier = first.setdefault((registration.operator, registration.key), registration)
        if earlier is not registration:
            what = "a fallback" if registration.key is None else f"a kernel for {_key_text(registration.key)}"
            yield Violation(registration.line, f"{registration.operator} has {what} already, in line {earlier.line}")


def _key_text(key: Key) -> str:
    return ", ".join(f"{dtype} {list(order)}" for dtype, order in key)
