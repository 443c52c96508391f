"""Entries of a kernels.yaml -> registrations; or every fault of the file, each with its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from delegraph.codegen.functions import function_fault
from delegraph.codegen.keys import Key, alias_faults, keys_of, meta_faults
from delegraph.codegen.operators import SchemaFault, callable_schema, declared_schema
from delegraph.codegen.read import Entry, Fault, KernelEntry, read_entries
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
    """What the file `path` with this text (bytes: UTF-8) registers, in its order.

    Operators are looked up in torch, and kernels imported. Raises one `CodegenError` with all that is wrong.
    """
    entries, faults = read_entries(text)
    made: list[Registration] = []
    for entry in entries:
        found, more = _of_entry(entry)
        made += found
        faults += more
    faults += _duplicates(made)
    if faults:
        raise CodegenError("\n".join(f"{path}:{fault.line}: {fault.text}" for fault in sorted(set(faults))))
    return made


def _of_entry(entry: Entry) -> tuple[list[Registration], list[Fault]]:
    faults = list(alias_faults(entry))
    aliases_are_sound = not faults
    try:
        schema = (declared_schema if entry.is_schema else callable_schema)(entry.operator.text)
    except SchemaFault as fault:
        return [], [*faults, Fault(entry.operator.line, str(fault))]
    made: list[Registration] = []
    for kernel in entry.kernels:
        wrong_keys = list(meta_faults(kernel, entry, schema))
        faults += [*wrong_keys, *_function_faults(kernel, schema)]
        if aliases_are_sound and not wrong_keys:
            made += _of_kernel(kernel, entry, schema)
    return made, faults


def _function_faults(kernel: KernelEntry, schema: torch.FunctionSchema) -> Iterator[Fault]:
    fault = function_fault(kernel.kernel_name.text, schema)
    if fault is not None:
        yield Fault(kernel.kernel_name.line, fault)


def _of_kernel(kernel: KernelEntry, entry: Entry, schema: torch.FunctionSchema) -> Iterator[Registration]:
    operator = f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)
    for key in keys_of(kernel, entry, schema):
        yield Registration(operator, kernel.kernel_name.text, key, kernel.line)


def _duplicates(made: Sequence[Registration]) -> Iterator[Fault]:
    """A library has one kernel for each operator and key."""
    first: dict[tuple[str, Key | None], Registration] = {}
    for one in made:
        earlier = first.setdefault((one.operator, one.key), one)
        if earlier is not one:
            what = "a fallback" if one.key is None else f"a kernel for {_key_text(one.key)}"
            yield Fault(one.line, f"{one.operator} has {what} already, in line {earlier.line}")


def _key_text(key: Key) -> str:
    return ", ".join(f"{dtype} {list(order)}" for dtype, order in key)
